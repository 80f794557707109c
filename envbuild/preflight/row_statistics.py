"""Rows per table over a corpus, and whether they are enough (the first thing preflight says)."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from envbuild.records.preflight import BIN_EDGES, RowStatistics, Severity, Thresholds


def row_statistics(counts: Iterable[Iterable[int]], thresholds: Thresholds) -> RowStatistics:
    """Statistics over the row counts of each database's tables, judged by the thresholds."""
    databases = [list(tables) for tables in counts]
    ordered = sorted(rows for tables in databases for rows in tables)
    tables, rows = len(ordered), sum(ordered)
    histogram = [0] * len(BIN_EDGES)
    for count in ordered:
        histogram[bisect_right(BIN_EDGES, count) - 1] += 1
    statistics = RowStatistics(
        databases=len(databases),
        tables=tables,
        rows=rows,
        median=quantile(ordered, 0.5),
        p10=quantile(ordered, 0.1),
        p90=quantile(ordered, 0.9),
        mean=rows / tables if tables else 0.0,
        share_empty=bisect_right(ordered, 0) / tables if tables else 0.0,
        share_at_most_2=bisect_right(ordered, 2) / tables if tables else 0.0,
        histogram=tuple(histogram),
    )
    return _judged(statistics, thresholds)


def quantile(ordered: Sequence[int], share: float) -> float:
    """The quantile of sorted values, linear between neighbours; 0 where there are none."""
    if not ordered:
        return 0.0
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _judged(statistics: RowStatistics, thresholds: Thresholds) -> RowStatistics:
    crossed = list(_crossed(statistics, thresholds))
    worst = Severity.ERROR if any(s is Severity.ERROR for s, _ in crossed) else None
    return msgspec.structs.replace(
        statistics,
        verdict=worst or (Severity.WARNING if crossed else None),
        reasons=tuple(reason for _, reason in crossed),
    )


def _crossed(s: RowStatistics, t: Thresholds) -> Iterable[tuple[Severity, str]]:
    """Each threshold crossed, with the sentence that says so."""
    if not s.tables:
        yield Severity.ERROR, "there are no tables"
        return
    for limit, severity in ((t.median_error, Severity.ERROR), (t.median_warning, Severity.WARNING)):
        if s.median < limit:
            yield severity, f"median rows per table {s.median:g} is below {limit:g}"
            break
    shares = (
        ("are empty", s.share_empty, t.share_empty_error, t.share_empty_warning),
        (
            "have at most 2 rows",
            s.share_at_most_2,
            t.share_at_most_2_error,
            t.share_at_most_2_warning,
        ),
    )
    for label, share, error, warning in shares:
        if share > warning:
            limit = error if share > error else warning
            severity = Severity.ERROR if share > error else Severity.WARNING
            yield severity, f"{share:.1%} of tables {label}, more than {limit:.0%}"
