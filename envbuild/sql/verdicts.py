"""Named, versioned comparisons of a predicted result with its gold (CONTRACT 8).

Cells are equal when they are the same value of the same kind: 1 = 1.0, -0.0 = 0, NULL = NULL,
but '1' is not 1 and text is no blob. That is Python's own equality on what SQLite returns.

Results of more than `WIDE_CELLS` cells on either side are compared row by row as digests: exactly,
whatever the tolerance, and with the columns in their own order.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from envbuild.errors import UnknownNameError
from envbuild.records.execution import Outcome, QueryResult, Rows, Verdict
from envbuild.sql.comparing.permutation import equal_permuted
from envbuild.sql.comparing.tolerance import equal_bag_within, equal_list_within, equal_set_within
from envbuild.sql.results import digest_each

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
