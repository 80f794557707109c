"""verl's own data set, agent-loop worker and estimator registry, with a scripted language model."""

import asyncio
import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl has an environment of its own: tests/adapters/run.sh verl")

import numpy as np
import torch
import verl.trainer
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker, _agent_loop_registry
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.replica import TokenOutput

import envbuild.train.verl  # what verl itself loads by the entry point
from envbuild.env.reward import group_advantages
from envbuild.train.schedule import load_recipe, load_schedule
from envbuild.train.trainer_env import TrainerEnv
from tests.adapters.pages import printed_arguments
from tests.adapters.questions import (
    QUESTIONS,
    call,
    export_for,
    make_manifest,
    make_schedule,
    right_answer,
    wrong_answer,
)
from tests.adapters.trl.tiny import make_model, make_tokenizer

PLAN = make_schedule(steps=2, questions=2, episodes=4, gate_steps=1)


class TinyRun:
    """A manifest, its verl export, and a tokenizer with a random model beside it."""

    def __init__(self, folder: Path) -> None:
        self.manifest = make_manifest(folder / "manifest")
        self.data = export_for(self.manifest, folder / "data", "verl", PLAN)
        opening = TrainerEnv(self.manifest).environment.new_episode("towns/q0").prompt
        texts = [q for pair in QUESTIONS for q in pair] + [opening, call("run_query", sql="x")]
        self.tokenizer = make_tokenizer(folder / "model", texts)
        make_model(folder / "model", self.tokenizer, seed=0)
        self.model = folder / "model"

    def config(self) -> Any:
        folder = str(Path(verl.trainer.__file__).parent / "config")
        with initialize_config_dir(config_dir=folder, version_base=None):
            config = compose(
                "ppo_trainer",
                overrides=[
                    f"actor_rollout_ref.model.path={self.model}",
                    "actor_rollout_ref.rollout.name=vllm",
                    "actor_rollout_ref.rollout.n=4",
                    "actor_rollout_ref.rollout.prompt_length=2048",
                    "actor_rollout_ref.rollout.response_length=2048",
                    "actor_rollout_ref.rollout.calculate_log_probs=True",
                    "data.filter_overlong_prompts=False",
                    "data.return_raw_chat=True",
                    "data.shuffle=False",
                    f"+data.envbuild_manifest={self.manifest}",
                ],
            )
        return config


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return TinyRun(tmp_path_factory.mktemp("verl"))


class ScriptedServer:
    """In the place of verl's LLM client: each request id follows a script of its own."""

    def __init__(self, tokenizer: Any, scripts: Sequence[Sequence[str]]) -> None:
        self.tokenizer, self.scripts = tokenizer, [list(s) for s in scripts]
        self.by_request: dict[str, list[str]] = {}
        self.limits: set[int] = set()

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **_: Any
    ) -> TokenOutput:
        await asyncio.sleep(0)
        if request_id not in self.by_request:
            self.by_request[request_id] = self.scripts.pop(0)
        self.limits.add(sampling_params["max_tokens"])
        text = self.by_request[request_id].pop(0) + "<|im_end|>"
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return TokenOutput(token_ids=ids, log_probs=[-0.25] * len(ids), stop_reason="completed")


def dataset(scene: TinyRun, config: Any) -> RLHFDataset:
    return RLHFDataset(
        data_files=[str(scene.data / "train.parquet")],
        tokenizer=scene.tokenizer,
        config=config.data,
        processor=None,
    )


def batch_of(rows: Sequence[Any], **columns: Any) -> DataProto:
    batch = collate_fn(list(rows))
    tensors = {k: v for k, v in batch.items() if isinstance(v, torch.Tensor)}
    others = {k: v for k, v in batch.items() if isinstance(v, np.ndarray)}
    return DataProto.from_dict(
        tensors=tensors, non_tensors=others | columns, meta_info={"global_steps": 2}
    )


def test_the_dataset_keeps_the_schedule_and_the_columns(scene: TinyRun) -> None:
    config = scene.config()
    rows = dataset(scene, config)
    assert len(rows) == 4
    batch = collate_fn([rows[i] for i in range(4)])
    assert batch["schedule_step"].tolist() == [0, 0, 1, 1]
    assert batch["agent_name"].tolist() == ["envbuild"] * 4
    assert [m["role"] for m in rows[0]["raw_prompt"]] == ["system", "user"]
    assert rows[0]["reward_model"]["ground_truth"] in dict(QUESTIONS).values()


