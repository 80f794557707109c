"""Capability exec+timeout: SQL on one session of the executor, and what it leaves behind."""

import gc
import hashlib
import os
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.records.execution import Limits, Outcome, QueryResult
from envbuild.records.manifest import GoldResult
from envbuild.reward.score import score_answer
from envbuild.schema.read import read_schema
from envbuild.sql.connect import open_read_only, quote_name
from envbuild.sql.executor import Session
from envbuild.sql.results import digest_rows, encode_rows
from envbuild.sql.text.order import order_matters
from envbuild.sql.verdicts import judge
from tests.cases.databases import write_database
from tests.cases.form import (
    Case,
    Checks,
    as_list,
    assert_same_bag,
    assert_same_rows,
    assert_status,
    at_most,
    contains,
    each,
    equals,
    same_number,
)

_WRITES = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE written_by_another (x)")
connection.execute("ROLLBACK")
"""


@dataclass(kw_only=True)
class Ran:
    """One statement on the session."""

    session: Session
    path: Path
    sql: str
    result: QueryResult
    gold: GoldResult | None = None

    @property
    def reward(self) -> float | None:
        """What the statement earns against the case's gold."""
        gold = self.gold or gold_of(self.session, "SELECT 'no answer gives this'")
        schema = schema_of(self.path)
        return score_answer(self.sql, session=self.session, gold=gold, schema=schema).reward


@dataclass(kw_only=True)
class Outcomes:
    """Everything that the case ran."""

    case: Case
    path: Path
    session: Session
    before: dict[str, str]
    """Files of the two folders and their digests."""
    ran: list[Ran] = field(default_factory=list)
    growth: tuple[float, float, float] = (0, 0, 0)
    """Threads, processes and MB of memory that the statements left."""


def run(case: Case, folder: Path) -> None:
    """Runs the case's SQL on one session, and checks."""
    path = write_database(folder / "case.sqlite", case.input.get("ddl", ""))
    with Session.open_file(path, limits=limits_of(case.input)) as session:
        outcomes = Outcomes(case=case, path=path, session=session, before=_files(folder))
        _run_all(outcomes)
        CHECKS.check(outcomes, case.expected)
        _check_forbidden(outcomes, case.input.get("forbidden_files", []))


def limits_of(given: dict[str, Any]) -> Limits:
    """The executor's limits with the case's own time-out and row cap."""
    limits = Limits()
    return Limits(
        seconds=float(given.get("timeout_s", limits.seconds)),
        rows=int(given.get("row_cap", limits.rows)),
    )


def gold_of(session: Session, sql: str) -> GoldResult:
    """The gold query's result as a manifest keeps it; whatever its outcome."""
    result = session.run(sql)
    ordered = order_matters(sql)
    return GoldResult(
        gold_id="gold",
        outcome=result.outcome.value,
        columns=result.columns,
        ordered=ordered,
        digest=digest_rows(result.rows, ordered=ordered) if result.ok else "",
        result=encode_rows(result.rows),
    )


def schema_of(path: Path) -> Any:
    """The database's schema."""
    with closing(open_read_only(path)) as connection:
        return read_schema(connection)


def _run_all(outcomes: Outcomes) -> None:
    given, session = outcomes.case.input, outcomes.session
    gold = gold_of(session, given["gold_sql"]) if "gold_sql" in given else None
    repeat = int(given.get("repeat", 1))
    sqls = [given["sql"]] if "sql" in given else []
    steps = [{"sql": sql} for sql in [*sqls, *given.get("statements", [])]]
    steps += given.get("steps", [])
    if repeat > 1:
        for step in steps:  # whatever is started once and shared is no growth
            session.run(step["sql"])
    before = _threads(), _children(), _rss_mb()
    for _ in range(repeat):
        outcomes.ran = [_run_step(outcomes, step, gold) for step in steps]
    rss = _rss_mb()
    gc.collect()
    outcomes.growth = (_threads() - before[0], _children() - before[1], rss - before[2])


def _run_step(outcomes: Outcomes, step: dict[str, Any], gold: GoldResult | None) -> Ran:
    unknown = set(step) - {"sql", "expect", "note"}
    assert not unknown, f"unknown keys of a step: {sorted(unknown)}"
    session, sql = outcomes.session, step["sql"]
    ran = Ran(session=session, path=outcomes.path, sql=sql, result=session.run(sql), gold=gold)
    STEP_CHECKS.check(ran, step.get("expect", {}))
    return ran


def _threads() -> int:
    return max(threading.active_count(), len(list(Path("/proc/self/task").iterdir())))


