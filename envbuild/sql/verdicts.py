"""Named, versioned comparisons of a predicted result with its gold (CONTRACT 8)."""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from envbuild.errors import UnknownNameError
from envbuild.records.execution import (
    Outcome,
    QueryResult,
    Row,
    Rows,
    UndecodableText,
    Value,
    Verdict,
)
from envbuild.sql.tokens import Kind, iter_code

# Result rows as bytes and as digests: typed, so that text is never taken for a blob.


_ENCODINGS = {"UTF-8": 1, "UTF-16-LE": 2, "UTF-16-BE": 3}
"""The MessagePack extension types that hold undecodable text, by its encoding."""
_CODECS = {code: encoding for encoding, code in _ENCODINGS.items()}


def _as_extension(cell: object) -> msgspec.msgpack.Ext:
    if isinstance(cell, UndecodableText):
        return msgspec.msgpack.Ext(_ENCODINGS[cell.encoding], cell.raw)
    raise TypeError(f"no cell of a result: {type(cell).__name__}")


def _from_extension(code: int, data: memoryview) -> UndecodableText:
    return UndecodableText(bytes(data), _CODECS[code])


_encode = msgspec.msgpack.Encoder(enc_hook=_as_extension).encode
# msgspec takes no union of str and bytes; a MessagePack cell already says which of them it is
_ROWS = msgspec.msgpack.Decoder(type=tuple[tuple[Any, ...], ...], ext_hook=_from_extension)


def encode_rows(rows: Iterable[Row]) -> bytes:
    """The rows as MessagePack; 1, 1.0, '1' and x'31' stay four values.

    Text that is not valid is an extension type: 1, 2 and 3 for bytes in UTF-8, UTF-16LE, UTF-16BE.
    """
    return _encode(tuple(rows))


def decode_rows(encoded: bytes) -> Rows:
    """The rows that `encode_rows` was given."""
    return _ROWS.decode(encoded)


def digest_rows(rows: Iterable[Row], *, ordered: bool) -> str:
    """Hex SHA-256 under the verdicts' equality: order-free unless `ordered`, 1 = 1.0, -0.0 = 0."""
    encoded = list(_canonical_rows(rows))
    if not ordered:
        encoded.sort()
    digest = hashlib.sha256(b"ordered" if ordered else b"bag")
    for row in encoded:
        digest.update(len(row).to_bytes(8))
        digest.update(row)
    return digest.hexdigest()


def digest_each(rows: Iterable[Row]) -> Rows:
    """Each row as one cell, its SHA-256: two are equal where the rows are."""
    return tuple((hashlib.sha256(row).digest(),) for row in _canonical_rows(rows))


def _canonical_rows(rows: Iterable[Row]) -> Iterator[bytes]:
    """Each row as bytes that are the same for rows that the verdicts call equal."""
    for row in rows:
        if float in set(map(type, row)):
            yield _encode([_canonical(cell) for cell in row])
        else:
            yield _encode(row)


def _canonical(cell: Value) -> Value:
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2.0**63:
        return int(cell)
    return cell


# Equality of results up to the order of their columns: the heart of Spider's test-suite rule.
#
# Exact. A gold column may only become a predicted column that holds the same values as often; the
# search then fixes column after column, and keeps a choice only while the rows seen so far agree
# as multisets. The released script tries every permutation that a sample of twenty random rows
# allows.


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


# What Spider's test-suite rule does to the SQL before it compares the results.
#
# Its published verdicts ignore DISTINCT: the word is taken out of both queries, in aggregates
# too, before they run, unless the user asks to keep it. The rows are then compared by
# `testsuite@1`.


def without_distinct(sql: str) -> str:
    """The query with every DISTINCT quantifier left out; `IS DISTINCT FROM` stays."""
    kept, at, before = [], 0, ""
    for token in iter_code(sql):
        word = sql[token.start : token.end].lower() if token.kind is Kind.WORD else ""
        if word == "distinct" and before not in ("is", "not"):
            kept.append(sql[at : token.start])
            at = token.end
        before = word
    return "".join((*kept, sql[at:]))


# Row equality where numbers may differ a little; used only when a tolerance is asked for.
#
# Closeness is not transitive, so multisets are compared by a one-to-one matching, not by sorting.
# Rows are first parted where no two of them can be close: by every cell that is no number, and by
# gaps in each column's numbers. What is left to match is then a few rows at a time.


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


# Named, versioned comparisons of a predicted result with its gold (CONTRACT 8).
#
# Cells are equal when they are the same value of the same kind: 1 = 1.0, -0.0 = 0, NULL = NULL,
# but '1' is not 1 and text is no blob. That is Python's own equality on what SQLite returns.
#
# Results of more than `WIDE_CELLS` cells on either side are compared row by row as digests:
# exactly, whatever the tolerance, and with the columns in their own order.


RowEquality = Callable[[Rows, Rows, bool, float | None], bool]
"""(predicted, gold, ordered, tolerance) -> equal; `ordered` says that the gold's order matters."""

WIDE_CELLS = 1_000_000
"""Cells past which a result's rows are compared by digest: two more seconds of CPU at the most."""

