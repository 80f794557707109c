"""Rewards of bare completions, for a trainer that samples answers without tools.

The completion is read as a final turn: a call's SQL, a fence's, or the statement itself. It is
scored by itself, so no consensus bonus is paid.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from envbuild.records.episode import EndedBy, Episode, RewardBreakdown
from envbuild.train.layouts import EpisodeSpec
from envbuild.train.trainer_env import TrainerEnv, shared_trainer_env

Completion = str | Sequence[Mapping[str, Any]]
"""Text, or chat messages whose assistant's last one is the answer."""


def completion_rewards(
    *, completions: Sequence[Completion], env_json: Sequence[str], **_: Any
) -> list[float | None]:
    """A TRL reward function over an export's columns; $ENVBUILD_MANIFEST names the manifest.

    None where a gold cannot be scored.
    """
    rollouts = shared_trainer_env()
    pairs = zip(completions, env_json, strict=True)
    return [score_completion(rollouts, said, ticket).reward for said, ticket in pairs]


def score_completion(
    rollouts: TrainerEnv, completion: Completion, env_json: str
) -> RewardBreakdown:
    """What one completion earns for the row that `env_json` names."""
    ticket = msgspec.json.decode(env_json, type=EpisodeSpec)
    environment = rollouts.environment_of(ticket)
    sql = environment.read_answer(completion_text(completion))
    episode = Episode(
        episode_id=f"{ticket.row_id}/0",
        row_id=ticket.row_id,
        sql=sql,
        ended_by=EndedBy.FINAL_TURN if sql else EndedBy.NO_ANSWER,
    )
    return environment.score(episode)


def reward_record(breakdown: RewardBreakdown) -> dict[str, Any]:
    """A breakdown as trainers log it: the same keys and types for every episode, and no null.

    An unscored episode has `scored` False; its `score` is then a placeholder and no reward.
    """
    return {
        "score": 0.0 if breakdown.reward is None else breakdown.reward,
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
    said = [m for m in completion if m.get("role", "assistant") == "assistant"]
    content = said[-1].get("content") if said else ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())
