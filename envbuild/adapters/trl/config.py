"""A recipe in TRL's own option names; what TRL has no option for is in `trainer.py`."""

from typing import Any

from envbuild.errors import ConfigurationError
from envbuild.records.episode import EpisodeSettings
from envbuild.records.manifest import Recipe, Schedule


def grpo_arguments(
    recipe: Recipe,
    schedule: Schedule,
    settings: EpisodeSettings,
    *,
    processes: int = 1,
    per_device: int = 4,
) -> dict[str, Any]:
    """Keyword arguments of `trl.GRPOConfig`; a caller adds folders, precision and vLLM.

    `processes` is the number of training processes (GPUs), `per_device` the episodes that one of
    them trains on at a time. Raises ConfigurationError where a group would be split.
    """
    check_groups_whole(schedule, processes=processes, per_device=per_device)
    own = schedule.questions * schedule.episodes // processes
    return {
        "loss_type": "dr_grpo",
        "scale_rewards": "none",
        "epsilon": recipe.clip_low,
        "epsilon_high": recipe.clip_high,
        # caps the unclipped ratio, which only negative advantages leave in the minimum
        "delta": recipe.ratio_cap,
        "importance_sampling_level": recipe.ratio_level,
        # the ratio itself is taken against the sampler, so there is nothing left to correct
        "vllm_importance_sampling_correction": not recipe.sampler_ratio,
        "beta": recipe.kl_beta,
        "use_bias_correction_kl": False,
        "sync_ref_model": recipe.reference_every > 0,
        "ref_model_sync_steps": recipe.reference_every or schedule.steps,
        "ref_model_mixup_alpha": 1.0,
        "num_generations": schedule.episodes,
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": own // per_device,
        "num_iterations": 1,
        "max_steps": schedule.steps,
        "learning_rate": recipe.learning_rate,
        "weight_decay": recipe.weight_decay,
        "lr_scheduler_type": "cosine",
        # a float below 1 is a share of all steps
        "warmup_steps": recipe.warmup_share,
        "temperature": recipe.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "max_completion_length": settings.episode_tokens,
        "shuffle_dataset": False,
        "remove_unused_columns": False,
        "logging_steps": 1,
    }


def check_groups_whole(schedule: Schedule, *, processes: int, per_device: int) -> None:
    """Raises ConfigurationError unless every process holds whole groups and fills its batches.

    A split group breaks consensus and re-rolling without a word: each process sees half of it.
    """
    if processes < 1 or schedule.questions % processes:
        valid = [n for n in range(1, schedule.questions + 1) if schedule.questions % n == 0]
        raise ConfigurationError(
            f"{schedule.questions} groups a step cannot be shared whole among {processes} "
            f"processes; possible: {', '.join(map(str, valid))}"
        )
    own = schedule.questions * schedule.episodes // processes
    if per_device < 1 or own % per_device:
        valid = [n for n in range(1, own + 1) if own % n == 0]
        raise ConfigurationError(
            f"{own} episodes a process cannot be trained {per_device} at a time; possible: "
            f"{', '.join(map(str, valid))}"
        )
