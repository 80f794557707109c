"""Row equality where numbers may differ a little; used only when a tolerance is asked for.

Closeness is not transitive, so multisets are compared by a one-to-one matching, not by sorting.
Rows are first parted where no two of them can be close: by every cell that is no number, and by
gaps in each column's numbers. What is left to match is then a few rows at a time.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envbuild.records.execution import Row, Rows, Value

RELATIVE = 1e-9
"""Relative difference that any tolerance allows: another engine version's last digits."""
PAIRS = 4_000_000
"""Pairs of rows that one matching may look at: some 0.3 s a column. A group of rows that has more,
and whose sorted rows are not close one by one, is called different."""


def equal_list_within(predicted: Rows, gold: Rows, tolerance: float) -> bool:
    """Close row by row, in order."""
    return len(predicted) == len(gold) and all(
        close_rows(a, b, tolerance) for a, b in zip(predicted, gold, strict=True)
    )


def equal_set_within(predicted: Rows, gold: Rows, tolerance: float) -> bool:
    """Every row of either side has a close one on the other."""
    ours, theirs = _by_kind(set(predicted)), _by_kind(set(gold))
    return ours.keys() == theirs.keys() and all(
        _Parted(ours[kind], theirs[kind], tolerance).cover() for kind in ours
    )


