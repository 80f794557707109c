"""The checks in order, each a function whose name is its finding's code, with its severity."""

from collections.abc import Callable, Iterator

from envbuild.preflight import database_checks as on_database
from envbuild.preflight import gold_checks as on_gold
from envbuild.preflight import question_checks as on_questions
from envbuild.preflight import undetermined_checks as on_determinacy
from envbuild.preflight.drafts import Draft
from envbuild.preflight.subjects import DatabaseSubject, GoldSubject
from envbuild.records.preflight import Severity

DatabaseCheck = Callable[[DatabaseSubject], Iterator[Draft]]
GoldCheck = Callable[[GoldSubject], Iterator[Draft]]

DATABASE_CHECKS: tuple[DatabaseCheck, ...] = (
    on_database.unreadable_database,
    on_database.no_rows,
    on_database.ddl_refused,
    on_database.rows_refused,
    on_database.cells_changed,
    on_database.missing_parents,
    on_database.fk_mismatch,
    on_database.fk_orphans,
    on_database.undecodable_text,
    on_questions.placeholder_phrasing,
    on_questions.duplicate_questions,
)
GOLD_CHECKS: tuple[GoldCheck, ...] = (
    on_gold.gold_error,
    on_gold.gold_timeout,
    on_gold.gold_denied,
    on_gold.gold_truncated,
    on_gold.empty_gold,
    on_gold.trivial_gold,
    on_determinacy.tie_sensitive_gold,
    on_determinacy.scan_order_gold,
    on_determinacy.clock_gold,
    on_determinacy.random_gold,
    on_determinacy.bare_group_column,
    on_determinacy.number_as_text,
    on_gold.stored_result_differs,
    on_gold.gold_not_in_relevant_tables,
)

UNDETERMINED = frozenset(
    ("tie_sensitive_gold", "scan_order_gold", "clock_gold", "random_gold", "bare_group_column")
)
"""Codes (notes apart) of golds whose result the data do not determine."""

SEVERITIES: dict[str, Severity] = {
    "few_rows": Severity.ERROR,
    "corpus_signal": Severity.ERROR,
    "no_signal": Severity.ERROR,
    "weak_signal": Severity.WARNING,
    "database_refused": Severity.ERROR,
    "question_refused": Severity.WARNING,
    "crashed_database": Severity.ERROR,
    "unreadable_database": Severity.ERROR,
    "no_rows": Severity.ERROR,
    "ddl_refused": Severity.ERROR,
    "rows_refused": Severity.WARNING,
    "cells_changed": Severity.NOTE,
    "missing_parents": Severity.WARNING,
    "fk_mismatch": Severity.WARNING,
    "fk_orphans": Severity.WARNING,
    "undecodable_text": Severity.WARNING,
    "placeholder_phrasing": Severity.WARNING,
    "duplicate_questions": Severity.WARNING,
    "gold_error": Severity.ERROR,
    "gold_timeout": Severity.ERROR,
    "gold_denied": Severity.ERROR,
    "gold_truncated": Severity.ERROR,
    "empty_gold": Severity.ERROR,
    "trivial_gold": Severity.WARNING,
    "tie_sensitive_gold": Severity.WARNING,
    "scan_order_gold": Severity.WARNING,
    "clock_gold": Severity.WARNING,
    "random_gold": Severity.WARNING,
    "bare_group_column": Severity.WARNING,
    "number_as_text": Severity.WARNING,
    "stored_result_differs": Severity.NOTE,
    "gold_not_in_relevant_tables": Severity.WARNING,
}
"""Every code with the severity of its findings (a finding may be milder), in the report's order.

The first seven are about the corpus as a whole and no check of one database gives them."""

EVALUATION_SEVERITIES: dict[str, Severity] = {"empty_gold": Severity.WARNING}
"""Codes that are milder where the split is for evaluation.

81 to 89 % of real wrong queries get an empty gold's result (SIGNAL 4), so training on one pays
for luck; a published benchmark asks such questions on purpose, and nothing is learnt from them."""

_CORPUS_MEANINGS = {
    "few_rows": "Rows per table cross a threshold: wrong queries get the gold's result by luck.",
    "corpus_signal": "On average the databases tell golds from too few of their wrong neighbours.",
    "no_signal": "The database tells the gold query from few of its wrong neighbours.",
    "weak_signal": "The database tells the gold query from only some of its wrong neighbours.",
    "database_refused": "Databases of the source that could not be built.",
    "question_refused": "Questions of the source that were not taken.",
    "crashed_database": "Checking the database ended the worker process.",
}


def severity_of(draft: Draft) -> Severity:
    """What the draft says itself, else what its code says for its split."""
    if draft.severity is not None:
        return draft.severity
    if draft.evaluation:
        return EVALUATION_SEVERITIES.get(draft.code, SEVERITIES[draft.code])
    return SEVERITIES[draft.code]


def meaning_of(code: str) -> str:
    """What a code says, in one sentence: the first line of its check's docstring."""
    for check in (*DATABASE_CHECKS, *GOLD_CHECKS):
        if check.__name__ == code:
            return (check.__doc__ or "").strip().splitlines()[0]
    return _CORPUS_MEANINGS[code]
