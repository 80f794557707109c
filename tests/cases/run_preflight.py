"""Capability preflight: a corpus of one database through every check."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.preflight.checks import UNDETERMINED
from envbuild.preflight.measure import measure_corpora
from envbuild.preflight.run import CorpusFindings, check_corpus
from envbuild.records.execution import Limits
from envbuild.records.finding import Finding, Severity
from envbuild.records.preflight import Thresholds
from envbuild.schema.read import read_schema
from envbuild.sql.connect import open_read_only
from envbuild.sql.files.foreign_key_check import KeyState, check_foreign_keys, orphans_by_table
from envbuild.sql.files.undecodable import find_undecodable
from tests.cases.databases import write_corpus
from tests.cases.form import FAILED, Case, Checks, as_list, assert_status, close, says

DB = "case"
ABOUT_THE_SIZE = ("few_rows", "no_rows", "corpus_signal", "no_signal")
"""Findings that any database of a few rows gets; they do not make a case's status an error."""


@dataclass(kw_only=True)
class Outcome:
    """What preflight said of the one database."""

    found: CorpusFindings
    path: Path | None
    queries: list[str] = field(default_factory=list)

    def about(self, sql: str) -> list[Finding]:
        """Findings about one gold query."""
        wanted = str(self.queries.index(sql))
        return [f for f in self.found.findings if f.question_id == wanted]

    def codes(self) -> Counter[str]:
        """How many findings each code has."""
        return Counter(f.code for f in self.found.findings)


def run(case: Case, folder: Path) -> None:
    """Materializes the database, checks it with its gold queries, and compares."""
    given = case.input
    queries = [given["gold_sql"]] if "gold_sql" in given else []
    queries += given.get("queries", [])
    payloads = {DB: given["payload"]} if "payload" in given else {}
    asked = [
        {"question_id": str(number), "db_id": DB, "gold_sql": sql}
        for number, sql in enumerate(queries)
    ]
    corpus = write_corpus(folder, {DB: given.get("ddl", "")}, asked, payloads=payloads)
    limits = Limits(seconds=float(given.get("timeout_s", Limits().seconds)))
    (measured,) = measure_corpora([corpus], Thresholds(), cached=False)
    found = check_corpus(measured, limits=limits, workers=1)
    databases = corpus.databases()
    path = corpus.database_path(DB) if databases else None
    CHECKS.check(Outcome(found=found, path=path, queries=queries), case.expected)


def _gold_status(outcome: Outcome) -> str:
    gold = outcome.found.report.gold
    for status in ("timeout", "denied", "truncated", "error"):
        if getattr(gold, status):
            return status
    assert gold.ok, "the gold query was not run"
    return "ok"


def _check_gold_status(outcome: Outcome, expected: str) -> None:
    assert_status(_gold_status(outcome), expected)


def _check_gold_rows(outcome: Outcome, expected: int) -> None:
    from envbuild.sql.executor import Session

    assert outcome.path is not None
    with Session.open_file(outcome.path) as session:
        assert len(session.run(outcome.queries[0]).rows) == expected


def _check_code(code: str) -> Any:
    def check(outcome: Outcome, expected: bool) -> None:
        assert (outcome.codes()[code] > 0) is expected, outcome.codes()

    return check


def _check_undetermined(outcome: Outcome, expected: Any) -> None:
    wanted = expected if isinstance(expected, list) else [expected] * len(outcome.queries)
    found = [_is_undetermined(outcome.about(sql)) for sql in outcome.queries]
    assert found == wanted, [[f.code for f in outcome.about(q)] for q in outcome.queries]


def _is_undetermined(findings: list[Finding]) -> bool:
    """The clock counts although these rows do not show it yet: they will on another day."""
    return any(
        f.code in UNDETERMINED and (f.severity is not Severity.NOTE or f.code == "clock_gold")
        for f in findings
    )


def _statuses(outcome: Outcome) -> set[str]:
    """`error` for an error finding; those about too few rows leave `ok` possible too."""
    errors = {f.code for f in outcome.found.findings if f.severity is Severity.ERROR}
    if errors - set(ABOUT_THE_SIZE):
        return set(FAILED)
    return {"ok", *FAILED} if errors else {"ok"}


def _check_status(outcome: Outcome, expected: str) -> None:
    assert expected in _statuses(outcome), outcome.codes()


def _check_status_not(outcome: Outcome, expected: Any) -> None:
    left = _statuses(outcome) - set(as_list(expected))
    assert left, f"status {expected}: {outcome.codes()}"


