"""Equality of results up to the order of their columns: the heart of Spider's test-suite rule.

Exact. A gold column may only become a predicted column that holds the same values as often; the
search then fixes column after column, and keeps a choice only while the rows seen so far agree as
multisets. The released script tries every permutation that a sample of twenty random rows allows.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from envbuild.records.execution import Row, Rows

SEARCH_CELLS = 50_000_000
"""Cells that one search may look at; only results made for it (a dozen columns that permute each
other, without agreeing in the end) need more than a few passes. Spent: called different."""


def equal_permuted(predicted: Rows, gold: Rows, *, ordered: bool) -> bool:
    """Some order of the predicted columns gives the gold: as lists if `ordered`, else multisets."""
    if len(predicted) != len(gold):
        return False
    if not gold or predicted == gold:
        return True
    if len(predicted[0]) != len(gold[0]):
        return False
    ours, theirs = _columns(predicted), _columns(gold)
    if ordered:  # a column is then its list of values, and any pairing of equal lists will do
        return Counter(ours) == Counter(theirs)
    if Counter(_row_bags(predicted)) != Counter(_row_bags(gold)):
        return False
    return _Search(ours, theirs).succeeds()


def _columns(rows: Rows) -> list[Row]:
    return list(zip(*rows, strict=True))


def _row_bags(rows: Rows) -> list[Hashable]:
    """Each row without the order of its cells."""
    return [frozenset(Counter(row).items()) for row in rows]


class _Search:
    """Assigns predicted columns to gold columns, the most constrained first."""

    def __init__(self, ours: Sequence[Row], theirs: Sequence[Row]) -> None:
        self.ours = ours
        self.theirs = theirs
        self.cells_left = SEARCH_CELLS
        bags = [frozenset(Counter(column).items()) for column in ours]
        self.choices = [
            [i for i, bag in enumerate(bags) if bag == wanted]
            for wanted in (frozenset(Counter(column).items()) for column in theirs)
        ]
        self.order = sorted(range(len(theirs)), key=lambda at: (len(self.choices[at]), at))

    def succeeds(self) -> bool:
        """Depth first, on a stack of our own: a result may have 2,000 columns."""
        if not all(self.choices):
            return False
        start = [0] * len(self.theirs[0])
        stack = [self._extensions(0, frozenset(), start, start)]
        while stack:
            found = next(stack[-1], None)
            if found is None:
                stack.pop()
            elif len(stack) == len(self.order):
                return True
            else:
                stack.append(self._extensions(len(stack), *found))
        return False

    def _extensions(
        self, depth: int, used: frozenset[int], ours: list[int], theirs: list[int]
    ) -> Iterator[tuple[frozenset[int], list[int], list[int]]]:
        """Ways to assign column `depth`, with the rows' longer prefixes as numbers."""
        at = self.order[depth]
        tried: set[Row] = set()
        for choice in self.choices[at]:
            column = self.ours[choice]
            if choice in used or column in tried:  # an equal column would end the same way
                continue
            tried.add(column)
            self.cells_left -= 2 * len(ours)
            if self.cells_left < 0:
                return
            numbers: dict[Hashable, int] = {}
            new_theirs = _numbered(theirs, self.theirs[at], numbers)
            new_ours = _numbered(ours, column, numbers)
            if Counter(new_ours) == Counter(new_theirs):
                yield used | {choice}, new_ours, new_theirs


def _numbered(prefixes: list[int], column: Row, numbers: dict[Hashable, int]) -> list[int]:
    """A number for each row's longer prefix; equal prefixes share one, on both sides."""
    return [
        numbers.setdefault((prefix, cell), len(numbers))
        for prefix, cell in zip(prefixes, column, strict=True)
    ]
