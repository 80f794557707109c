"""What a trainer does with the rewards of one group (the episodes of one row): reference maths.

Plain Python, without a trainer; the adapters use it or are tested against it.
"""

import math
from collections.abc import Sequence


def group_advantages(
    rewards: Sequence[float | None], *, clip: float = 2.0, negative_weight: float = 0.7
) -> list[float]:
    """Each reward less the group's mean, clipped to ±`clip`, negative ones times `negative_weight`.

    Not divided by a standard deviation. An unscored episode (None or NaN) takes no part in the
    mean and gets 0.0: it says nothing about the policy.
    """
    scored = _scored(rewards)
    mean = math.fsum(scored) / len(scored) if scored else 0.0
    return [
        0.0 if _unscored(reward) else _shaped(reward - mean, clip, negative_weight)  # type: ignore[operator]  # None is unscored
        for reward in rewards
    ]


def has_zero_variance(rewards: Sequence[float | None]) -> bool:
    """True where the scored rewards are all alike, or fewer than two: nothing to learn from."""
    return len(set(_scored(rewards))) < 2


def _shaped(advantage: float, clip: float, negative_weight: float) -> float:
    clipped = max(-clip, min(clip, advantage))
    return clipped * negative_weight if clipped < 0 else clipped


def _scored(rewards: Sequence[float | None]) -> list[float]:
    return [reward for reward in rewards if reward is not None and not math.isnan(reward)]


def _unscored(reward: float | None) -> bool:
    return reward is None or math.isnan(reward)
