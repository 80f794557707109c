"""Cases about one query: its execution, what it reads, its mask, its verdicts and its reward."""

import gc
import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from envbuild.env.reward import reward_of, score_answer, with_consensus
from envbuild.errors import GoldError
from envbuild.manifest.buckets import PUBLISHED_EDGES, Edges
from envbuild.preflight.checks import TRIVIAL_CELLS
from envbuild.query.joins import join_share
from envbuild.records.episode import RewardBreakdown, RewardSettings, Tier
from envbuild.records.execution import Outcome, QueryResult, Verdict
from envbuild.records.manifest import GoldResult
from envbuild.sql.connect import quote_name
from envbuild.sql.from_names import order_matters
from envbuild.sql.gold_tables import read_gold_tables
from envbuild.sql.mask import mask_sql
from envbuild.sql.verdicts import decode_rows, judge
from tests.cases.databases import (
    Run,
    asked,
    build_rows,
    count_rows,
    gold_of,
    python,
    write_corpus,
)
from tests.cases.form import (
    Checks,
    as_list,
    at_most,
    check_all,
    close,
    contains,
    each,
    holds,
    lacks,
    refuse_unknown,
    same,
    same_bag,
    same_number,
    same_rows,
    same_status,
    says,
    value_of,
)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One statement on the session."""

    sql: str
    result: QueryResult
    reward: Callable[[], float | None]
    """What the statement earns against the case's gold."""


def _status(ran: Ran, expected: str) -> None:
    """A truncated result is `ok` to a case that says so; the contract calls it truncated."""
    outcome = ran.result.outcome
    truncated = outcome is Outcome.TRUNCATED and expected == "ok"
    same_status("ok" if truncated else outcome.value, expected)


def _rows(ran: Ran, expected: list[Any]) -> None:
    (same_rows if order_matters(ran.sql) else same_bag)(ran.result.rows, expected)


_STATEMENT: dict[str, Callable[[Ran, Any], None]] = {
    "status": _status,
    "rows": _rows,
    "reward": lambda ran, x: same_number(ran.reward(), x),
    "reward_max": lambda ran, x: at_most(ran.reward(), x),
    "error_contains": lambda ran, x: says(ran.result.error, x),
    "n_rows": lambda ran, x: same(len(ran.result.rows), x),
    "truncated": lambda ran, x: same(ran.result.outcome is Outcome.TRUNCATED, x),
    "lossy": lambda ran, x: same(ran.result.lossy, x),
    "parses": lambda ran, x: same(ran.result.parsed, x),
    "columns": lambda ran, x: same(list(ran.result.columns), x),
}
"""A key holds for every statement of the case, with `_each` for each its own value."""
ANOTHER_GOLD = gold_of(QueryResult(outcome=Outcome.OK, rows=(("no answer gives this",),)), "")
_WRITES = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
try:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE written_by_another (x)")
    connection.execute("ROLLBACK")
    print("written")
except sqlite3.OperationalError:
    pass