def test_groups_play_through_the_worker_and_get_the_published_advantages(scene: TinyRun) -> None:
    config = scene.config()
    rows = dataset(scene, config)
    first = rows[0]
    row_id = first["extra_info"]["row_id"]
    wrong = "SELECT id FROM shop"
    scripts = [
        right_answer(row_id),
        wrong_answer(wrong),
        wrong_answer(wrong),
        wrong_answer("SELEC"),
    ]
    server = ScriptedServer(scene.tokenizer, scripts)
    worker = AgentLoopWorker(config, server)
    data = batch_of(
        [rows[0]] * 4,
        uid=np.array(["u"] * 4, dtype=object),
        session_id=np.arange(4),
        global_steps=np.array([2] * 4),  # the second step: the gate is open
    )
    output = asyncio.run(worker.generate_sequences(data))
    rewards = output.batch["rm_scores"].sum(-1).tolist()
    # episodes start in threads, so any of them may be the first to take a script
    none, near, same, right = sorted(rewards)
    assert (none, right) == (0.0, 3.0) and near == same and 1.1 <= near <= 2.1
    agreed = [reward == near for reward in rewards]
    assert output.non_tensor_batch["consensus"].tolist() == agreed
    assert output.non_tensor_batch["group_seen"].tolist() == [True] * 4
    assert output.non_tensor_batch["ended_by"].tolist() == ["submit_sql"] * 4
    assert server.limits == {2048}
    mask, ids = (output.batch[k][rewards.index(3.0)] for k in ("response_mask", "responses"))
    said = scene.tokenizer.decode(ids[mask.bool()], skip_special_tokens=False)
    assert said == "".join(f"{text}<|im_end|>" for text in right_answer(row_id))
    logprobs = output.batch["rollout_log_probs"][rewards.index(3.0)]
    assert set(logprobs[mask.bool()].tolist()) == {-0.25}
    advantages, _ = get_adv_estimator_fn("envbuild")(
        token_level_rewards=output.batch["rm_scores"],
        response_mask=output.batch["response_mask"],
        index=np.array(["u"] * 4, dtype=object),
        config=None,
    )
    got = [
        float(row[m.bool()][0])
        for row, m in zip(advantages, output.batch["response_mask"], strict=True)
    ]
    assert got == pytest.approx(group_advantages(rewards), abs=1e-6)
    assert not advantages[output.batch["response_mask"] == 0].any()


def test_verl_finds_the_plugin_and_the_reward_function(
    scene: TinyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "envbuild" in _agent_loop_registry
    points = importlib.metadata.entry_points(group="verl.plugins")
    if "envbuild" in points.names:  # absent where envbuild is on the path but not installed
        assert points["envbuild"].load() is envbuild.train.verl
    monkeypatch.setenv("ENVBUILD_MANIFEST", str(scene.manifest))
    config = scene.config()
    path = Path(envbuild.train.verl.__file__).with_name("completions.py")
    OmegaConf.update(config, "reward.custom_reward_function.path", str(path))
    OmegaConf.update(config, "reward.custom_reward_function.name", "compute_score")
    score = get_custom_reward_fn(config)
    row = dataset(scene, config)[0]
    gold = row["reward_model"]["ground_truth"]
    result = score(
        data_source="x", solution_str=gold, ground_truth=gold, extra_info=row["extra_info"]
    )
    assert result["score"] == 3.0 and result["group_seen"] is False


@pytest.mark.parametrize("name", ["synsql-token", "synsql-sequence"])
def test_verl_accepts_what_start_sh_prints(scene: TinyRun, tmp_path: Path, name: str) -> None:
    data = tmp_path / "my data"
    data.symlink_to(scene.data)
    folders = {"MANIFEST": str(scene.manifest), "DATA": str(data)}
    others = () if name == "synsql-token" else (name,)  # the page's own
    printed = printed_arguments("verl.md", *others, **folders)
    folder = str(Path(verl.trainer.__file__).parent / "config")
    with initialize_config_dir(config_dir=folder, version_base=None):
        config = compose("ppo_trainer", overrides=printed)
    validate_config(config, need_reference_policy(config), need_critic(config))
    OmegaConf.resolve(config)
    assert config.trainer.save_freq > 0 and list(config.trainer.logger) == ["console"]
    assert config.trainer.n_gpus_per_node == 1
    assert config.actor_rollout_ref.rollout.tensor_model_parallel_size == 1
    assert config.data.envbuild_manifest == str(scene.manifest)
    assert Path(config.data.val_files).is_file()  # verl wants one even where none is read
    rows = RLHFDataset([config.data.train_files], scene.tokenizer, config.data, processor=None)
    assert len(rows) == PLAN.steps * PLAN.questions  # none is dropped
    # the preset says what the recipe says
    recipe, actor = load_recipe(name), omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    schedule = load_schedule(recipe.schedule)
    assert config.actor_rollout_ref.model.path == recipe.model
    assert config.trainer.total_training_steps == schedule.steps
    assert config.data.train_batch_size == actor.ppo_mini_batch_size == schedule.questions
    assert actor.rollout_n == schedule.episodes
    assert actor.loss_scale_factor == recipe.loss_divisor
    assert (actor.clip_ratio_low, actor.clip_ratio_high) == (recipe.clip_low, recipe.clip_high)
    assert recipe.ratio_cap in (None, actor.clip_ratio_c)
    assert (actor.policy_loss.loss_mode == "gspo") == (recipe.ratio_level == "sequence")
    assert actor.kl_loss_coef == recipe.kl_beta
    assert actor.optim.lr == recipe.learning_rate
    assert actor.optim.weight_decay == recipe.weight_decay == 0.0
    assert actor.optim.lr_warmup_steps_ratio == recipe.warmup_share
    assert (actor.optim.optimizer_impl, actor.optim.optimizer) == (
        "bitsandbytes.optim",
        "AdamW8bit",
    )
    assert config.algorithm.adv_estimator == "envbuild" and config.data.shuffle is False
