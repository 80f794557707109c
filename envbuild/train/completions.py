"""Rewards of bare completions, for a trainer that samples answers without tools.

The completion is read as a final turn: a call's SQL, a fence's, or the statement itself. It is
scored by itself, so no consensus bonus is paid. verl loads this file by its path
(`custom_reward_function`), so nothing here may register anything.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from envbuild.env.final import read_final
from envbuild.records.episode import EndedBy, Episode, RewardBreakdown
from envbuild.train.trainer_env import EpisodeSpec, TrainerEnv, shared_trainer_env

Completion = str | Sequence[Mapping[str, Any]]
"""Text, or chat messages whose assistant's last one is the answer."""


def completion_rewards(
    *, completions: Sequence[Completion], env_json: Sequence[str], **_: Any
) -> list[float | None]:
    """A TRL reward function over an export's columns; $ENVBUILD_MANIFEST names the manifest.

    None where a gold cannot be scored.
    """
    env = shared_trainer_env()
    pairs = zip(completions, env_json, strict=True)
    return [score_completion(env, completion, spec).reward for completion, spec in pairs]


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> dict[str, Any]:
    """verl's reward function: a completion's reward and its parts.

    The gold comes from the manifest that $ENVBUILD_MANIFEST names; `extra_info` must hold the
    export's `env_json`.
    """
    env = shared_trainer_env()
    return reward_record(score_completion(env, solution_str, extra_info["env_json"]))


def score_completion(env: TrainerEnv, completion: Completion, env_json: str) -> RewardBreakdown:
    """What one completion earns for the row that `env_json` names."""
    spec = EpisodeSpec.from_json(env_json)
    env.settings_of(spec)  # refuses the export of another manifest
    sql = read_final(completion_text(completion), chat=env.environment.chat)
    episode = Episode(
        episode_id=f"{spec.row_id}/0",
        row_id=spec.row_id,
        sql=sql,
        ended_by=EndedBy.FINAL_TURN if sql else EndedBy.NO_ANSWER,
    )
    return env.environment.score(episode)


def reward_record(breakdown: RewardBreakdown) -> dict[str, Any]:
    """A breakdown as trainers log it: the same keys and types for every episode, and no null.

    An unscored episode has `scored` False; its `score` is then a placeholder and no reward.
    """
    return {
        "score": breakdown.reward or 0.0,
        "scored": breakdown.reward is not None,
        "tier": str(breakdown.tier),
        "f1": breakdown.f1,
        "join_share": breakdown.join_share,
        "group_seen": False,
    }


def completion_text(completion: Completion) -> str:
    """The assistant's last message, or the text itself; a message's parts are joined."""
    if isinstance(completion, str):
        return completion
    messages = [m for m in completion if m.get("role", "assistant") == "assistant"]
    content = messages[-1].get("content") if messages else ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())
