"""The published objective on TRL's GRPO trainer: four hooks for what has no option.

Pinned to trl 1.16, whose rollout and environment interfaces are experimental. The hooks change
the divisor of the loss, the advantages, the ratio's denominator and β; TRL computes the rest.
"""

from pathlib import Path
from typing import Any

from envbuild.env.reward import group_advantages
from envbuild.errors import ConfigurationError, MissingDependencyError
from envbuild.io.files import atomic_path, write_bytes
from envbuild.records.manifest import Recipe, Schedule
from envbuild.train.recipe import AdaptiveKL
from envbuild.train.trl import check_groups_whole

try:
    import torch
    from transformers import TrainerCallback
    from trl import GRPOTrainer
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the TRL adapter", str(e.name), "pip install torch, then pip install '.[trl]' in a checkout"
    ) from e

KL_STATE = "adaptive_kl.json"
REFERENCE = "reference.pt"


class PublishedTrainer(GRPOTrainer):  # type: ignore[misc]  # trl is not installed where types are checked
    """GRPOTrainer with a recipe's objective."""

    max_completion_length: int
    beta: float

    def __init__(self, *arguments: Any, recipe: Recipe, schedule: Schedule, **options: Any) -> None:
        """`arguments` and `options` are GRPOTrainer's own.

        Raises ConfigurationError where a process would hold a part of a group.
        """
        self.recipe = recipe
        self.adaptive_kl = AdaptiveKL(recipe)
        self._measured_kl: list[float] = []
        super().__init__(*arguments, **options)
        processes = self.accelerator.num_processes
        check_groups_whole(
            schedule, processes=processes, per_device=self.args.per_device_train_batch_size
        )
        held = self.args.per_device_train_batch_size * self.args.steps_per_generation
        own = schedule.questions * schedule.episodes // processes
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
            self.beta = self.adaptive_kl.update(measured)
            self._measured_kl.clear()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """TRL's checkpoint, β, and the reference where it is no longer the start policy."""
        super()._save_checkpoint(model, trial)
        if not self.args.should_save:
            return
        folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
        write_bytes(folder / KL_STATE, self.adaptive_kl.state())
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
            self.adaptive_kl.restore(state.read_bytes())
            self.beta = self.adaptive_kl.beta
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
