"""TRL: a recipe in its own option names, and episodes as its rollout function.

Pinned to trl 1.16, whose rollout and environment interfaces are experimental. Nothing here imports
TRL; the trainer and a run's file are in `trl_run`.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from envbuild.env.chat import HubTokenizer
from envbuild.env.episode import TokenEpisode
from envbuild.env.reward import has_zero_variance
from envbuild.errors import ConfigurationError
from envbuild.records.episode import EpisodeSettings, TokenRequest
from envbuild.records.manifest import Recipe, Schedule
from envbuild.train.trainer_env import EpisodeSpec, ScoredEpisode, TrainerEnv, metrics

SQL_THREADS = 8
"""Turns whose SQL runs at once; SQLite leaves the interpreter while it works."""
KL_FACTOR = 1.5
"""Our choice, the cards are silent: β moves by this, and only where KL is off by more than it."""
TIERS = ("equivalent", "executable", "parsable", "invalid", "unscored")


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
    own = episodes_a_process(schedule, processes=processes, per_device=per_device)
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


def episodes_a_process(schedule: Schedule, *, processes: int, per_device: int) -> int:
    """A process's part of a step: whole groups that fill its batches.

    Raises ConfigurationError where it cannot be that. A split group breaks consensus and
    re-rolling without a word: each process sees half of it.
    """
    if processes < 1 or schedule.questions % processes:
        raise ConfigurationError(
            f"{schedule.questions} groups a step cannot be shared whole among {processes} "
            f"processes; possible: {_divisors(schedule.questions)}"
        )
    own = schedule.questions * schedule.episodes // processes
    if per_device < 1 or own % per_device:
        raise ConfigurationError(
            f"{own} episodes a process cannot be trained {per_device} at a time; possible: "
            f"{_divisors(own)}"
        )
    return own


def _divisors(number: int) -> str:
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)


def adapted_beta(beta: float, measured: float, recipe: Recipe) -> float:
    """The next β, after an update whose mean KL per token was `measured`.

    It is steered so that the policy stays at the recipe's distance from its reference.
    """
    if measured > recipe.kl_target * KL_FACTOR:
        return min(recipe.kl_beta_most, beta * KL_FACTOR)
    if measured < recipe.kl_target / KL_FACTOR:
        return max(recipe.kl_beta, beta / KL_FACTOR)
    return beta


def whole_groups(specs: Sequence[EpisodeSpec], size: int) -> list[list[EpisodeSpec]]:
    """The batch as groups of `size` neighbours.

    Raises ConfigurationError where a group is split or mixed: consensus and re-rolling would be
    wrong without a word.
    """
    groups = [list(specs[at : at + size]) for at in range(0, len(specs), size)]
    for group in groups:
        if len(group) != size or any(spec != group[0] for spec in group):
            raise ConfigurationError(
                f"the batch does not hold whole groups of {size}: set the batch sizes so that "
                "every process generates whole groups"
            )
    return groups


def is_flat(group: Sequence[ScoredEpisode]) -> bool:
    """True where a group teaches nothing but might if it were rolled out anew.

    A group whose gold cannot be scored is not flat: another attempt would be unscored too.
    """
    rewards = [one.breakdown.reward for one in group]
    return any(reward is not None for reward in rewards) and has_zero_variance(rewards)


class RowEnvironment:
    """Keeps its row for the rollout function. TRL would take any other public method for a tool."""

    def __init__(self) -> None:
        self.spec: EpisodeSpec | None = None

    def reset(self, **row: Any) -> None:
        """Takes the row of the next episode; nothing of the last one stays."""
        self.spec = EpisodeSpec.from_json(row["env_json"])


def env_reward(*, env_reward: list[float | None], **_: Any) -> list[float | None]:
    """TRL's reward function: what the episodes earned; None where a gold cannot be scored."""
    return env_reward


