"""The consensus bonus: episodes of one group whose results agree with most of the others."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from envbuild.records.episode import RewardBreakdown, RewardSettings
from envbuild.reward.score import DEFAULT_SETTINGS
from envbuild.reward.tiers import reward_of


def with_consensus(
    group: Sequence[RewardBreakdown], settings: RewardSettings = DEFAULT_SETTINGS
) -> list[RewardBreakdown]:
    """The group's breakdowns, in order, with consensus and reward filled in.

    A class is the episodes with equal results, right ones included; episodes without a result are
    in none. The members of the largest class get 1.0 where it has at least two and no other class
    is as large: a tie gives nobody the bonus. `group`: the episodes of one row, and only those.
    """
    largest = largest_class([breakdown.result_digest for breakdown in group])
    return [
        _paid(breakdown, float(largest != "" and breakdown.result_digest == largest), settings)
        for breakdown in group
    ]


def largest_class(digests: Sequence[str]) -> str:
    """The digest that occurs most often, at least twice and more often than any other; else ''."""
    counts = Counter(digest for digest in digests if digest).most_common(2)
    if not counts or counts[0][1] < 2 or (len(counts) == 2 and counts[1][1] == counts[0][1]):
        return ""
    return counts[0][0]


def _paid(
    breakdown: RewardBreakdown, consensus: float, settings: RewardSettings
) -> RewardBreakdown:
    counted = replace(breakdown, consensus=consensus)
    return replace(counted, reward=reward_of(counted, settings))
