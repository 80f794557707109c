"""Rewards of an episodes folder: each episode on its own, then its group's consensus."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import msgspec

from envbuild.environment import Environment
from envbuild.errors import CorpusFolderError
from envbuild.io.episodes import read_configuration
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.records.episode import Episode, EpisodeSettings, RewardBreakdown
from envbuild.reward.consensus import with_consensus
from envbuild.sql.connect import VERSIONS

REWARDS_FILE = "rewards.parquet"
FORMAT = "envbuild.rewards/1"


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
    schema = arrow_schema(RewardBreakdown)
    metadata = {"format": FORMAT, **VERSIONS}
    return write_records(folder / REWARDS_FILE, breakdowns, schema, metadata=metadata)


def recorded_settings(folder: Path) -> EpisodeSettings | None:
    """What the folder's episodes were played under; None where their rollout does not say.

    Raises CorpusFolderError where it says what cannot be.
    """
    said = (read_configuration(folder) or {}).get("settings")
    if said is None:
        return None
    try:
        return msgspec.convert(said, EpisodeSettings)
    except msgspec.ValidationError as e:
        raise CorpusFolderError(f"the settings that {folder} records are none: {e}") from None
