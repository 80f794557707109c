"""A training run: `accelerate launch -m envbuild.train.trl_run RUN.toml [NAME=VALUE…]`.

The TOML file picks a recipe, a model, a manifest and its export; everything else has the recipe's
or TRL's own default. A NAME=VALUE behind it replaces what the file says at the top. What stands
under `[trl]` is handed to `trl.GRPOConfig` as it is.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from envbuild.env.prompts import load_preset, load_prompts
from envbuild.errors import ConfigurationError, MissingDependencyError, OperatorError
from envbuild.records.episode import ChatFormat
from envbuild.records.manifest import Schedule
from envbuild.train.export import read_export
from envbuild.train.recipe import load_recipe
from envbuild.train.schedule import load_schedule
from envbuild.train.trainer_env import (
    RunRecord,
    TrainerEnv,
    read_run_record,
    write_run_record,
)
from envbuild.train.trl import RolloutFunction, RowEnvironment, env_reward, grpo_arguments
from envbuild.train.trl_trainer import PublishedTrainer

try:
    from datasets import load_dataset
    from trl import GRPOConfig
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the TRL adapter", str(e.name), "pip install torch, then pip install '.[trl]' in a checkout"
    ) from e


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


def check_data(run: Run, manifest_sha256: str) -> None:
    """Raises ConfigurationError where the export or the checkpoints are of another manifest."""
    exported = read_export(Path(run.dataset))
    if exported is not None and exported.manifest_sha256 != manifest_sha256:
        raise ConfigurationError(
            f"{run.dataset} was exported from another manifest than {run.manifest}: run "
            f"envbuild export {run.manifest} --to trl --out {run.dataset} --replace"
        )
    begun = read_run_record(Path(run.output))
    if begun is not None and begun.manifest_sha256 != manifest_sha256:
        raise ConfigurationError(
            f"{run.output} holds a run on another manifest than {run.manifest}: "
            "choose another output"
        )


def make_trainer(run: Run, *, schedule: Schedule | None = None, **options: Any) -> PublishedTrainer:
    """The trainer of a run, ready to train; `options` are PublishedTrainer's own.

    `schedule` replaces the one the run names.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    recipe = load_recipe(run.recipe)
    plan = schedule or load_schedule(run.schedule or recipe.schedule)
    prompts = load_prompts(Path(run.prompts) if run.prompts else None)
    rollouts = TrainerEnv(
        Path(run.manifest), prompts=prompts, chat=run.chat, rerun_golds=run.rerun_golds
    )
    check_data(run, rollouts.manifest_sha256)
    settings = load_preset(recipe.episode_preset)
    arguments = grpo_arguments(
        recipe, plan, settings, processes=run.processes, per_device=run.per_device
    )
    configuration = GRPOConfig(**{**arguments, "output_dir": run.output, **run.trl})
    rows = load_dataset("parquet", data_files=str(Path(run.dataset, "train.parquet")))
    trainer = PublishedTrainer(
        model=run.model or recipe.model,
        args=configuration,
        train_dataset=rows["train"],
        reward_funcs=[env_reward],
        environment_factory=RowEnvironment,
        rollout_func=RolloutFunction(rollouts, recipe),
        recipe=recipe,
        schedule=plan,
        **options,
    )
    if trainer.accelerator.is_main_process:
        write_run_record(
            Path(run.output),
            RunRecord(
                adapter="trl",
                recipe=recipe.name,
                manifest_sha256=rollouts.manifest_sha256,
                prompts_sha256=rollouts.prompts_sha256,
                reward_sha256=rollouts.reward_sha256,
                group_seen=True,
                note="groups are generated whole by one process",
            ),
        )
    return trainer


if __name__ == "__main__":
    sys.exit(main())