def _check_error_contains(outcome: Outcome, expected: Any) -> None:
    said = [f"{f.code} {f.message} {f.example}" for f in outcome.found.findings]
    for text in as_list(expected):
        assert any(says(sentence, text) for sentence in said), f"{text!r} is not in {said}"


def _checks_of_keys(outcome: Outcome) -> Any:
    assert outcome.path is not None
    connection = open_read_only(outcome.path)
    try:
        return check_foreign_keys(connection), orphans_by_table(connection)
    finally:
        connection.close()


def _check_mismatch(outcome: Outcome, expected: list[list[str]]) -> None:
    keys, _ = _checks_of_keys(outcome)
    found = sorted([k.child, k.parent] for k in keys if k.state is KeyState.MISMATCH)
    assert found == sorted(expected)
    assert outcome.codes()["fk_mismatch"] == len(expected)


def _check_missing_parents(outcome: Outcome, expected: list[str]) -> None:
    keys, _ = _checks_of_keys(outcome)
    found = {k.parent for k in keys if k.state is KeyState.MISSING_PARENT}
    assert sorted(found) == sorted(expected)
    told = [f.message for f in outcome.found.findings if f.code == "missing_parents"]
    assert all(any(name in text for text in told) for name in expected)


def _check_violations_by_table(outcome: Outcome, expected: dict[str, int]) -> None:
    _, orphans = _checks_of_keys(outcome)
    assert {table: count for table, count in orphans.items() if count} == {
        table: count for table, count in expected.items() if count
    }


def _check_violations(outcome: Outcome, expected: int) -> None:
    _, orphans = _checks_of_keys(outcome)
    assert sum(orphans.values()) == expected
    told = outcome.codes()["fk_orphans"] + outcome.codes()["missing_parents"]
    assert bool(told) or not expected


def _counts(outcome: Outcome) -> dict[str, int]:
    from envbuild.sql.files.row_counts import count_rows

    assert outcome.path is not None
    return count_rows(outcome.path)


def _check_row_counts(outcome: Outcome, expected: dict[str, int]) -> None:
    counts = _counts(outcome)
    assert {table: counts[table] for table in expected} == expected


def _check_tables(outcome: Outcome, expected: Any) -> None:
    assert outcome.path is not None
    connection = open_read_only(outcome.path)
    try:
        names = sorted(read_schema(connection).table_names)
    finally:
        connection.close()
    assert outcome.found.report.rows.tables == len(names)
    assert (len(names) if isinstance(expected, int) else names) == (
        expected if isinstance(expected, int) else sorted(expected)
    )


def _check_median(outcome: Outcome, expected: float) -> None:
    assert close(outcome.found.report.rows.median, float(expected)), outcome.found.report.rows


def _undecodable(outcome: Outcome) -> Any:
    assert outcome.path is not None
    connection = open_read_only(outcome.path)
    try:
        return find_undecodable(connection)
    finally:
        connection.close()


def _check_undecodable_cells(outcome: Outcome, expected: int) -> None:
    assert sum(column.cells for column in _undecodable(outcome)) == expected
    counts = [f.count for f in outcome.found.findings if f.code == "undecodable_text"]
    assert sum(counts) == expected


def _check_undecodable_columns(outcome: Outcome, expected: list[str]) -> None:
    found = sorted(f"{column.table}.{column.column}" for column in _undecodable(outcome))
    assert found == sorted(expected)


def _check_ddl_errors(outcome: Outcome, expected: int) -> None:
    found = [
        f
        for f in outcome.found.findings
        if f.code == "ddl_refused" and f.severity is not Severity.NOTE
    ]
    assert len(found) == expected, [f.message for f in found]


CHECKS = Checks(
    inputs=frozenset(("ddl", "payload", "gold_sql", "queries", "timeout_s")),
    by_key={
        "gold_status": _check_gold_status,
        "gold_rows": _check_gold_rows,
        "empty_gold": _check_code("empty_gold"),
        "trivial_gold": _check_code("trivial_gold"),
        "nondeterministic": _check_undetermined,
        "status": _check_status,
        "status_not": _check_status_not,
        "error_contains": _check_error_contains,
        "fk_mismatch": _check_mismatch,
        "fk_violations_by_table": _check_violations_by_table,
        "fk_violations": _check_violations,
        "missing_parent_tables": _check_missing_parents,
        "row_counts": _check_row_counts,
        "tables": _check_tables,
        "median_rows_per_table": _check_median,
        "undecodable_cells": _check_undecodable_cells,
        "undecodable_columns": _check_undecodable_columns,
        "n_ddl_errors": _check_ddl_errors,
    },
)
