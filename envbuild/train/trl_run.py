"""A training run: `accelerate launch -m envbuild.train.trl_run RUN.toml [NAME=VALUE…]`.

The TOML file picks a recipe, a model, a manifest and its export; everything else has the recipe's
or TRL's own default. A NAME=VALUE behind it replaces what the file says at the top. What stands
under `[trl]` is handed to `trl.GRPOConfig` as it is. The published objective is TRL's GRPO with
four hooks for what has no option: the divisor of the loss, the advantages, the ratio's
denominator and β.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from envbuild.env.prompts import load_preset, load_prompts
from envbuild.env.reward import group_advantages
from envbuild.errors import ConfigurationError, MissingDependencyError, OperatorError
from envbuild.io.files import atomic_path, write_bytes
from envbuild.records.episode import ChatFormat
from envbuild.records.manifest import Recipe, Schedule
from envbuild.sql.connect import VERSIONS
from envbuild.train.schedule import load_recipe, load_schedule
from envbuild.train.trainer_env import TrainerEnv
from envbuild.train.trl import (
    RolloutFunction,
    RowEnvironment,
    adapted_beta,
    env_reward,
    episodes_a_process,
    grpo_arguments,
)

try:
    import torch
    from datasets import load_dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the TRL adapter", str(e.name), "pip install torch, then pip install '.[trl]' in a checkout"
    ) from e

KL_STATE = "adaptive_kl.json"
REFERENCE = "reference.pt"
RUN_FILE = "envbuild_run.json"


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run's file."""

    recipe: str
    """`synsql-token`, `synsql-sequence`, or a TOML file."""
    manifest: str
    """Manifest folder."""
    rerun_golds: bool = False
    """Judge by golds run here, each once, not by those in the manifest."""
    dataset: str
    """Folder of `envbuild export MANIFEST --to trl`."""
    output: str
    """Checkpoints and the run's record."""
    model: str = ""
    """Folder or hub id; empty: the recipe's own."""
    schedule: str = ""
    """Empty: the recipe's own."""
    prompts: str = ""
    """Prompts file; empty: the package's own words."""
    chat: ChatFormat = ChatFormat()
    """The model's chat delimiters, Qwen's by default."""
    processes: int = 1
    """Training processes (GPUs); the questions of a step must divide among them."""
    per_device: int = 4
    """Episodes a process trains on at a time."""
    trl: dict[str, Any] = {}
    """Further GRPOConfig arguments; they win over the recipe's."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which data and rules a run has: envbuild_run.json beside its checkpoints."""

    format: str = "envbuild.run/1"
    adapter: str = "trl"
    recipe: str = ""
    manifest_sha256: str
    prompts_sha256: str
    reward_sha256: str
    """Digest of the reward's constants."""
    group_seen: bool = True
    note: str = "groups are generated whole by one process"
    versions: dict[str, str] = msgspec.field(default_factory=VERSIONS.copy)
    """`envbuild` and `sqlite`: what ran the queries."""


def main(arguments: list[str] | None = None) -> int:
    """Trains as the TOML file says; returns an exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        sys.stderr.write("usage: python -m envbuild.train.trl_run RUN.toml [NAME=VALUE…]\n")
        return 2
    try:
        run = read_run(Path(given[0]), given[1:])
        trainer = make_trainer(run)
    except OperatorError as e:
        sys.stderr.write(f"envbuild: {e}\n")
        return 2
    checkpoints = sorted(Path(run.output).glob("checkpoint-*"))
    trainer.train(resume_from_checkpoint=bool(checkpoints))
    trainer.save_model()
    return 0


def read_run(path: Path, changes: Sequence[str] = ()) -> Run:
    """The run a TOML file describes, with these NAME=VALUE in place of its own.

    Raises ConfigurationError where either is wrong.
    """
    try:
        stated = msgspec.toml.decode(path.read_bytes(), type=dict[str, Any])
        for change in changes:
            name, given, value = change.partition("=")
            if not given:
                raise ConfigurationError(f"expected NAME=VALUE, got {change!r}")
            stated[name] = value
        return msgspec.convert(stated, Run, strict=False)
    except OSError as e:
        raise ConfigurationError(f"cannot read {path}: {e.strerror}") from e
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise ConfigurationError(f"{path}: {e}") from e


def check_checkpoints(run: Run, manifest_sha256: str) -> None:
    """Raises ConfigurationError where the checkpoints are of another manifest."""
    record = Path(run.output, RUN_FILE)
    if (
        record.exists()
        and msgspec.json.decode(record.read_bytes(), type=RunRecord).manifest_sha256
        != manifest_sha256
    ):
        raise ConfigurationError(
            f"{run.output} holds a run on another manifest than {run.manifest}: "
            "choose another output"
        )


def make_trainer(
    run: Run, *, schedule: Schedule | None = None, **options: Any
) -> "PublishedTrainer":
    """The trainer of a run, ready to train; `options` are PublishedTrainer's own.

    `schedule` replaces the one the run names.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    recipe = load_recipe(run.recipe)
    plan = schedule or load_schedule(run.schedule or recipe.schedule)
    prompts = load_prompts(Path(run.prompts) if run.prompts else None)
    env = TrainerEnv(
        Path(run.manifest), prompts=prompts, chat=run.chat, rerun_golds=run.rerun_golds
    )
    check_checkpoints(run, env.manifest_sha256)
    settings = load_preset(recipe.episode_preset)
    arguments = grpo_arguments(
        recipe, plan, settings, processes=run.processes, per_device=run.per_device
    )
    rows = load_dataset("parquet", data_files=str(Path(run.dataset, "train.parquet")))
    trainer = PublishedTrainer(
        model=run.model or recipe.model,
        args=GRPOConfig(**{**arguments, "output_dir": run.output, **run.trl}),
        train_dataset=rows["train"],
        reward_funcs=[env_reward],
        environment_factory=RowEnvironment,
        rollout_func=RolloutFunction(env, recipe),
        recipe=recipe,
        schedule=plan,
        **options,
    )
    if trainer.accelerator.is_main_process:
        record = RunRecord(
            recipe=recipe.name,
            manifest_sha256=env.manifest_sha256,
            prompts_sha256=env.prompts.sha256,
            reward_sha256=env.environment.reward_sha256,
        )
        encoded = msgspec.json.format(msgspec.json.encode(record))
        write_bytes(Path(run.output, RUN_FILE), encoded)
    return trainer


