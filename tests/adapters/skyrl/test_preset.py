"""What the page starts, under SkyRL's own validation (Python 3.12, vLLM's package importable)."""

from pathlib import Path

import pytest

pytest.importorskip("skyrl.train", reason="SkyRL itself is not installed (it needs Python 3.12)")
pytest.importorskip("vllm", reason="SkyRL's validation imports vLLM")

from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.utils import validate_cfg

from envbuild.train.schedule import load_recipe, load_schedule
from tests.adapters.pages import printed_arguments


def test_skyrl_accepts_what_the_page_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    data = tmp_path / "my data"
    data.mkdir()
    config = SkyRLTrainConfig.from_cli_overrides(printed_arguments("skyrl.md", DATA=str(data)))
    validate_cfg(config)
    assert config.trainer.logger == "console"
    assert config.data.train_data == [str(data / "train.parquet")] and config.data.val_data == []
    (data / "test.parquet").touch()
    config = SkyRLTrainConfig.from_cli_overrides(printed_arguments("skyrl.md", DATA=str(data)))
    assert config.data.val_data == [str(data / "test.parquet")]
    # the preset says what the recipe says
    recipe, trainer = load_recipe("synsql-token"), config.trainer
    schedule = load_schedule(recipe.schedule)
    assert trainer.policy.model.path == recipe.model
    assert trainer.max_prompt_length == 4096
    assert trainer.train_batch_size == trainer.policy_mini_batch_size == schedule.questions
    assert config.generator.n_samples_per_prompt == schedule.episodes
    algorithm, optimizer = trainer.algorithm, trainer.policy.optimizer_config
    assert algorithm.max_seq_len == recipe.loss_divisor
    assert (algorithm.eps_clip_low, algorithm.eps_clip_high) == (recipe.clip_low, recipe.clip_high)
    assert algorithm.kl_loss_coef == recipe.kl_beta
    assert optimizer.lr == recipe.learning_rate
    assert optimizer.weight_decay == recipe.weight_decay == 0.0
    assert optimizer.num_warmup_steps == recipe.warmup_share * schedule.steps
