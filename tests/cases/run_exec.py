"""Capability exec+timeout: SQL on one session of the executor, and what it leaves behind."""

import gc
import hashlib
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.records.execution import Limits, Outcome, QueryResult
from envbuild.records.manifest import GoldResult
from envbuild.records.reward import RewardBreakdown
from envbuild.reward.score import score_answer
from envbuild.schema.read import read_schema
from envbuild.sql.connect import open_read_only
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
    close,
    for_each,
    says,
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
    """One statement on the session, with what it took."""

    session: Session
    path: Path
    sql: str
    result: QueryResult
    expected: dict[str, Any]
    gold: GoldResult | None = None

    def breakdown(self) -> RewardBreakdown:
        """What the statement earns against the case's gold."""
        return score_answer(
            self.sql,
            session=self.session,
            gold=self.gold or gold_of(self.session, "SELECT 'no answer gives this'"),
            schema=schema_of(self.path),
        )


@dataclass(kw_only=True)
class Outcomes:
    """Everything that the case ran."""

    case: Case
    path: Path
    session: Session
    ran: list[Ran] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    """Files of the two folders and their digests."""
    rss_growth_mb: float = 0.0
    threads_left: int = 0
    processes_growth: int = 0


def run(case: Case, folder: Path) -> None:
    """Runs the case's SQL on one session, and checks."""
    given = case.input
    path = write_database(folder / "case.sqlite", given.get("ddl", ""))
    limits = limits_of(given)
    outcomes = Outcomes(
        case=case, path=path, session=Session.open_file(path, limits=limits), before=_files(folder)
    )
    try:
        _run_all(outcomes)
        CHECKS.check(outcomes, case.expected)
        _check_forbidden(outcomes, given.get("forbidden_files", []))
    finally:
        outcomes.session.close()


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
    connection = open_read_only(path)
    try:
        return read_schema(connection)
    finally:
        connection.close()


def _run_all(outcomes: Outcomes) -> None:
    given, session = outcomes.case.input, outcomes.session
    gold = gold_of(session, given["gold_sql"]) if "gold_sql" in given else None
    repeat = int(given.get("repeat", 1))
    steps = [{"sql": given["sql"], "expect": {}}] if "sql" in given else []
    steps += [{"sql": sql, "expect": {}} for sql in given.get("statements", [])]
    steps += given.get("steps", [])
    if repeat > 1:
        for step in steps:  # whatever is started once and shared is no growth
            session.run(step["sql"])
    threads, processes, rss = _threads(), _children(), _rss_mb()
    for _ in range(repeat):
        outcomes.ran = [_run_step(outcomes, step, gold) for step in steps]
    outcomes.rss_growth_mb = _rss_mb() - rss
    gc.collect()
    outcomes.threads_left = _threads() - threads
    outcomes.processes_growth = _children() - processes


def _run_step(outcomes: Outcomes, step: dict[str, Any], gold: GoldResult | None) -> Ran:
    unknown = set(step) - {"sql", "expect", "note"}
    assert not unknown, f"unknown keys of a step: {sorted(unknown)}"
    expect = step.get("expect", {})
    STEP_CHECKS.refuse_unknown_expected(expect)
    result = outcomes.session.run(step["sql"])
    ran = Ran(
        session=outcomes.session,
        path=outcomes.path,
        sql=step["sql"],
        result=result,
        expected=expect,
        gold=gold,
    )
    STEP_CHECKS.check(ran, expect)
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


def _status_of(ran: Ran, expected: str) -> str:
    """A truncated result is `ok` to a case that says so beside; the contract calls it truncated."""
    outcome = ran.result.outcome
    if outcome is Outcome.TRUNCATED and expected == "ok":
        return "ok"
    return outcome.value


def _check_status(ran: Ran, expected: str) -> None:
    assert_status(_status_of(ran, expected), expected)


def _check_rows(ran: Ran, expected: list[Any]) -> None:
    if order_matters(ran.sql):
        assert_same_rows(ran.result.rows, expected)
    else:
        assert_same_bag(ran.result.rows, expected)


def _check_n_rows(ran: Ran, expected: int) -> None:
    assert len(ran.result.rows) == expected


def _check_truncated(ran: Ran, expected: bool) -> None:
    assert (ran.result.outcome is Outcome.TRUNCATED) is expected


def _check_lossy(ran: Ran, expected: bool) -> None:
    assert ran.result.lossy is expected


def _check_parses(ran: Ran, expected: bool) -> None:
    assert ran.result.parsed is expected, ran.result.error


def _check_reward(ran: Ran, expected: float | None) -> None:
    assert close(ran.breakdown().reward, expected), ran.breakdown()


def _check_reward_max(ran: Ran, expected: float) -> None:
    reward = ran.breakdown().reward
    assert reward is not None
    assert reward <= expected + 1e-9


def _check_error(ran: Ran, expected: Any) -> None:
    for text in as_list(expected):
        assert says(ran.result.error, text), ran.result.error


def _check_columns(ran: Ran, expected: list[str]) -> None:
    assert list(ran.result.columns) == expected


