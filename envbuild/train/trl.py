"""TRL: a recipe in its own option names, and episodes as its rollout function."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from envbuild.env.chat import HubTokenizer
from envbuild.env.episode import TokenEpisode
from envbuild.errors import ConfigurationError
from envbuild.records.episode import EpisodeSettings, TokenRequest
from envbuild.records.manifest import Recipe, Schedule
from envbuild.train.layouts import EpisodeSpec
from envbuild.train.trainer_env import ScoredEpisode, TrainerEnv, is_flat, whole_groups

# A recipe in TRL's own option names; what TRL has no option for is in `trainer.py`.


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


# TRL's rollout function: whole groups of episodes, turn by turn, on TRL's own generation.
#
# TRL asks for completions of prompts; here a completion is everything after the prompt, sampled
# and observed, and the mask says which tokens the policy sampled.


SQL_THREADS = 8
"""Turns whose SQL runs at once; SQLite leaves the interpreter while it works."""


class RowEnvironment:
    """Keeps its row for the rollout function. TRL would take any other public method for a tool."""

    def __init__(self) -> None:
        self.ticket: EpisodeSpec | None = None

    def reset(self, **row: Any) -> None:
        """Takes the row of the next episode; nothing of the last one stays."""
        self.ticket = msgspec.json.decode(row["env_json"], type=EpisodeSpec)


def env_reward(*, env_reward: list[float | None], **_: Any) -> list[float | None]:
    """TRL's reward function: what the episodes earned; None where a gold cannot be scored."""
    return env_reward


class RolloutFunction:
    """Plays the episodes that TRL asks for; its instance is GRPOTrainer's `rollout_func`."""

    def __init__(self, rollouts: TrainerEnv, recipe: Recipe) -> None:
        self.rollouts = rollouts
        self.recipe = recipe

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Ids, mask, log-probabilities and reward of one episode a prompt, in their order."""
        training = trainer.model.training
        size = trainer.num_generations if training else trainer.num_generations_eval
        groups = whole_groups([env.ticket for env in trainer.environments], size)
        played: dict[int, list[ScoredEpisode]] = {}
        pending = list(range(len(groups)))
        rounds = 1 + (self.recipe.resample_rounds if training else 0)
        for round_number in range(rounds):
            if not _anywhere(trainer, bool(pending)):
                break
            self._play_groups(trainer, groups, pending, played, round_number)
            pending = [place for place in pending if is_flat(played[place])]
        every = [one for place in range(len(groups)) for one in played[place]]
        self._log(trainer, every, flat=len(pending) / len(groups))
        return _for_trl(every)

    def _play_groups(
        self,
        trainer: Any,
        groups: Sequence[Sequence[EpisodeSpec]],
        places: Sequence[int],
        played: dict[int, list[ScoredEpisode]],
        round_number: int,
    ) -> None:
        tokenizer = HubTokenizer(trainer._tokenizer)
        started = {
            place: [
                self.rollouts.start_tokens(ticket, tokenizer=tokenizer, candidate=candidate)
                for candidate, ticket in enumerate(groups[place])
            ]
            for place in places
        }
        _play(trainer, [episode for group in started.values() for episode in group])
        for place, episodes in started.items():
            played[place] = self.rollouts.finish_group(episodes, attempt=round_number)

    def _log(self, trainer: Any, played: Sequence[ScoredEpisode], *, flat: float) -> None:
        count = len(played)
        trainer._log_metric("groups/flat", flat)
        trainer._log_metric("groups/attempts", sum(p.attempt + 1 for p in played) / count)
        for tier in ("equivalent", "executable", "parsable", "invalid", "unscored"):
            share = sum(p.breakdown.tier == tier for p in played) / count
            trainer._log_metric(f"tier/{tier}", share)
        submitted = sum(p.episode.ended_by == "submit_sql" for p in played) / count
        trainer._log_metric("episode/submitted", submitted)
        trainer._log_metric("episode/turns", sum(len(p.episode.turns) for p in played) / count)
        unknown = sum(p.episode.unknown_logprobs for p in played) / count
        trainer._log_metric("episode/unknown_logprobs", unknown)


def _play(trainer: Any, episodes: Sequence[TokenEpisode]) -> None:
    """Plays episodes to their end, all their next turns in one call of TRL's generation."""
    with ThreadPoolExecutor(SQL_THREADS) as pool:
        while True:
            asked = [(e, request) for e in episodes if (request := e.next_request()) is not None]
            if not _anywhere(trainer, bool(asked)):
                return
            completions = _generate(trainer, [request for _, request in asked])
            turns = zip(asked, completions, strict=True)
            list(pool.map(lambda turn: turn[0][0].feed(turn[1][0], turn[1][1]), turns))


