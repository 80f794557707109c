"""The mixture and the submit gate at a step, exact: shares are fractions, never rounded floats."""

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from envbuild.records.manifest import Schedule

EVERYTHING = "all"
"""The one bucket of a schedule that has none."""


def mixture_at(schedule: Schedule, step: int) -> dict[str, Fraction]:
    """Each bucket's share of the questions of `step` (0-based); a step past the end holds."""
    if not schedule.buckets:
        return {EVERYTHING: Fraction(1)}
    left = step
    for phase in schedule.phases[:-1]:
        if left < phase.steps:
            break
        left -= phase.steps
    else:
        phase = schedule.phases[-1]
    passed = min(Fraction(left, phase.steps), Fraction(1)) if phase.steps else Fraction(1)
    start = [exact(share) for share in phase.start]
    end = [exact(share) for share in phase.end or phase.start]
    shares = [a + (b - a) * passed for a, b in zip(start, end, strict=True)]
    return dict(zip(schedule.buckets, shares, strict=True))


def gate_at(schedule: Schedule, step: int) -> float:
    """The submit gate's probability: 1 at step 0, linearly to 0 at `gate_steps`."""
    if schedule.gate_steps <= 0:
        return 0.0
    return float(max(Fraction(0), 1 - Fraction(step, schedule.gate_steps)))


def iter_counts(schedule: Schedule) -> Iterator[dict[str, int]]:
    """Questions a bucket at step 0, 1, … without end; each step's sum to `schedule.questions`.

    Largest remainders of the cumulative shares: a step's questions go one by one to the bucket that
    is owed most of all that the shares have promised so far (a tie: to the earlier). Rounded step
    by step, 18 questions by 0.15, 0.20, 0.65 would be 3, 3 and 12 for as long as the shares hold.
    """
    owed = dict.fromkeys(schedule.buckets or (EVERYTHING,), Fraction(0))
    for step in itertools.count():
        for bucket, share in mixture_at(schedule, step).items():
            owed[bucket] += share * schedule.questions
        counts = dict.fromkeys(owed, 0)
        for _ in range(schedule.questions):
            bucket = max(owed, key=owed.__getitem__)
            owed[bucket] -= 1
            counts[bucket] += 1
        yield counts


def apportion(total: int, shares: Sequence[Fraction]) -> list[int]:
    """`total` split by shares that sum to 1, by largest remainders; a tie goes to the earlier."""
    quotas = [share * total for share in shares]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(shares)), key=lambda i: (counts[i] - quotas[i], i))
    for position in by_remainder[: total - sum(counts)]:
        counts[position] += 1
    return counts


def largest_total(available: Sequence[int], shares: Sequence[Fraction]) -> int:
    """The most that `apportion` divides without asking for more than a place has.

    All there is, where a place that has a share has nothing.
    """
    totals = [has / share for has, share in zip(available, shares, strict=True) if share]
    if not all(totals):
        return sum(available)
    total = min(sum(available), math.ceil(min(totals)))
    while any(count > has for count, has in zip(apportion(total, shares), available, strict=True)):
        total -= 1
    return total


def exact(share: float) -> Fraction:
    """The fraction a person meant by writing `share`: 0.3 is 3/10."""
    return Fraction(str(share))
