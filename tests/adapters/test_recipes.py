from pathlib import Path

import pytest

from envbuild.env.prompts import load_preset
from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.train.schedule import load_recipe, load_schedule
from envbuild.train.trainer_env import EpisodeSpec
from envbuild.train.trl import (
    adapted_beta,
    episodes_a_process,
    grpo_arguments,
    is_flat,
    whole_groups,
)

SYNSQL = load_schedule("synsql")


def test_the_published_numbers_arrive_in_trl_under_its_names() -> None:
    recipe = load_recipe("synsql-token")
    arguments = grpo_arguments(recipe, SYNSQL, load_preset("default"), processes=2, per_device=4)
    assert arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"] == 72
    assert (arguments["epsilon"], arguments["epsilon_high"], arguments["delta"]) == (0.2, 0.28, 2.0)
    assert arguments["ref_model_sync_steps"] == 111 and arguments["sync_ref_model"] is True
    assert arguments["max_steps"] == 1800 and arguments["warmup_steps"] == 0.05
    assert arguments["max_completion_length"] == 12288 and arguments["shuffle_dataset"] is False
    sequence = load_recipe("synsql-sequence")
    assert (recipe.ratio_level, recipe.ratio_cap, recipe.reference_every) == ("token", 2.0, 111)
    assert (sequence.ratio_level, sequence.ratio_cap) == ("sequence", None)
    frozen = grpo_arguments(sequence, SYNSQL, load_preset("default"))
    assert frozen["sync_ref_model"] is False and frozen["importance_sampling_level"] == "sequence"


def test_only_numbers_of_processes_that_keep_groups_whole_are_taken() -> None:
    for processes in (1, 2, 3, 6, 9, 18):
        assert episodes_a_process(SYNSQL, processes=processes, per_device=4) == 144 // processes
    for processes in (4, 5, 8, 36):
        with pytest.raises(ConfigurationError, match="1, 2, 3, 6, 9, 18"):
            episodes_a_process(SYNSQL, processes=processes, per_device=4)


def test_a_split_or_mixed_batch_is_no_group() -> None:
    a, b = (EpisodeSpec(row_id=name, manifest_sha256="") for name in "ab")
    assert whole_groups([a, a, b, b], 2) == [[a, a], [b, b]]
    for batch in ([a, a, b], [a, b, b, a]):
        with pytest.raises(ConfigurationError, match="whole groups of 2"):
            whole_groups(batch, 2)
    assert not is_flat([])


def test_beta_moves_towards_the_target_within_its_bounds() -> None:
    recipe = load_recipe("synsql-token")
    assert adapted_beta(0.02, 0.0051, recipe) == 0.02  # close enough
    assert adapted_beta(0.02, 0.05, recipe) == pytest.approx(0.03)
    assert adapted_beta(0.9, 9.0, recipe) == 1.0
    assert adapted_beta(0.025, 0.0, recipe) == 0.02


def test_a_recipe_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nmodel = "m"\nratio_level = "word"\n')
    with pytest.raises(ConfigurationError, match="token or sequence"):
        load_recipe(str(path))
    path.write_text('name = "mine"\nmodel = "m"\nlearning_rat = 1.0\n')
    with pytest.raises(ConfigurationError, match="learning_rat"):
        load_recipe(str(path))
    path.write_text('name = "mine"\nmodel = "m"\nloss_divisor = 512\n')
    assert load_recipe(str(path)).loss_divisor == 512
    with pytest.raises(UnknownNameError, match="synsql-sequence, synsql-token"):
        load_recipe("synsql")