_GOLD: Mapping[Outcome, Verdict] = {
    Outcome.TIMEOUT: Verdict.GOLD_TIMEOUT,
    Outcome.TRUNCATED: Verdict.GOLD_TRUNCATED,
}
_PREDICTED: Mapping[Outcome, Verdict] = {
    Outcome.TIMEOUT: Verdict.PREDICTED_TIMEOUT,
    Outcome.TRUNCATED: Verdict.PREDICTED_TRUNCATED,
}


def judge(
    predicted: QueryResult | None,
    gold: QueryResult,
    *,
    verdict: str = "bag@1",
    ordered: bool = False,
    tolerance: float | None = None,
) -> Verdict:
    """The verdict on one prediction; None is no prediction. A broken gold leaves it unscored.

    `ordered`: the gold's outermost query has ORDER BY (`order.order_matters`); only ordered@1
    and testsuite@1 look at it. `tolerance`: the absolute difference allowed where one of two
    numbers is a float (1e-9 relative is then allowed too); None compares exactly, and so are
    results of more than `WIDE_CELLS` cells.
    Raises UnknownNameError for a verdict that is not in `VERDICTS`.
    """
    equal = row_equality(verdict)
    if outcome := outcome_verdict(predicted, gold):
        return outcome
    assert predicted is not None  # outcome_verdict has answered for None
    same = equal(predicted.rows, gold.rows, ordered, tolerance)
    return Verdict.EQUAL if same else Verdict.DIFFERENT


def row_equality(verdict: str) -> RowEquality:
    """The rule registered under this name, for results of any size.

    Raises UnknownNameError for a name that is not in `VERDICTS`.
    """
    if verdict not in VERDICTS:
        raise UnknownNameError("verdict", verdict, VERDICTS)
    return partial(_equal_at_any_size, VERDICTS[verdict])


def is_wide(rows: Rows) -> bool:
    """Has it more than `WIDE_CELLS` cells?"""
    return bool(rows) and len(rows) * len(rows[0]) > WIDE_CELLS


def _equal_at_any_size(
    rule: RowEquality, predicted: Rows, gold: Rows, ordered: bool, tolerance: float | None
) -> bool:
    if is_wide(predicted) or is_wide(gold):
        if not predicted or not gold or len(predicted[0]) != len(gold[0]):
            return False
        predicted, gold, tolerance = digest_each(predicted), digest_each(gold), None
    return rule(predicted, gold, ordered, tolerance)


def outcome_verdict(predicted: QueryResult | None, gold: QueryResult) -> Verdict | None:
    """The verdict that the outcomes alone decide; None where the rows must be compared."""
    if not gold.ok:
        return _GOLD.get(gold.outcome, Verdict.GOLD_ERROR)
    if predicted is None:
        return Verdict.NO_PREDICTION
    if not predicted.ok:
        return _PREDICTED.get(predicted.outcome, Verdict.PREDICTED_ERROR)
    return None


def equal_official(
    predicted: Rows, gold: Rows, ordered: bool = False, tolerance: float | None = None
) -> bool:
    """BIRD's rule: equal as sets of rows; duplicates and order do not count."""
    if tolerance is not None:
        return equal_set_within(predicted, gold, tolerance)
    return predicted == gold or set(predicted) == set(gold)


def equal_bag(
    predicted: Rows, gold: Rows, ordered: bool = False, tolerance: float | None = None
) -> bool:
    """Equal as multisets of rows: every row as often, in any order."""
    if len(predicted) != len(gold):
        return False
    if tolerance is not None:
        return equal_bag_within(predicted, gold, tolerance)
    return predicted == gold or Counter(predicted) == Counter(gold)


def equal_ordered(
    predicted: Rows, gold: Rows, ordered: bool = False, tolerance: float | None = None
) -> bool:
    """Equal as multisets, and in the gold's order where that order matters."""
    rule = equal_strict if ordered else equal_bag
    return rule(predicted, gold, ordered, tolerance)


def equal_strict(
    predicted: Rows, gold: Rows, ordered: bool = False, tolerance: float | None = None
) -> bool:
    """The same rows, in the same order, as often."""
    if tolerance is not None:
        return equal_list_within(predicted, gold, tolerance)
    return predicted == gold


def equal_testsuite(
    predicted: Rows, gold: Rows, ordered: bool = False, tolerance: float | None = None
) -> bool:
    """Spider's test-suite rule: some order of the columns makes the results equal.

    Multisets, or lists where the gold's order matters. Its treatment of DISTINCT concerns the
    SQL, not the rows: `testsuite.without_distinct`. A tolerance is not part of the rule.
    """
    if tolerance is not None:
        raise ValueError("testsuite@1 compares exactly: it takes no tolerance")
    return equal_permuted(predicted, gold, ordered=ordered)


VERDICTS: Mapping[str, RowEquality] = {
    "official@1": equal_official,
    "bag@1": equal_bag,
    "ordered@1": equal_ordered,
    "strict@1": equal_strict,
    "testsuite@1": equal_testsuite,
}
"""Every rule by name and version; a changed rule gets a new version."""
