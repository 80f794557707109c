"""Named, versioned comparisons of a predicted result with its gold (CONTRACT 8).

Cells are equal when they are the same value of the same kind: 1 = 1.0, -0.0 = 0, NULL = NULL,
but '1' is not 1 and text is no blob. That is Python's own equality on what SQLite returns.

Results of more than `WIDE_CELLS` cells on either side are compared row by row as digests:
exactly, whatever the tolerance, and with the columns in their own order.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

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
from envbuild.sql.f1 import best_mapping, columns_of
from envbuild.sql.tokens import Kind, iter_code

_ENCODINGS = {"UTF-8": 1, "UTF-16-LE": 2, "UTF-16-BE": 3}
"""The MessagePack extension types that hold undecodable text, by its encoding."""
_CODECS = {code: encoding for encoding, code in _ENCODINGS.items()}


def _as_extension(cell: object) -> msgspec.msgpack.Ext:
    assert isinstance(cell, UndecodableText)
    return msgspec.msgpack.Ext(_ENCODINGS[cell.encoding], cell.raw)


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


SEARCH_CELLS = 50_000_000
"""Cells that one search may look at; only results made for it (a dozen columns that permute each
other, without agreeing in the end) need more than a few passes. Spent: called different."""


def equal_permuted(predicted: Rows, gold: Rows, *, ordered: bool) -> bool:
    """Some order of the predicted columns gives the gold: as lists if `ordered`, else multisets.

    Exact. A gold column may only become a predicted column that holds the same values as often; the
    search then fixes column after column while the rows seen so far agree as multisets.
    """
    if len(predicted) != len(gold):
        return False
    if not gold or predicted == gold:
        return True
    if len(predicted[0]) != len(gold[0]):
        return False
    ours, theirs = columns_of(predicted), columns_of(gold)
    if ordered:  # a column is then its list of values, and any pairing of equal lists will do
        return Counter(ours) == Counter(theirs)
    if Counter(map(_bag, predicted)) != Counter(map(_bag, gold)):
        return False
    bags = list(map(_bag, ours))
    options = [
        [(len(gold), choice) for choice, bag in enumerate(bags) if bag == wanted]
        for wanted in map(_bag, theirs)
    ]
    order = sorted(range(len(theirs)), key=lambda at: len(options[at]))
    found = best_mapping(
        theirs, ours, options, order=order, cells=SEARCH_CELLS, above=len(gold) - 1
    )
    return found == len(gold)


def _bag(cells: Row) -> Hashable:
    return frozenset(Counter(cells).items())


def without_distinct(sql: str) -> str:
    """The query with every DISTINCT quantifier left out; `IS DISTINCT FROM` stays.

    Spider's published test-suite verdicts ignore DISTINCT: both queries run without it.
    """
    kept, at, before = [], 0, ""
    for token in iter_code(sql):
        word = token.text.lower() if token.kind is Kind.WORD else ""
        if word == "distinct" and before not in ("is", "not"):
            kept.append(sql[at : token.start])
            at = token.end
        before = word
    return "".join((*kept, sql[at:]))


# Row equality where numbers may differ a little, used only when a tolerance is asked for. Closeness
# is not transitive, so multisets are compared by a one-to-one matching, not by sorting alone.

RELATIVE = 1e-9
"""Relative difference that any tolerance allows: another engine version's last digits."""
PAIRS = 4_000_000
"""Pairs of rows that one matching may look at: some seconds. Rows that have more, and are not close
one by one when they are sorted, are called different."""
_REACH = 1.01
"""How far apart close numbers lie on the scale of `_scaled`: 1, and its rounding."""


def close_rows(a: Row, b: Row, tolerance: float) -> bool:
    """Cell by cell: equal, or numbers of which one is a float and that lie close together."""
    return len(a) == len(b) and all(_close(x, y, tolerance) for x, y in zip(a, b, strict=True))


def _close(a: Value, b: Value, tolerance: float) -> bool:
    if a == b:
        return True
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return False
    if not isinstance(a, float) and not isinstance(b, float):
        return False
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=tolerance)