def _last(check: Any) -> Any:
    """The same check, of the case's only statement."""

    def checked(outcomes: Outcomes, expected: Any) -> None:
        for ran in outcomes.ran:
            check(ran, expected)

    return checked


def _each(check: Any) -> Any:
    """The same check of every statement: a value for each, or one for all."""

    def checked(outcomes: Outcomes, expected: Any) -> None:
        for ran, wanted in zip(outcomes.ran, for_each(expected, len(outcomes.ran)), strict=True):
            check(ran, wanted)

    return checked


def _check_case_status(outcomes: Outcomes, expected: str) -> None:
    if expected != "sequence":
        _last(_check_status)(outcomes, expected)


def _check_status_each_one_of(outcomes: Outcomes, expected: list[Any]) -> None:
    """Statuses accepted of every statement, or a list of them for each."""
    lists = expected if expected and isinstance(expected[0], list) else None
    accepted = for_each(lists, len(outcomes.ran)) if lists else [expected] * len(outcomes.ran)
    for ran, statuses in zip(outcomes.ran, accepted, strict=True):
        found = {ran.result.outcome.value}
        if ran.result.outcome.value in ("denied", "invalid"):
            found.add("error")
        assert found & set(statuses), f"{ran.sql}: {ran.result.outcome}"


def _check_official_each(outcomes: Outcomes, expected: Any) -> None:
    gold = outcomes.session.run(outcomes.case.input["gold_sql"])
    wanted = for_each(expected, len(outcomes.ran))
    for ran, correct in zip(outcomes.ran, wanted, strict=True):
        found = judge(ran.result, gold, verdict="official@1").correct
        assert found is correct, f"{ran.sql}: {found}"


def _check_sql(outcomes: Outcomes, expected: list[Any]) -> None:
    for sql, rows in expected:
        result = outcomes.session.run(sql)
        assert result.ok, result.error
        assert_same_bag(result.rows, rows)


def _check_rows_left(outcomes: Outcomes, expected: dict[str, int]) -> None:
    connection = open_read_only(outcomes.path)
    for table, count in expected.items():
        ((found,),) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchall()
        assert found == count, table
    connection.close()


def _check_unchanged(outcomes: Outcomes, expected: bool) -> None:
    digest = hashlib.sha256(outcomes.path.read_bytes()).hexdigest()
    assert (digest == outcomes.before[str(outcomes.path)]) is expected


def _check_no_new_files(outcomes: Outcomes, expected: bool) -> None:
    new = _files(outcomes.path.parent).keys() - outcomes.before.keys()
    assert (not new) is expected, new


def _check_forbidden(outcomes: Outcomes, expected: Any) -> None:
    """Files that must not have been made, by name or path, where SQL might have put them."""
    for name in as_list(expected):
        for root in (outcomes.path.parent, Path.cwd()):
            path = root / name
            assert not path.exists() or str(path) in outcomes.before, path


def _check_other_process(outcomes: Outcomes, expected: bool) -> None:
    """No lock is held: another process may write while the session is open."""
    done = subprocess.run(
        [sys.executable, "-c", _WRITES, str(outcomes.path)],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode == 0) is expected, done.stderr


def _check_rss(outcomes: Outcomes, expected: float) -> None:
    assert outcomes.rss_growth_mb <= expected


def _check_threads(outcomes: Outcomes, expected: int) -> None:
    assert outcomes.threads_left <= expected


def _check_processes(outcomes: Outcomes, expected: int) -> None:
    assert outcomes.processes_growth <= expected


STEP_KEYS = {
    "status": _check_status,
    "rows": _check_rows,
    "n_rows": _check_n_rows,
    "truncated": _check_truncated,
    "lossy": _check_lossy,
    "parses": _check_parses,
    "reward": _check_reward,
    "reward_max": _check_reward_max,
    "error_contains": _check_error,
    "columns": _check_columns,
}
STEP_CHECKS = Checks(inputs=frozenset(), by_key=STEP_KEYS)
CHECKS = Checks(
    inputs=frozenset(
        (
            *("ddl", "sql", "statements", "steps", "timeout_s", "row_cap", "gold_sql", "repeat"),
            "forbidden_files",
        )
    ),
    by_key={
        **{key: _last(check) for key, check in STEP_KEYS.items()},
        "status": _check_case_status,
        "status_each": _each(_check_status),
        "status_each_one_of": _check_status_each_one_of,
        "rows_each": _each(_check_rows),
        "official_each": _check_official_each,
        "reward_max_each": _each(_check_reward_max),
        "reward_each": _each(_check_reward),
        "parses_each": _each(_check_parses),
        "check_sql": _check_sql,
        "rows_left": _check_rows_left,
        "db_unchanged": _check_unchanged,
        "no_new_files": _check_no_new_files,
        "forbidden_files": _check_forbidden,
        "other_process_can_write": _check_other_process,
        "max_parent_rss_growth_mb": _check_rss,
        "leftover_threads": _check_threads,
        "leftover_processes_growth": _check_processes,
    },
)
