"""Rewards of an episodes folder: each episode on its own, then its group's consensus."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from envbuild.environment import Environment
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.records.episode import Episode
from envbuild.records.reward import RewardBreakdown
from envbuild.reward.consensus import with_consensus

REWARDS_FILE = "rewards.parquet"


def score_groups(env: Environment, episodes: Iterable[Episode]) -> Iterator[RewardBreakdown]:
    """One breakdown an episode, sorted by episode_id; a group is the episodes of one row.

    Raises UnknownNameError for an episode whose row the manifest does not hold.
    """
    ordered = sorted(episodes, key=lambda episode: (episode.row_id, episode.candidate))
    for _, group in groupby(ordered, key=lambda episode: episode.row_id):
        alone = [env.score(episode) for episode in group]
        yield from with_consensus(alone, env.reward_settings)


def write_rewards(folder: Path, breakdowns: Iterable[RewardBreakdown]) -> int:
    """Writes rewards.parquet into `folder`; returns how many rows."""
    return write_records(folder / REWARDS_FILE, breakdowns, arrow_schema(RewardBreakdown))