def _children() -> int:
    tasks = Path("/proc/self/task").iterdir()
    return sum(len((task / "children").read_text().split()) for task in tasks)


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _files(folder: Path) -> dict[str, str]:
    """Every file of the database's folder and of the working directory, with its digest."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for root in (folder, Path.cwd())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def _check_status(ran: Ran, expected: str) -> None:
    """A truncated result is `ok` to a case that says so beside; the contract calls it truncated."""
    outcome = ran.result.outcome
    truncated = outcome is Outcome.TRUNCATED and expected == "ok"
    assert_status("ok" if truncated else outcome.value, expected)


def _check_rows(ran: Ran, expected: list[Any]) -> None:
    (assert_same_rows if order_matters(ran.sql) else assert_same_bag)(ran.result.rows, expected)


def _check_case_status(outcomes: Outcomes, expected: str) -> None:
    if expected != "sequence":
        each(_check_status, _ran)(outcomes, expected)


def _check_status_each_one_of(outcomes: Outcomes, expected: list[Any]) -> None:
    """Statuses accepted of every statement, or a list of them for each."""
    accepted = expected if isinstance(expected[0], list) else [expected] * len(outcomes.ran)
    for ran, statuses in zip(outcomes.ran, accepted, strict=True):
        found = {ran.result.outcome.value}
        if found & {"denied", "invalid"}:
            found.add("error")
        assert found & set(statuses), f"{ran.sql}: {found}"


def _check_official_each(outcomes: Outcomes, expected: Any) -> None:
    gold = outcomes.session.run(outcomes.case.input["gold_sql"])
    official = equals(lambda ran: judge(ran.result, gold, verdict="official@1").correct)
    each(official, _ran)(outcomes, expected)


def _check_sql(outcomes: Outcomes, expected: list[Any]) -> None:
    for sql, rows in expected:
        result = outcomes.session.run(sql)
        assert result.ok, result.error
        assert_same_bag(result.rows, rows)


def _check_rows_left(outcomes: Outcomes, expected: dict[str, int]) -> None:
    with closing(open_read_only(outcomes.path)) as connection:
        for table, count in expected.items():
            found = connection.execute(f"SELECT count(*) FROM {quote_name(table)}").fetchall()
            assert found == [(count,)], table


def _is_unchanged(outcomes: Outcomes) -> bool:
    digest = hashlib.sha256(outcomes.path.read_bytes()).hexdigest()
    return digest == outcomes.before[str(outcomes.path)]


def _check_forbidden(outcomes: Outcomes, expected: Any) -> None:
    """Files that must not have been made, by name or path, where SQL might have put them."""
    for name in as_list(expected):
        for root in (outcomes.path.parent, Path.cwd()):
            path = root / name
            assert not path.exists() or str(path) in outcomes.before, path


def _other_process_can_write(outcomes: Outcomes) -> bool:
    """No lock is held: another process may write while the session is open."""
    command = [sys.executable, "-c", _WRITES, str(outcomes.path)]
    return subprocess.run(command, capture_output=True, timeout=600).returncode == 0


def _ran(outcomes: Outcomes) -> list[Ran]:
    return outcomes.ran


STEP_KEYS = {
    "status": _check_status,
    "rows": _check_rows,
    "n_rows": equals(lambda ran: len(ran.result.rows)),
    "truncated": equals(lambda ran: ran.result.outcome is Outcome.TRUNCATED),
    "lossy": equals(lambda ran: ran.result.lossy),
    "parses": equals(lambda ran: ran.result.parsed),
    "reward": lambda ran, expected: same_number(ran.reward, expected),
    "reward_max": at_most(lambda ran: ran.reward),
    "error_contains": contains(lambda ran: ran.result.error),
    "columns": equals(lambda ran: list(ran.result.columns)),
}
STEP_CHECKS = Checks(inputs="", by_key=STEP_KEYS)
CHECKS = Checks(
    inputs="ddl sql statements steps timeout_s row_cap gold_sql repeat forbidden_files",
    by_key={
        # of the case's only statement, or of every one
        **{
            key: lambda outcomes, expected, check=check: [
                check(ran, expected) for ran in outcomes.ran
            ]
            for key, check in STEP_KEYS.items()
        },
        **{
            f"{key}_each": each(STEP_KEYS[key], _ran)
            for key in ("status", "rows", "reward_max", "reward", "parses")
        },
        "status": _check_case_status,
        "status_each_one_of": _check_status_each_one_of,
        "official_each": _check_official_each,
        "check_sql": _check_sql,
        "rows_left": _check_rows_left,
        "db_unchanged": equals(_is_unchanged),
        "no_new_files": equals(lambda o: not _files(o.path.parent).keys() - o.before.keys()),
        "forbidden_files": _check_forbidden,
        "other_process_can_write": equals(_other_process_can_write),
        "leftover_threads": at_most(lambda o: o.growth[0]),
        "leftover_processes_growth": at_most(lambda o: o.growth[1]),
        "max_parent_rss_growth_mb": at_most(lambda o: o.growth[2]),
    },
)