def _generate(
    trainer: Any, requests: Sequence[TokenRequest]
) -> list[tuple[list[int], list[float | None] | None]]:
    """One completion a request, each cut to its own limit."""
    contexts = [list(request.context) for request in requests]
    most = max((request.max_new_tokens for request in requests), default=1)
    if trainer.use_vllm and _shares_engine(trainer.vllm_generation):
        ids, logprobs = _generate_together(trainer, contexts, most)
    else:
        if trainer.use_vllm:
            trainer.vllm_generation.max_completion_length = most
        else:
            trainer.generation_config.max_new_tokens = most
        # sharded weights make generation collective: who has nothing to ask samples one token too
        ids, logprobs = trainer._generate_single_turn(
            contexts or [[trainer._tokenizer.pad_token_id]], None, {}, 1
        )
    completions: list[tuple[list[int], list[float | None] | None]] = []
    for place, request in enumerate(requests):
        limit = request.max_new_tokens
        completions.append(
            (ids[place][:limit], None if logprobs is None else logprobs[place][:limit])
        )
    return completions


def _shares_engine(engine: Any) -> bool:
    """Whether one vLLM engine answers several processes."""
    if engine.accelerator.num_processes == 1:
        return False
    return bool(engine.mode == "server" or engine.tensor_parallel_size > 1)


def _generate_together(
    trainer: Any, contexts: Sequence[list[int]], most: int
) -> tuple[list[list[int]], list[list[float | None]]]:
    """The answers to this process's contexts from an engine that it shares.

    TRL gives each process an equal slice of the engine's answers, and the first process's token
    limit holds for all. Processes have different numbers of live episodes, so the first asks for
    all of them, under the largest limit, the others for none; then each takes its own.
    """
    from torch import distributed

    engine = trainer.vllm_generation
    group = None if engine.mode == "server" else engine.tp_group
    rank = distributed.get_rank(group)
    asked: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(asked, (contexts, most), group=group)
    engine.max_completion_length = max(limit for _, limit in asked)
    every = [context for part, _ in asked for context in part]
    # only under tensor parallelism can a whole group have nothing to ask
    own = (every or [[trainer._tokenizer.pad_token_id]]) if rank == 0 else []
    answers = [trainer._generate_single_turn(own, None, {}, 1)]
    first = 0 if group is None else distributed.get_global_rank(group, 0)
    distributed.broadcast_object_list(answers, src=first, group=group)
    start = sum(len(part) for part, _ in asked[:rank])
    ids, logprobs = answers[0]
    return ids[start : start + len(contexts)], logprobs[start : start + len(contexts)]


def _anywhere(trainer: Any, here: bool) -> bool:
    """Whether any process has work left; every process answers alike."""
    if trainer.accelerator.num_processes == 1:
        return here
    from accelerate.utils import gather_object

    return any(gather_object([here]))


def _for_trl(played: Sequence[ScoredEpisode]) -> dict[str, Any]:
    episodes = [one.episode for one in played]
    known = all(episode.response_logprobs for episode in episodes)
    return {
        "prompt_ids": [list(episode.prompt_ids) for episode in episodes],
        "completion_ids": [list(episode.response_ids) for episode in episodes],
        "logprobs": [list(episode.response_logprobs) for episode in episodes] if known else None,
        "env_mask": [list(episode.response_mask) for episode in episodes],
        "env_reward": [one.breakdown.reward for one in played],
        "env_breakdown": [msgspec.json.encode(one.breakdown).decode() for one in played],
        "env_ended_by": [str(episode.ended_by) for episode in episodes],
    }
