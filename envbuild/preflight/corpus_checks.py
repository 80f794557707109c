"""Checks of a corpus as a whole: too few rows, and what never became a database or question."""

from collections.abc import Iterable, Iterator

from envbuild.preflight.drafts import Draft
from envbuild.records.corpus import Reject
from envbuild.records.preflight import RowStatistics


def few_rows(corpus: str, rows: RowStatistics) -> Iterator[Draft]:
    """Rows per table cross a threshold."""
    if rows.verdict is not None:
        yield Draft(
            corpus=corpus,
            code="few_rows",
            message="; ".join(rows.reasons),
            count=rows.tables,
            severity=rows.verdict,
        )


def refused(corpus: str, rejects: Iterable[Reject]) -> Iterator[Draft]:
    """Databases and questions of the source that were not taken."""
    for reject in rejects:
        if reject.kind in ("database", "question"):
            yield Draft(
                corpus=corpus,
                code=f"{reject.kind}_refused",
                message=f"{reject.kind} not taken: {reject.reason}",
                db_id=reject.db_id,
                question_id=reject.question_id,
                example=reject.detail,
            )