def equal_bag_within(predicted: Rows, gold: Rows, tolerance: float) -> bool:
    """The rows can be paired off one to one, each pair close."""
    if len(predicted) != len(gold):
        return False
    ours, theirs = _by_kind(predicted), _by_kind(gold)
    return ours.keys() == theirs.keys() and all(
        _Parted(ours[kind], theirs[kind], tolerance).pair_off() for kind in ours
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


def _by_kind(rows: Iterable[Row]) -> dict[tuple[object, ...], list[Row]]:
    """The numbers of each row, by what must agree exactly: every cell that is no number."""
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        kind = tuple("#" if _is_number(c) else (c,) for c in row)
        groups[kind].append(tuple(filter(_is_number, row)))
    return groups


def _is_number(cell: Value) -> bool:
    """A number that SQLite can hold; a stored result may have longer ones, equal as they are."""
    return isinstance(cell, float) or (isinstance(cell, int) and -(2**63) <= cell < 2**63)


_Places = NDArray[np.int64]
_Flags = NDArray[np.bool_]


class _Numbers(NamedTuple):
    """Rows of numbers, columns side by side."""

    floats: NDArray[np.float64]
    integers: NDArray[np.int64]
    """Exact where the number is an integer, else 0."""
    is_float: _Flags

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "_Numbers":
        shape = len(rows), len(rows[0])
        is_float = np.array([[isinstance(c, float) for c in row] for row in rows], bool)
        whole: Any = [[0 if isinstance(c, float) else c for c in row] for row in rows]
        floats = np.array(rows, np.float64).reshape(shape)
        return cls(floats, np.array(whole, np.int64).reshape(shape), is_float.reshape(shape))

    def at(self, places: _Places) -> "_Numbers":
        return _Numbers(self.floats[places], self.integers[places], self.is_float[places])

    def close_to(self, other: "_Numbers", tolerance: float) -> _Flags:
        """`_close` of every cell, row by row: true where all of a row's are."""
        a, b = self.floats, other.floats
        one_is_float = self.is_float | other.is_float
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(a - b) <= _slack(a, b, tolerance)
        near &= np.isfinite(a) & np.isfinite(b)
        same = (self.integers == other.integers) & ~one_is_float
        close: _Flags = np.all(same | (one_is_float & (near | (a == b))), axis=1)
        return close


def _slack(a: Any, b: Any, tolerance: float) -> Any:
    return np.maximum(RELATIVE * np.maximum(np.abs(a), np.abs(b)), tolerance)


class _Parted:
    """Both sides' rows of one kind, each with the number of its group."""

    def __init__(self, ours: list[Row], theirs: list[Row], tolerance: float) -> None:
        both = _Numbers.of(ours + theirs)
        labels = np.zeros(len(ours) + len(theirs), np.int64)
        for column in both.floats.T:
            parts = _parts(column, tolerance)
            labels = np.unique(labels * (parts.max() + 1) + parts, return_inverse=True)[1]
        cut, end = np.arange(len(ours)), np.arange(len(ours), len(labels))
        self.ours, self.theirs = both.at(cut), both.at(end)
        self.our_labels, self.their_labels = labels[cut], labels[end]
        self.groups = int(labels.max()) + 1
        self.tolerance = tolerance

    def pair_off(self) -> bool:
        """A perfect matching exists: sorted pairs first, a matching where they do not do."""
        ours, theirs = self.our_labels, self.their_labels
        if not np.array_equal(np.bincount(ours), np.bincount(theirs)):
            return False
        mine = _sorted_places(self.ours, self.our_labels)
        other = _sorted_places(self.theirs, self.their_labels)
        close = self.ours.at(mine).close_to(self.theirs.at(other), self.tolerance)
        return all(
            self._matches(mine[first], other[second])
            for first, second in self._groups_of(
                np.unique(self.our_labels[mine][~close]), mine, other
            )
        )

    def cover(self) -> bool:
        """Every row has a close one on the other side."""
        if not np.array_equal(np.unique(self.our_labels), np.unique(self.their_labels)):
            return False
        mine = _sorted_places(self.ours, self.our_labels)
        other = _sorted_places(self.theirs, self.their_labels)
        starts = np.searchsorted(self.their_labels[other], np.arange(self.groups))
        heads = other[starts][self.our_labels]  # any row of the group on the other side
        alone = np.bincount(self.their_labels, minlength=self.groups)[self.our_labels] == 1
        settled = self.ours.close_to(self.theirs.at(heads), self.tolerance) & alone
        return all(
            self._covers(mine[first], other[second])
            for first, second in self._groups_of(np.unique(self.our_labels[~settled]), mine, other)
        )

    def _groups_of(
        self, labels: _Places, mine: _Places, other: _Places
    ) -> Iterable[tuple[slice, slice]]:
        """Where these groups lie in the sorted places of both sides."""
        sides = [self.our_labels[mine], self.their_labels[other]]
        edges = [
            (np.searchsorted(one, labels, "left"), np.searchsorted(one, labels, "right"))
            for one in sides
        ]
        for (a, b), (c, d) in zip(*(zip(*pair, strict=True) for pair in edges), strict=True):
            yield slice(a, b), slice(c, d)

    def _matches(self, mine: _Places, other: _Places) -> bool:
        # Here: SciPy takes a while to import, and next to no comparison comes this far.
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_bipartite_matching

        pairs = self._close_pairs(mine, other)
        if pairs is None:
            return False
        ones = np.ones(len(pairs[0]), bool)
        graph = csr_array((ones, pairs), shape=(len(mine), len(other)))
        return bool((maximum_bipartite_matching(graph, perm_type="column") >= 0).all())

    def _covers(self, mine: _Places, other: _Places) -> bool:
        pairs = self._close_pairs(mine, other)
        if pairs is None:
            return False
        found = zip(pairs, (mine, other), strict=True)
        return all(len(np.unique(places)) == len(side) for places, side in found)

    def _close_pairs(self, mine: _Places, other: _Places) -> tuple[_Places, _Places] | None:
        """Positions in both lists of the rows close to each other; None where they are too many."""
        ours, theirs = self.ours.at(mine), self.theirs.at(other)
        with np.errstate(invalid="ignore"):  # infinities are a group of their own
            widest = int(np.argmax(np.nan_to_num(np.ptp(theirs.floats, axis=0))))
        keys, wanted = theirs.floats[:, widest], ours.floats[:, widest]
        order = np.argsort(keys, kind="stable")
        # Twice: the relative slack counts the larger side.
        slack = 2 * _slack(wanted, wanted, self.tolerance)
        with np.errstate(invalid="ignore", over="ignore"):
            first = np.searchsorted(keys[order], wanted - slack, "left")
            last = np.searchsorted(keys[order], wanted + slack, "right")
        infinite = ~np.isfinite(wanted)
        first[infinite], last[infinite] = 0, len(other)
        sizes = last - first
        if sizes.sum() > PAIRS:
            return None
        one = np.repeat(np.arange(len(mine)), sizes)
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        two = order[np.repeat(first, sizes) + within]
        close = ours.at(one).close_to(theirs.at(two), self.tolerance)
        return one[close], two[close]


def _parts(column: NDArray[np.float64], tolerance: float) -> _Places:
    """For each number the part it lies in: numbers of different parts are not close."""
    order = np.argsort(column, kind="stable")
    ranked = column[order]
    before, after = ranked[:-1], ranked[1:]
    with np.errstate(invalid="ignore", over="ignore"):
        # A little more than the slack, so that no rounding parts what is close.
        apart = after - before > _slack(before, after, tolerance) * (1 + 1e-6)
    apart |= np.isinf(before) != np.isinf(after)
    parts = np.empty(len(column), np.int64)
    parts[order] = np.concatenate(([0], np.cumsum(apart)))
    return parts


def _sorted_places(rows: _Numbers, labels: _Places) -> _Places:
    """The rows' places by group, and within it by their numbers."""
    return np.lexsort((*rows.floats.T[::-1], labels))
