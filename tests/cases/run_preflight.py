"""Capability preflight: a corpus of one database through every check."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
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
from envbuild.sql.executor import Session
from envbuild.sql.files.foreign_key_check import KeyState, check_foreign_keys, orphans_by_table
from envbuild.sql.files.row_counts import count_table_rows
from envbuild.sql.files.undecodable import find_undecodable
from tests.cases.databases import write_corpus
from tests.cases.form import (
    FAILED,
    Case,
    Check,
    Checks,
    as_list,
    assert_status,
    contains,
    each,
    equals,
    in_any_order,
    same_number,
)

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


def _gold_rows(outcome: Outcome) -> int:
    assert outcome.path is not None
    with Session.open_file(outcome.path) as session:
        return len(session.run(outcome.queries[0]).rows)


def _has(code: str) -> Check:
    return equals(lambda outcome: outcome.codes()[code] > 0)


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


def _check_status_not(outcome: Outcome, expected: Any) -> None:
    assert _statuses(outcome) - set(as_list(expected)), f"status {expected}: {outcome.codes()}"


def _asked(outcome: Outcome, read: Callable[[Any], Any]) -> Any:
    """What the database itself says."""
    assert outcome.path is not None
    with closing(open_read_only(outcome.path)) as connection:
        return read(connection)


def _check_mismatch(outcome: Outcome, expected: list[list[str]]) -> None:
    keys = _asked(outcome, check_foreign_keys)
    found = sorted([k.child, k.parent] for k in keys if k.state is KeyState.MISMATCH)
    assert found == sorted(expected)
    assert outcome.codes()["fk_mismatch"] == len(expected)


def _check_missing_parents(outcome: Outcome, expected: list[str]) -> None:
    keys = _asked(outcome, check_foreign_keys)
    found = {k.parent for k in keys if k.state is KeyState.MISSING_PARENT}
    assert sorted(found) == sorted(expected)
    told = [f.message for f in outcome.found.findings if f.code == "missing_parents"]
    assert all(any(name in text for text in told) for name in expected)


def _check_violations_by_table(outcome: Outcome, expected: dict[str, int]) -> None:
    wanted = {table: count for table, count in expected.items() if count}
    assert _asked(outcome, orphans_by_table) == wanted


def _check_violations(outcome: Outcome, expected: int) -> None:
    assert sum(_asked(outcome, orphans_by_table).values()) == expected
    told = outcome.codes()["fk_orphans"] + outcome.codes()["missing_parents"]
    assert bool(told) or not expected


def _check_row_counts(outcome: Outcome, expected: dict[str, int]) -> None:
    counts = _asked(outcome, count_table_rows)
    assert {table: counts[table] for table in expected} == expected


def _check_tables(outcome: Outcome, expected: Any) -> None:
    names = sorted(_asked(outcome, read_schema).table_names)
    assert outcome.found.report.rows.tables == len(names)
    assert expected in (len(names), names) or sorted(as_list(expected)) == names


def _check_undecodable_cells(outcome: Outcome, expected: int) -> None:
    assert sum(column.cells for column in _asked(outcome, find_undecodable)) == expected
    counts = [f.count for f in outcome.found.findings if f.code == "undecodable_text"]
    assert sum(counts) == expected


def _undecodable_columns(outcome: Outcome) -> list[str]:
    return [f"{one.table}.{one.column}" for one in _asked(outcome, find_undecodable)]


def _ddl_errors(outcome: Outcome) -> int:
    refused = [f for f in outcome.found.findings if f.code == "ddl_refused"]
    return sum(f.severity is not Severity.NOTE for f in refused)


CHECKS = Checks(
    inputs="ddl payload gold_sql queries timeout_s",
    by_key={
        "gold_status": lambda o, expected: assert_status(_gold_status(o), expected),
        "gold_rows": equals(_gold_rows),
        "empty_gold": _has("empty_gold"),
        "trivial_gold": _has("trivial_gold"),
        "nondeterministic": each(
            equals(_is_undetermined), lambda o: [o.about(sql) for sql in o.queries]
        ),
        "status": lambda o, expected: equals(lambda o: expected in _statuses(o))(o, True),
        "status_not": _check_status_not,
        "error_contains": contains(
            lambda o: [f"{f.code} {f.message} {f.example}" for f in o.found.findings]
        ),
        "fk_mismatch": _check_mismatch,
        "fk_violations_by_table": _check_violations_by_table,
        "fk_violations": _check_violations,
        "missing_parent_tables": _check_missing_parents,
        "row_counts": _check_row_counts,
        "tables": _check_tables,
        "median_rows_per_table": lambda o, expected: same_number(
            o.found.report.rows.median, float(expected)
        ),
        "undecodable_cells": _check_undecodable_cells,
        "undecodable_columns": in_any_order(_undecodable_columns),
        "n_ddl_errors": equals(_ddl_errors),
    },
)
