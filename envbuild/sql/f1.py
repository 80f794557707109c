"""F1 of a predicted result against its gold: over multisets of rows, with column-subset credit.

CONTRACT 9: where the numbers of columns differ, the narrower result's columns are mapped one to one
into the wider's as well as can be, and F1 is taken over those.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
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
        self.counts = Counter(rows)
        """How often each distinct row occurs."""

    def overlap(self, predicted: Rows) -> int:
        """Size of the multiset intersection with `predicted`."""
        return (
            len(predicted) if predicted == self.rows else _overlap(Counter(predicted), self.counts)
        )

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
    narrow, wide = map(columns_of, sorted((predicted, gold), key=lambda rows: len(rows[0])))
    cells = max(SEARCH_CELLS, 4 * (sum(map(len, narrow)) + sum(map(len, wide))))
    options, cells = _agreeing_columns(narrow, wide, cells)
    tops = [choices[0][0] if choices else 0 for choices in options]
    order = sorted(range(len(narrow)), key=lambda at: (tops[at], at))
    overlap = best_mapping(narrow, wide, options, order=order, cells=cells)
    return _f1(overlap, len(predicted), len(gold))


def _f1(overlap: int, predicted: int, gold: int) -> float:
    return 2 * overlap / (predicted + gold) if predicted + gold else 1.0


def columns_of(rows: Rows) -> list[Row]:
    """The columns of a result that has rows."""
    return list(zip(*rows, strict=True))


Options = list[list[tuple[int, int]]]
"""For each narrow column: (rows that can agree, wide column), the most first."""


def best_mapping(
    narrow: Sequence[Row],
    wide: Sequence[Row],
    options: Options,
    *,
    order: Sequence[int],
    cells: int,
    above: int = 0,
) -> int:
    """The largest overlap of rows over all one-to-one mappings of narrow columns into wide ones.

    `order`: in which the narrow columns are fixed. `cells`: how many the search may look at; the
    best mapping found by then counts. `above`: what is given back where nothing is better.

    Branch and bound: the overlap of a few mapped columns bounds that of any longer mapping, so a
    branch that is no better than the best whole mapping is cut. On a stack of our own, since a
    result may have 2,000 columns.
    """
    tops = [options[at][0][0] if options[at] else 0 for at in order]
    # the most that the columns from some depth on can agree
    bounds = [min(tops[depth:]) for depth in range(len(tops))] + [len(narrow[0])]
    best = above

    def branches(
        depth: int, used: frozenset[int], ours: list[int], theirs: list[int]
    ) -> Iterator[tuple[int, frozenset[int], list[int], list[int]]]:
        """Ways to map the next column, with the rows' longer prefixes as numbers."""
        nonlocal cells
        at = order[depth]
        tried: set[Row] = set()
        for bound, choice in options[at]:
            if bound <= best:
                return
            column = wide[choice]
            if choice in used or column in tried:  # an equal column would end the same way
                continue
            tried.add(column)
            cells -= len(ours) + len(theirs)
            numbers: dict[Hashable, int] = {}
            new_ours = _numbered(ours, narrow[at], numbers)
            new_theirs = _numbered(theirs, column, numbers)
            overlap = _overlap(Counter(new_ours), Counter(new_theirs))
            if min(overlap, bounds[depth + 1]) > best:
                yield overlap, used | {choice}, new_ours, new_theirs

    stack = [branches(0, frozenset(), [0] * len(narrow[0]), [0] * len(wide[0]))]
    while stack and best < bounds[0] and cells > 0:
        branch = next(stack[-1], None)
        if branch is None:
            stack.pop()
        elif len(stack) == len(order):
            best = max(best, branch[0])
        else:
            stack.append(branches(len(stack), *branch[1:]))
    return best


def _agreeing_columns(
    narrow: Sequence[Row], wide: Sequence[Row], budget: int
) -> tuple[Options, int]:
    """How far each narrow column agrees with each wide one, and the cells that are then left.

    Half of the budget may go into this; what is not looked at may agree in full.
    """
    left = budget - sum(map(len, narrow)) - sum(map(len, wide))
    places: defaultdict[Value, list[tuple[int, int]]] = defaultdict(list)
    for choice, column in enumerate(wide):
        for value, times in Counter(column).items():
            places[value].append((choice, times))
    options: Options = []
    for column in narrow:
        agreeing: defaultdict[int, int] = defaultdict(int)
        for value, times in Counter(column).items():
            found = places.get(value, ())
            left -= len(found)
            if left < budget // 2:
                options.append([(len(column), choice) for choice in range(len(wide))])
                break
            for choice, others in found:
                agreeing[choice] += min(times, others)
        else:
            pairs = [(overlap, choice) for choice, overlap in agreeing.items()]
            options.append(sorted(pairs, key=lambda pair: (-pair[0], pair[1])))
    return options, left


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
