"""Capability gold tables: what a query reads, as SQLite knows it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.errors import GoldError
from envbuild.sql.connect import open_read_only
from envbuild.sql.gold_tables import GoldTables, read_gold_tables
from tests.cases.databases import write_database
from tests.cases.form import Case, Checks, assert_status, contains


@dataclass(kw_only=True)
class Outcome:
    """What the query reads, or why that cannot be said."""

    found: GoldTables | None = None
    error: GoldError | None = None


def run(case: Case, folder: Path) -> None:
    """Asks about the query, and checks."""
    path = write_database(folder / "case.sqlite", case.input.get("ddl", ""))
    connection = open_read_only(path)
    try:
        outcome = Outcome(found=read_gold_tables(connection, case.input["sql"]))
    except GoldError as e:
        outcome = Outcome(error=e)
    finally:
        connection.close()
    CHECKS.check(outcome, case.expected)


def _check_tables(outcome: Outcome, expected: list[str] | None) -> None:
    if expected is None:
        assert outcome.error is not None
        return
    assert outcome.found is not None, outcome.error
    assert sorted(outcome.found.tables) == sorted(expected)


def _check_views(outcome: Outcome, expected: list[str]) -> None:
    assert outcome.found is not None, outcome.error
    assert sorted(outcome.found.views) == sorted(expected)


def _check_error(outcome: Outcome, expected: Any) -> None:
    assert outcome.error is not None, outcome.found
    if expected is not True:
        contains(lambda o: str(o.error))(outcome, expected)


CHECKS = Checks(
    inputs="ddl sql",
    by_key={
        "gold_tables": _check_tables,
        "views": _check_views,
        "error": _check_error,
        "error_contains": _check_error,
        "status": lambda o, expected: assert_status("error" if o.error else "ok", expected),
    },
)
