"""What one episode earned, and why (CONTRACT 9)."""

from enum import StrEnum

import msgspec


class Tier(StrEnum):
    """How far an answer got."""

    EQUIVALENT = "equivalent"
    EXECUTABLE = "executable"
    PARSABLE = "parsable"
    INVALID = "invalid"
    UNSCORED = "unscored"
    """The gold cannot be scored, or the server failed the episode; the reward is null."""


class RewardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every constant of the reward; its digest is in the breakdown."""

    verdict: str = "bag@1"
    equivalent: float = 3.0
    executable: float = 1.0
    f1_weight: float = 0.9
    join_weight: float = 0.1
    consensus_weight: float = 0.1
    parsable: float = 0.5
    invalid: float = 0.0
    subset_weight: float = 0.9
    """Column-subset credit's factor."""
    variant_base: float = 2.1
    """Right on the visible database only: base + weight x share of variants matched."""
    variant_weight: float = 0.9


class RewardBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """One episode's reward and its parts; flat, so that it is a Parquet row."""

    episode_id: str = ""
    row_id: str = ""
    tier: Tier
    reward: float | None
    """None = unscored."""
    verdict: str
    """A `Verdict` value."""
    verdict_name: str
    """Rule and version, e.g. `bag@1`."""
    outcome: str = ""
    """An `Outcome` value of the predicted SQL; empty without a prediction."""
    f1: float = 0.0
    """The larger of the whole-row and the column-subset F1; of whole rows alone where `wide`."""
    wide: bool = False
    """The answer or its gold has more than `sql.verdicts.WIDE_CELLS` cells: rows were compared by
    digest, and no column-subset credit was sought."""
    join_share: float = 0.0
    """Counted for executable answers only; a right one is paid in full without it."""
    consensus: float = 0.0
    """1.0 for members of the largest class of equal results; 0.0 before the group is known."""
    result_digest: str = ""
    """Order-free digest of the predicted rows; what consensus compares."""
    variants_scored: int = 0
    variants_matched: int = 0
    constants_sha256: str = ""