"""


def execution(run: Run) -> Checks:
    """SQL on one session of the executor, and what it leaves behind."""
    given, path = run.given, run.database()
    before, session = _files(), run.session(path)
    gold_sql = given.get("gold_sql", "SELECT 'no answer gives this'")
    schema = asked(path)

    def run_step(step: dict[str, Any]) -> Ran:
        refuse_unknown(list(step.keys() - {"sql", "expect"}), "a step")
        sql = step["sql"]

        def reward() -> float | None:
            gold = gold_of(session.run(gold_sql), gold_sql)
            return score_answer(sql, session=session, gold=gold, schema=schema).reward

        one = Ran(sql=sql, result=session.run(sql), reward=reward)
        own = {key: partial(check, one) for key, check in _STATEMENT.items()}
        check_all(own, step.get("expect", {}))
        return one

    steps = [{"sql": sql} for sql in run.listed("sql", "statements")] + given.get("steps", [])
    repeat = int(given.get("repeat", 1))
    for step in steps if repeat > 1 else ():  # what is started once and shared is no growth
        session.run(step["sql"])
    held = _held()
    ran = [[run_step(step) for step in steps] for _ in range(repeat)][-1]
    gc.collect()
    threads, children, rss = (now - then for now, then in zip(_held(), held, strict=True))

    def statuses(expected: list[Any]) -> None:
        """Statuses accepted of every statement, or a list of them for each."""
        accepted = expected if isinstance(expected[0], list) else [expected] * len(ran)
        for one, wanted in zip(ran, accepted, strict=True):
            found = one.result.outcome.value
            alike = {"error"} if found in ("denied", "invalid") else set()
            assert {found, *alike} & set(wanted), f"{one.sql}: {found}"

    def official(expected: Any) -> None:
        gold = session.run(gold_sql)
        each(same, [judge(r.result, gold, verdict="official@1").correct for r in ran], expected)

    def check_sql(expected: list[Any]) -> None:
        for sql, rows in expected:
            result = session.run(sql)
            assert result.ok, result.error
            same_bag(result.rows, rows)

    def forbidden_files(expected: Any) -> None:
        """Files that must not have been made, by name or path, where SQL might have put them."""
        made = _files().keys() - before.keys()
        for file in (root / name for name in as_list(expected) for root in (run.folder, Path())):
            assert str(file.absolute()) not in made
            assert not file.exists() or str(file.absolute()) in before, file

    forbidden_files(given.get("forbidden_files", []))
    return {
        **{key: partial(_every, check, ran) for key, check in _STATEMENT.items()},
        **{f"{key}_each": partial(each, check, ran) for key, check in _STATEMENT.items()},
        "status": lambda x: x == "sequence" or each(_status, ran, x),
        "status_each_one_of": statuses,
        "official_each": official,
        "check_sql": check_sql,
        "rows_left": lambda x: same(count_rows(path, x), x),
        "db_unchanged": lambda x: same(_files()[str(path)] == before[str(path)], x),
        "no_new_files": lambda x: same(not _files().keys() - before.keys(), x),
        "forbidden_files": forbidden_files,
        "other_process_can_write": lambda x: same(bool(python("-c", _WRITES, str(path))), x),
        "leftover_threads": lambda x: at_most(threads, x),
        "leftover_processes_growth": lambda x: at_most(children, x),
        "max_parent_rss_growth_mb": lambda x: at_most(rss, x),
    }


def _every(check: Callable[[Ran, Any], None], ran: list[Ran], expected: Any) -> None:
    for one in ran:
        check(one, expected)


def _files() -> dict[str, str]:
    """Every file below the working directory, the case's folder too, with its digest."""
    files = (path for path in Path.cwd().rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _held() -> tuple[int, int, float]:
    """Threads and children of this process, and its memory in MiB."""
    tasks = list(Path("/proc/self/task").iterdir())
    children = sum(len((task / "children").read_text().split()) for task in tasks)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    threads = max(threading.active_count(), len(tasks))
    return threads, children, pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def gold_tables(run: Run) -> Checks:
    """What a query reads, as SQLite knows it."""
    path, sql = run.database(), run.given.get("sql", "SELECT 1")
    tables: list[str] | None = None
    views, failure = None, ""
    try:
        read = asked(path, lambda connection: read_gold_tables(connection, sql))
        tables, views = sorted(read.tables), sorted(read.views)
    except GoldError as e:
        failure = str(e)

    def error(expected: Any) -> None:
        assert failure, tables
        says(failure, [] if expected is True else expected)

    return {
        "gold_tables": lambda x: same(tables, x and sorted(x)),
        "views": lambda x: same(views, sorted(x)),
        "error|error_contains": error,
        "status": lambda x: same_status("error" if failure else "ok", x),
    }


def mask(run: Run) -> Checks:
    """One query's mask, and lengths in buckets."""
    given, status = run.given, "ok"
    path, sql = run.database(), given.get("sql", "")
    names = given.get("identifiers")
    if isinstance(names, dict):  # tables with their columns
        names = [*names, *(name for columns in names.values() for name in columns)]
    if "ddl" in given:
        status = run.session(path).run(sql).outcome.value if sql else "ok"
        if names is None:
            schema = asked(path)
            columns = [column.name for table in schema.tables for column in table.columns]
            names = [*columns, *(table.name for table in schema.tables), *schema.views]
    identifiers = None if names is None else frozenset(names)
    edges = Edges(tuple(given.get("edges", PUBLISHED_EDGES)))

    def masked(sql: str) -> Any:
        return mask_sql(sql, identifiers=identifiers, mode=given.get("mask", "literals"))

    found = masked(sql)
    text = found.text if sql else str(given.get("masked_text"))
    length = found.length if sql else len(text)

    def buckets(expected: list[Any]) -> None:
        """`[[length, name], …]`, or the names of `masked_lengths` in their order."""
        lengths = given.get("masked_lengths", [])
        if not (expected and isinstance(expected[0], list)):
            expected = [list(pair) for pair in zip(lengths, expected, strict=True)]
        same([[length, edges.bucket(length)] for length, _ in expected], expected)
        assert not lengths or sorted(lengths) == sorted(length for length, _ in expected)

    return {
        "literals": lambda x: same(list(found.literals), x),
        "must_keep": lambda x: contains(text, x),
        "must_not_contain": lambda x: lacks(text, x),
        "same_mask_as": lambda x: each(same, [masked(sql).text for sql in as_list(x)], text),
        "different_mask_from": lambda x: holds(
            text not in [masked(sql).text for sql in as_list(x)]
        ),
        "masked": lambda x: same(text, x),
        "masked_length": lambda x: same((len(text), length), (x, x)),
        "bucket": lambda x: same(edges.bucket(length), x),
        "buckets": buckets,
        "status": lambda x: same_status(status, x),
    }


def compare(run: Run) -> Checks:
    """Verdicts, F1, rewards and consensus; with `swap` also with the sides exchanged."""
    checks = _sides(run, exchanged=False)
    if not (run.given.get("swap") or run.expected.get("swap")):
        return checks
    other = _sides(run, exchanged=True)

    def both(key: str, expected: Any, *groups: Any) -> None:
        checks[key](expected, *groups)
        if not key.endswith("_rows"):  # which of two lists of rows is the gold's has changed
            other[key](expected, *groups)

    return {key: partial(both, key) for key in checks}


def _sides(run: Run, *, exchanged: bool) -> Checks:
    given, path = run.given, run.database(f"case{int(exchanged)}")
    gold_sql, sqls = _write_sides(given, path)
    if exchanged and sqls:
        assert len(sqls) == 1, "only one prediction can change places with the gold"
        gold_sql, sqls = sqls[0], [gold_sql]
    session, schema = run.session(path), asked(path)
    asked_of, share = given.get("sqls"), partial(join_share, schema=schema)

    def score(sql: str, gold: GoldResult) -> RewardBreakdown:
        return score_answer(sql, session=session, gold=gold, schema=schema)

    gold = session.run(gold_sql)
    predicted = [session.run(sql) for sql in sqls]
    scored = [score(sql, gold_of(gold, gold_sql)) for sql in sqls]
    rewards = [*map(_reward_of_parts, given.get("cases", [])), *(one.reward for one in scored)]

    def correct(rule: str, number: int, tolerance: float | None = None) -> Any:
        return judge(
            predicted[number],
            gold,
            verdict=f"{'bag' if rule == 'multiset_equal' else rule}@1",
            ordered=order_matters(gold_sql),
            tolerance=tolerance,
        ).correct

    def verdict(expected: Any, rule: str, which: str | None) -> None:
        if which == "_each":
            each(same, [correct(rule, number) for number in range(len(sqls))], expected)
        else:
            same(correct(rule, 1 if which else 0), expected)

    def f1(expected: Any, which: str | None) -> None:
        found = [one.f1 for one in scored]
        part = found if which == "_each" else [found[1 if which else 0]]
        each(same_number, part, expected)

    def rows(result: QueryResult, expected: list[Any]) -> None:
        assert result.ok, result.error
        same_rows(result.rows, expected)

    def trivial(expected: bool) -> None:
        """The gold is empty or one cell that many wrong queries give too: preflight says so."""
        cells = [cell for row in gold.rows for cell in row]
        same(not cells or (len(cells) == 1 and cells[0] in TRIVIAL_CELLS), expected)

    def is_scored(expected: bool) -> None:
        for number, one in enumerate(scored):
            judged = judge(predicted[number], gold, verdict="bag@1").scored
            same([one.reward is not None, judged], [expected, expected])

    def stored_is_ignored(expected: bool) -> None:
        """The corpus's own stored rows, written by another SQLite, never become the gold's."""
        stored = json.dumps(given["stored_gold_rows"])
        question = {
            "question_id": "q",
            "db_id": "case",
            "gold_sql": gold_sql,
            "stored_result": stored,
        }
        folder = run.folder / "stored"
        corpus = write_corpus(folder, {"case": given.get("ddl", "")}, [question])
        assert corpus.questions()[0].stored_result is not None
        manifest = build_rows(corpus, folder / "manifest")
        (row,) = manifest.rows
        kept = decode_rows(manifest.gold(row.gold_id).result)
        same(kept == gold.rows, expected)
        same(manifest.index["configuration"]["sqlite"] != given.get("stored_with_sqlite"), expected)

    return {
        "(official|strict|multiset_equal|ordered|testsuite)(2|_each)?": verdict,
        "tolerant": lambda x: same(correct("bag", 0, float(given["tolerance"])), x),
        "f1(_2|_each)?": f1,
        "gold_rows": lambda x: rows(gold, x),
        "pred_rows": lambda x: rows(predicted[0], x),
        "trivial": trivial,
        "rewards": lambda x: each(same_number, rewards, x),
        "reward": lambda x: each(same_number, rewards, [x]),
        "reward_below": lambda x: each(lambda found, high: holds(found < high), rewards, x),
        "reward_min": lambda x: each(lambda found, low: at_most(low, found), rewards, x),
        "reward_max": lambda x: each(at_most, rewards, x),
        "scored": is_scored,
        "reason": lambda x: each(same, [one.verdict for one in scored], x),
        "order_matters": lambda x: each(same, [*map(order_matters, asked_of or [gold_sql])], x),
        "fk_join_share": lambda x: each(same_number, [*map(share, asked_of or sqls)], x),
        "swap": lambda x: None,
        "ignore_stored_if_version_differs": stored_is_ignored,
        **_group_checks(given.get("groups", []), score),
    }


def _write_sides(given: dict[str, Any], path: Path) -> tuple[str, list[str]]:
    """The SQL of gold and predictions; rows become tables that SQL reads back as they are."""
    sqls = [*([given["pred_sql"]] if "pred_sql" in given else []), *given.get("pred_sqls", [])]
    lists = [given[key] for key in ("pred", "pred2", "pred3") if key in given]
    lists += given.get("preds", [])
    if "gold" in given:
        lists.insert(0, given["gold"])
    width = max((len(row) for rows in lists for row in rows), default=1)
    queries = []
    with closing(apsw.Connection(str(path))) as connection:
        for number, rows in enumerate(lists):
            columns = [f"c{n}" for n in range(len(rows[0]) if rows else width)]
            table = quote_name(f"envbuild case {number}")
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", value_of(rows))
            queries.append(f"SELECT * FROM {table}")
    gold_sql = queries.pop(0) if "gold" in given else given.get("gold_sql", "SELECT 1")
    return gold_sql, [*sqls, *queries]


def _group_checks(
    groups: list[list[Any]], score: Callable[[str, GoldResult], RewardBreakdown]
) -> Checks:
    """Consensus: equal names are equal results, null is an answer that fails."""

    def consensus(group: list[Any]) -> list[float]:
        texts = ["'" + str(member).replace("'", "''") + "'" for member in group]
        sqls = [
            "SELECT no_such_column" if member is None else f"SELECT {text}"
            for member, text in zip(group, texts, strict=True)
        ]
        alone = [score(sql, ANOTHER_GOLD) for sql in sqls]
        return [one.consensus for one in with_consensus(alone)]

    def is_tie(group: list[Any]) -> bool:
        """Two largest classes are equal."""
        counts = sorted(Counter(member for member in group if member is not None).values())
        return len(counts) > 1 and counts[-1] == counts[-2] > 1

    found = list(map(consensus, groups))
    ties = [(group, paid) for group, paid in zip(groups, found, strict=True) if is_tie(group)]

    def tie_one_of(expected: list[list[float]]) -> None:
        """All of a tie, or nobody, get the bonus."""
        assert ties
        assert all(paid in expected for _, paid in ties), ties

    def same_for_reordered(expected: bool) -> None:
        """Tied groups of the same members, in whatever order, fare alike."""
        fates: dict[str, set[str]] = {}
        for group, paid in ties:
            fate = sorted(zip(map(str, group), paid, strict=True))
            fates.setdefault(str(sorted(map(str, group))), set()).add(str(fate))
        same(all(len(fate) == 1 for fate in fates.values()), expected)

    return {
        "consensus": lambda x: same(found, x),
        r"consensus_(\d+)": lambda x, number: same(found[int(number) - 1], x),
        "tie_one_of": tie_one_of,
        "tie_same_for_reordered": same_for_reordered,
    }


def _reward_of_parts(parts: dict[str, Any]) -> float | None:
    """The reward that the package's arithmetic makes of a case's parts."""
    known = {"match", "parses", "executes", "f1", "fk_join_share", "consensus", "reward", "scored"}
    refuse_unknown(list(parts.keys() - known), "a case")
    if parts.get("scored") is False:
        tier = Tier.UNSCORED
    elif parts.get("match"):
        tier = Tier.EQUIVALENT
    elif parts.get("executes"):
        tier = Tier.EXECUTABLE
    else:
        tier = Tier.PARSABLE if parts.get("parses") else Tier.INVALID
    settings = RewardSettings()
    breakdown = RewardBreakdown(
        tier=tier,
        reward=None,
        verdict=Verdict.EQUAL if parts.get("match") else Verdict.DIFFERENT,
        verdict_name=settings.verdict,
        f1=float(parts.get("f1") or 0.0),
        join_share=float(parts.get("fk_join_share") or 0.0),
        consensus=float(parts.get("consensus") or 0),
    )
    reward = reward_of(breakdown, settings)
    assert "reward" not in parts or close(reward, parts["reward"]), f"{parts}: {reward}"
    return reward