class RolloutFunction:
    """Plays whole groups, turn by turn, on TRL's own generation: GRPOTrainer's `rollout_func`.

    TRL asks for completions of prompts; here a completion is everything after the prompt, sampled
    and observed, and the mask says which tokens the policy sampled.
    """

    def __init__(self, env: TrainerEnv, recipe: Recipe) -> None:
        self.env = env
        self.recipe = recipe

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Ids, mask, log-probabilities and reward of one episode a prompt, in their order."""
        training = trainer.model.training
        size = trainer.num_generations if training else trainer.num_generations_eval
        groups = whole_groups([row.spec for row in trainer.environments], size)
        scored: list[list[ScoredEpisode]] = [[] for _ in groups]
        attempts = [0] * len(groups)
        flat = list(range(len(groups)))
        for _ in range(1 + (self.recipe.resample_rounds if training else 0)):
            if not _anywhere(trainer, bool(flat)):
                break
            started = {place: self._start(groups[place], trainer) for place in flat}
            _play(trainer, [episode for group in started.values() for episode in group])
            for place, episodes in started.items():
                scored[place] = self.env.finish_group(episodes)
                attempts[place] += 1
            flat = [place for place in flat if is_flat(scored[place])]
        every = [one for group in scored for one in group]
        trainer._log_metric("groups/flat", len(flat) / len(groups))
        trainer._log_metric("groups/attempts", sum(attempts) / len(groups))
        for name, value in _means(every).items():
            trainer._log_metric(name, value)
        return _for_trl(every)

    def _start(self, group: Sequence[EpisodeSpec], trainer: Any) -> list[TokenEpisode]:
        tokenizer = HubTokenizer(trainer._tokenizer)
        return [
            self.env.start_tokens(spec, tokenizer=tokenizer, candidate=candidate)
            for candidate, spec in enumerate(group)
        ]


def _means(scored: Sequence[ScoredEpisode]) -> dict[str, float]:
    """The share of each tier, and the means of the episodes' metrics."""
    count = len(scored)
    shares = {f"tier/{t}": sum(one.breakdown.tier == t for one in scored) / count for t in TIERS}
    each = [metrics(one) for one in scored]
    return shares | {f"episode/{name}": sum(m[name] for m in each) / count for name in each[0]}


def _for_trl(scored: Sequence[ScoredEpisode]) -> dict[str, Any]:
    episodes = [one.episode for one in scored]
    known = all(episode.response_logprobs for episode in episodes)
    return {
        "prompt_ids": [list(episode.prompt_ids) for episode in episodes],
        "completion_ids": [list(episode.response_ids) for episode in episodes],
        "logprobs": [list(episode.response_logprobs) for episode in episodes] if known else None,
        "env_mask": [list(episode.response_mask) for episode in episodes],
        "env_reward": [one.breakdown.reward for one in scored],
        "env_breakdown": [msgspec.json.encode(one.breakdown).decode() for one in scored],
        "env_ended_by": [str(episode.ended_by) for episode in episodes],
    }


def _play(trainer: Any, episodes: Sequence[TokenEpisode]) -> None:
    """Plays episodes to their end, all their next turns in one call of TRL's generation."""
    with ThreadPoolExecutor(SQL_THREADS) as pool:
        while True:
            asked = [(e, request) for e in episodes if (request := e.next_request()) is not None]
            if not _anywhere(trainer, bool(asked)):
                return
            ids, logprobs = _generate(trainer, [request for _, request in asked])
            turns = zip([episode for episode, _ in asked], ids, logprobs, strict=True)
            list(pool.map(lambda turn: turn[0].feed(turn[1], turn[2]), turns))


def _generate(
    trainer: Any, requests: Sequence[TokenRequest]
) -> tuple[list[list[int]], list[list[float | None] | None]]:
    """One completion a request, each cut to its own limit: the ids and their log-probabilities."""
    contexts = [list(request.context) for request in requests]
    limits = [request.max_new_tokens for request in requests]
    most = max(limits, default=1)
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
    places = range(len(requests))
    return (
        [ids[at][: limits[at]] for at in places],
        [None if logprobs is None else logprobs[at][: limits[at]] for at in places],
    )


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