def _all_matched(
    predicted: Iterable[Row], gold: Iterable[Row], tolerance: float, *, one_to_one: bool
) -> bool:
    """Each row of either side has a close one on the other; `one_to_one`: of its own."""
    kinds: dict[Hashable, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((predicted, gold)):
        for row in rows:  # every cell that is no number must agree exactly
            kind = tuple("#" if _is_number(cell) else (cell,) for cell in row)
            # a number for all, so that no row is left empty
            kinds[kind][side].append((0, *filter(_is_number, row)))
    return all(_matched(*sides, tolerance, one_to_one) for sides in kinds.values())


def _matched(ours: list[Row], theirs: list[Row], tolerance: float, one_to_one: bool) -> bool:
    if not ours or not theirs or (one_to_one and len(ours) != len(theirs)):
        return False
    together = zip(sorted(ours), sorted(theirs), strict=False)
    if len(ours) == len(theirs) and all(close_rows(a, b, tolerance) for a, b in together):
        return True
    pairs = _close_pairs(ours, theirs, tolerance)
    if {len({a for a, _ in pairs}) - len(ours), len({b for _, b in pairs}) - len(theirs)} != {0}:
        return False
    if not one_to_one:
        return True
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    ones = np.ones(len(pairs), bool)
    graph = csr_array((ones, tuple(zip(*pairs, strict=True))), shape=(len(ours), len(theirs)))
    return bool((maximum_bipartite_matching(graph, perm_type="column") >= 0).all())


def _close_pairs(ours: list[Row], theirs: list[Row], tolerance: float) -> list[tuple[int, int]]:
    """Places in both lists of the rows close to each other; none where they are more than PAIRS."""
    # here: SciPy takes a while to import, and next to no comparison comes this far
    from scipy.spatial import cKDTree

    tree = cKDTree(_scaled(theirs, tolerance), balanced_tree=False)
    points = _scaled(ours, tolerance)
    if tree.query_ball_point(points, _REACH, p=np.inf, return_length=True).sum() > PAIRS:
        return []
    return [
        (place, other)
        for place, others in enumerate(tree.query_ball_point(points, _REACH, p=np.inf))
        for other in others
        if close_rows(ours[place], theirs[other], tolerance)
    ]


def _is_number(cell: Value) -> bool:
    """A finite number that SQLite can hold; a stored result may have longer ones, equal or not."""
    if isinstance(cell, float):
        return math.isfinite(cell)
    return isinstance(cell, int) and -(2**63) <= cell < 2**63


def _scaled(rows: Sequence[Row], tolerance: float) -> NDArray[np.float64]:
    """The numbers on a scale on which close ones lie at most _REACH apart, whatever their size.

    Linear where the tolerance is the larger slack, logarithmic where the relative one is.
    """
    numbers = np.array(rows, np.float64)
    tolerance = max(tolerance, 1e-290)
    size, edge = np.abs(numbers), tolerance / RELATIVE
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        far = np.sign(numbers) * (1 + np.log(size / edge)) / RELATIVE
        return np.where(size <= edge, numbers / tolerance, far)


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
    if predicted == gold or (ours := set(predicted)) == (theirs := set(gold)):
        return True
    return tolerance is not None and _all_matched(ours, theirs, tolerance, one_to_one=False)


def equal_bag(
    predicted: Rows, gold: Rows, ordered: bool = False, tolerance: float | None = None
) -> bool:
    """Equal as multisets of rows: every row as often, in any order."""
    if len(predicted) != len(gold):
        return False
    if predicted == gold or Counter(predicted) == Counter(gold):
        return True
    return tolerance is not None and _all_matched(predicted, gold, tolerance, one_to_one=True)


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
    if predicted == gold or tolerance is None:
        return predicted == gold
    return len(predicted) == len(gold) and all(
        close_rows(a, b, tolerance) for a, b in zip(predicted, gold, strict=True)
    )


def equal_testsuite(
    predicted: Rows, gold: Rows, ordered: bool = False, tolerance: float | None = None
) -> bool:
    """Spider's test-suite rule: some order of the columns makes the results equal.

    Multisets, or lists where the gold's order matters. Its treatment of DISTINCT concerns the
    SQL, not the rows: `without_distinct`. A tolerance is not part of the rule.
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
