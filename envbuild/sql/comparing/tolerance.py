"""Row equality where numbers may differ a little; used only when a tolerance is asked for.

Closeness is not transitive, so multisets are compared by a one-to-one matching, not by sorting.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence

from envbuild.records.execution import Row, Rows, Value

RELATIVE = 1e-9
"""Relative difference that any tolerance allows: another engine version's last digits."""


def equal_list_within(predicted: Rows, gold: Rows, tolerance: float) -> bool:
    """Close row by row, in order."""
    return len(predicted) == len(gold) and all(
        close_rows(a, b, tolerance) for a, b in zip(predicted, gold, strict=True)
    )


def equal_set_within(predicted: Rows, gold: Rows, tolerance: float) -> bool:
    """Every row of either side has a close one on the other."""
    ours, theirs = _by_kind(set(predicted)), _by_kind(set(gold))
    return ours.keys() == theirs.keys() and all(
        _covered(ours[kind], theirs[kind], tolerance)
        and _covered(theirs[kind], ours[kind], tolerance)
        for kind in ours
    )


def equal_bag_within(predicted: Rows, gold: Rows, tolerance: float) -> bool:
    """The rows can be paired off one to one, each pair close."""
    ours, theirs = _by_kind(predicted), _by_kind(gold)
    return ours.keys() == theirs.keys() and all(
        _matched(ours[kind], theirs[kind], tolerance) for kind in ours
    )


def close_rows(a: Row, b: Row, tolerance: float) -> bool:
    """Cell by cell: equal, or numbers of which one is a float and that lie close together."""
    return len(a) == len(b) and all(_close(x, y, tolerance) for x, y in zip(a, b, strict=True))


def _close(a: Value, b: Value, tolerance: float) -> bool:
    if a == b:
        return True
    if not (isinstance(a, float) and isinstance(b, int | float)) and not (
        isinstance(b, float) and isinstance(a, int)
    ):
        return False
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=tolerance)


def _by_kind(rows: Sequence[Row] | set[Row]) -> dict[tuple[object, ...], list[Row]]:
    """Rows by what must agree exactly: every cell that is no number. Each group is sorted."""
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple("#" if isinstance(c, int | float) else (c,) for c in row)].append(row)
    for group in groups.values():
        group.sort(key=_numbers)
    return groups


def _numbers(row: Row) -> tuple[int | float, ...]:
    return tuple(cell for cell in row if isinstance(cell, int | float))


def _covered(rows: list[Row], others: list[Row], tolerance: float) -> bool:
    return all(_candidates(row, others, tolerance) for row in rows)


def _matched(ours: list[Row], theirs: list[Row], tolerance: float) -> bool:
    """A perfect matching exists: sorted pairs first, augmenting paths where they do not do."""
    if len(ours) != len(theirs):
        return False
    if equal_list_within(tuple(ours), tuple(theirs), tolerance):
        return True
    candidates = [_candidates(row, theirs, tolerance) for row in ours]
    partner = [-1] * len(theirs)
    return all(_augment(start, candidates, partner) for start in range(len(ours)))


def _augment(start: int, candidates: list[list[int]], partner: list[int]) -> bool:
    """Gives `start` a partner, moving earlier ones along a breadth-first alternating path."""
    came_from: dict[int, int] = {}
    queue = [start]
    for ours in queue:
        for their in candidates[ours]:
            if their in came_from:
                continue
            came_from[their] = ours
            if partner[their] < 0:
                while their >= 0:
                    mover = came_from[their]
                    taken = next((t for t, p in enumerate(partner) if p == mover), -1)
                    partner[their] = mover
                    their = taken if mover != start else -1
                return True
            queue.append(partner[their])
    return False


def _candidates(row: Row, others: list[Row], tolerance: float) -> list[int]:
    """Positions in `others` (sorted by their numbers) of the rows close to `row`."""
    numbers = _numbers(row)
    start, end = 0, len(others)
    if numbers and math.isfinite(numbers[0]):
        first = numbers[0]
        slack = 2 * max(tolerance, RELATIVE * abs(first))  # twice: rel_tol counts the larger side
        start = bisect_left(others, first - slack, key=_first_number)
        end = bisect_right(others, first + slack, key=_first_number)
    return [i for i in range(start, end) if close_rows(row, others[i], tolerance)]


def _first_number(row: Row) -> int | float:
    return _numbers(row)[0]
