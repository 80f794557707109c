"""F1 of a predicted result against its gold: over multisets of rows, with column-subset credit.

CONTRACT 9: where the numbers of columns differ, the narrower result's columns are mapped one to one
into the wider's as well as can be, and F1 is taken over those.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from envbuild.records.execution import Row, Rows, Value

T = TypeVar("T", bound=Hashable)

SEARCH_CELLS = 2_000_000
"""Cells that one search for the best column mapping may look at, or four times those of both
results where that is more: about half a second. Results that are both long and wide can need more;
the best mapping found by then counts, so the credit may be too low, and is the same everywhere."""


class GoldRows:
    """A gold result ready for many comparisons."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        counts = Counter(rows)
        self.times = list(counts.values())
        """How often each distinct row occurs."""
        self.place = {row: place for place, row in enumerate(counts)}
        """Distinct row -> its position in `times`; a predicted row is hashed once, here."""

    def overlap(self, predicted: Rows) -> int:
        """Size of the multiset intersection with `predicted`."""
        if predicted == self.rows:
            return len(predicted)
        places = map(self.place.get, predicted)
        if len(self.times) == len(self.rows):  # no gold row repeats, so each counts once
            distinct = set(places)
            return len(distinct) - (None in distinct)
        found = Counter(place for place in places if place is not None)
        times = self.times
        return sum(min(count, times[place]) for place, count in found.items())

    def equals(self, predicted: Rows) -> bool:
        """Equal as multisets."""
        if len(predicted) != len(self.rows):
            return False
        return predicted == self.rows or self.overlap(predicted) == len(predicted)

    def f1(self, predicted: Rows) -> float:
        """F1 over the multisets of rows, 0.0 to 1.0; both empty 1, one empty 0."""
        return _f1(self.overlap(predicted), len(predicted), len(self.rows))


def subset_f1(predicted: Rows, gold: Rows) -> float:
    """F1 under the best one-to-one mapping of the narrower result's columns into the wider's.

    Not yet weighted. Exact within `SEARCH_CELLS`. Both empty 1, one empty 0.
    """
    if not predicted or not gold:
        return _f1(0, len(predicted), len(gold))
    narrow, wide = sorted((predicted, gold), key=lambda rows: len(rows[0]))
    overlap = _MappingSearch(_columns(narrow), _columns(wide)).best()
    return _f1(overlap, len(predicted), len(gold))


def _f1(overlap: int, predicted: int, gold: int) -> float:
    return 2 * overlap / (predicted + gold) if predicted + gold else 1.0


def _columns(rows: Rows) -> list[Row]:
    return list(zip(*rows, strict=True))


class _MappingSearch:
    """Branch and bound over the mappings; columns that agree with few others are fixed first.

    The overlap of a few mapped columns bounds that of any longer mapping, so a branch that is no
    better than the best whole mapping is cut.
    """

    def __init__(self, narrow: Sequence[Row], wide: Sequence[Row]) -> None:
        self.narrow, self.wide = narrow, wide
        cells = sum(map(len, narrow)) + sum(map(len, wide))
        self.budget = max(SEARCH_CELLS, 4 * cells)
        self.cells_left = self.budget - cells
        self.options = self._pairs()
        """For each narrow column: (overlap, wide column), the largest first."""
        self.order = sorted(range(len(narrow)), key=lambda at: (self._top(at), at))
        bounds = [self._top(at) for at in self.order]
        self.bounds = [min(bounds[depth:]) for depth in range(len(bounds))] + [len(narrow[0])]
        """The most that the columns from some depth on can agree."""
        self.found = 0

    def best(self) -> int:
        """The largest overlap of rows over all mappings."""
        stack = [self._branches(0, frozenset(), [0] * len(self.narrow[0]), [0] * len(self.wide[0]))]
        while stack and self.found < self.bounds[0] and self.cells_left > 0:
            branch = next(stack[-1], None)
            if branch is None:
                stack.pop()
                continue
            overlap, used, ours, theirs = branch
            if len(stack) == len(self.order):
                self.found = max(self.found, overlap)
            else:
                stack.append(self._branches(len(stack), used, ours, theirs))
        return self.found

    def _branches(
        self, depth: int, used: frozenset[int], ours: list[int], theirs: list[int]
    ) -> Iterator[tuple[int, frozenset[int], list[int], list[int]]]:
        at = self.order[depth]
        tried: set[Row] = set()
        for bound, choice in self.options[at]:
            if bound <= self.found:
                return
            column = self.wide[choice]
            if choice in used or column in tried:
                continue
            tried.add(column)
            self.cells_left -= len(ours) + len(theirs)
            numbers: dict[Hashable, int] = {}
            new_ours = _numbered(ours, self.narrow[at], numbers)
            new_theirs = _numbered(theirs, column, numbers)
            overlap = _overlap(Counter(new_ours), Counter(new_theirs))
            if min(overlap, self.bounds[depth + 1]) > self.found:
                yield overlap, used | {choice}, new_ours, new_theirs

    def _pairs(self) -> list[list[tuple[int, int]]]:
        """How far each narrow column agrees with each wide one, while half the budget lasts."""
        places: defaultdict[Value, list[tuple[int, int]]] = defaultdict(list)
        for choice, column in enumerate(self.wide):
            for value, times in Counter(column).items():
                places[value].append((choice, times))
        return [self._agreeing(column, places) for column in self.narrow]

    def _agreeing(
        self, column: Row, places: Mapping[Value, list[tuple[int, int]]]
    ) -> list[tuple[int, int]]:
        agreeing: defaultdict[int, int] = defaultdict(int)
        for value, times in Counter(column).items():
            found = places.get(value, ())
            self.cells_left -= len(found)
            if self.cells_left < self.budget // 2:  # unknown: they may agree in full, in order
                return [(len(column), choice) for choice in range(len(self.wide))]
            for choice, others in found:
                agreeing[choice] += min(times, others)
        pairs = [(overlap, choice) for choice, overlap in agreeing.items()]
        return sorted(pairs, key=lambda pair: (-pair[0], pair[1]))

    def _top(self, at: int) -> int:
        return self.options[at][0][0] if self.options[at] else 0


def _overlap(a: Counter[T], b: Counter[T]) -> int:
    if len(a) > len(b):
        a, b = b, a
    return sum(min(times, b[key]) for key, times in a.items() if key in b)


def _numbered(prefixes: list[int], column: Row, numbers: dict[Hashable, int]) -> list[int]:
    """A number for each row's longer prefix; equal prefixes share one, on both sides."""
    return [
        numbers.setdefault((prefix, cell), len(numbers))
        for prefix, cell in zip(prefixes, column, strict=True)
    ]
