"""Groups: the episodes of one row, whole or not at all."""

from collections.abc import Sequence

import msgspec

from envbuild.adapters.layouts.rows import Ticket
from envbuild.errors import ConfigurationError
from envbuild.records.episode import Episode, RewardBreakdown
from envbuild.reward.group import has_zero_variance


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """One finished episode and what it earned."""

    episode: Episode
    breakdown: RewardBreakdown
    group_seen: bool
    """Its whole group was there, so consensus was decided; False: nobody got the bonus."""
    attempt: int = 0
    """How often the group had been rolled out before."""


def whole_groups(tickets: Sequence[Ticket], size: int) -> list[list[Ticket]]:
    """The batch as groups of `size` neighbours.

    Raises ConfigurationError where a group is split or mixed: consensus and re-rolling would be
    wrong without a word.
    """
    groups = [list(tickets[at : at + size]) for at in range(0, len(tickets), size)]
    for group in groups:
        if len(group) != size or any(ticket != group[0] for ticket in group):
            raise ConfigurationError(
                f"the batch does not hold whole groups of {size}: set the batch sizes so that "
                "every process generates whole groups"
            )
    return groups


def is_flat(group: Sequence[Played]) -> bool:
    """True where a group teaches nothing but might if it were rolled out anew.

    A group whose gold cannot be scored is not flat: another attempt would be unscored too.
    """
    rewards = [one.breakdown.reward for one in group]
    return any(reward is not None for reward in rewards) and has_zero_variance(rewards)