class PublishedTrainer(GRPOTrainer):  # type: ignore[misc]  # trl is not installed where types are checked
    """GRPOTrainer with a recipe's objective."""

    max_completion_length: int
    beta: float

    def __init__(self, *arguments: Any, recipe: Recipe, schedule: Schedule, **options: Any) -> None:
        """`arguments` and `options` are GRPOTrainer's own.

        Raises ConfigurationError where a process would hold a part of a group.
        """
        self.recipe = recipe
        self._measured_kl: list[float] = []
        super().__init__(*arguments, **options)
        per_device = self.args.per_device_train_batch_size
        own = episodes_a_process(
            schedule, processes=self.accelerator.num_processes, per_device=per_device
        )
        held = per_device * self.args.steps_per_generation
        if held != own:
            raise ConfigurationError(
                f"a process generates {held} episodes at a time, but its part of a step of the "
                f"schedule is {own}"
            )
        self.add_callback(_AfterEachUpdate(self))

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's batch with shaped advantages and, where known, the sampler's log-probabilities."""
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        advantages = batch["advantages"]
        size = self.num_generations if self.model.training else self.num_generations_eval
        shaped: list[float] = []
        for at in range(0, len(advantages), size):
            shaped += group_advantages(
                advantages[at : at + size].tolist(),
                clip=self.recipe.advantage_clip,
                negative_weight=self.recipe.negative_weight,
            )
        batch["advantages"] = advantages.new_tensor(shaped)
        sampled = batch.get("sampling_per_token_logps")
        if self.recipe.sampler_ratio and sampled is not None:
            batch["old_per_token_logps"] = sampled
        return batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        """`dr_grpo` divides by `max_completion_length`, which is the recipe's divisor meanwhile."""
        whole = self.max_completion_length
        self.max_completion_length = self.recipe.loss_divisor
        try:
            loss = super()._compute_loss(model, inputs)
        finally:
            self.max_completion_length = whole
        if self.model.training and self.beta != 0.0:
            self._measured_kl.append(self._metrics["train"]["kl"][-1])
        return loss

    def _after_update(self) -> None:
        """Steers β by the mean KL of the update's micro-batches."""
        if self._measured_kl:
            measured = sum(self._measured_kl) / len(self._measured_kl)
            self._metrics["train"]["kl_beta"].append(self.beta)
            self.beta = adapted_beta(self.beta, measured, self.recipe)
            self._measured_kl.clear()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """TRL's checkpoint, β, and the reference where it is no longer the start policy."""
        super()._save_checkpoint(model, trial)
        if not self.args.should_save:
            return
        folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
        write_bytes(folder / KL_STATE, msgspec.json.encode({"beta": self.beta}))
        every = self.recipe.reference_every
        if every and self.state.global_step >= every and not self._sharded():
            reference = self.accelerator.unwrap_model(self.ref_model)
            with atomic_path(folder / REFERENCE) as temporary:
                torch.save(reference.state_dict(), temporary)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Takes up β and the reference where a checkpoint left them."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        state = Path(checkpoint, KL_STATE)
        if state.exists():
            self.beta = msgspec.json.decode(state.read_bytes(), type=dict[str, float])["beta"]
        reference = Path(checkpoint, REFERENCE)
        if reference.exists():
            weights = torch.load(reference, map_location="cpu", weights_only=True)
            self.accelerator.unwrap_model(self.ref_model).load_state_dict(weights)
        elif self.recipe.reference_every and self._sharded():
            raise ConfigurationError(
                "a sharded reference (FSDP, DeepSpeed) is not in the checkpoint, so a run with a "
                "re-anchored reference cannot be resumed under sharding"
            )

    def _sharded(self) -> bool:
        return bool(self.is_fsdp_enabled or self.is_deepspeed_enabled)


class _AfterEachUpdate(TrainerCallback):  # type: ignore[misc]  # as above
    """Calls back before TRL logs the step and clears its metrics."""

    def __init__(self, trainer: PublishedTrainer) -> None:
        self.trainer = trainer

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.trainer._after_update()


if __name__ == "__main__":
    sys.exit(main())
