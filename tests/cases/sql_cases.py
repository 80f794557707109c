"""Cases about one query: its execution, what it reads, its mask, its verdicts and its reward."""

import gc
import hashlib
import json
import os
import re
import threading
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from envbuild.env.reward import reward_of, score_answer, with_consensus
from envbuild.errors import GoldError
from envbuild.manifest.buckets import PUBLISHED_EDGES, Edges
from envbuild.manifest.build import build_manifest
from envbuild.manifest.read import open_manifest
from envbuild.manifest.settings import ManifestSettings
from envbuild.preflight.checks import TRIVIAL_CELLS
from envbuild.query.joins import join_share
from envbuild.records.episode import RewardBreakdown, RewardSettings, Tier
from envbuild.records.execution import Limits, Outcome, QueryResult, Verdict
from envbuild.records.manifest import GoldResult
from envbuild.sql.connect import quote_name
from envbuild.sql.execution.session import Session
from envbuild.sql.from_names import order_matters
from envbuild.sql.gold_tables import GoldTables, read_gold_tables
from envbuild.sql.mask import mask_sql
from envbuild.sql.verdicts import decode_rows, digest_rows, encode_rows, judge
from tests.cases.databases import (
    add_rows_as_table,
    asked,
    python,
    write_corpus,
    write_database,
)
from tests.cases.form import (
    Capability,
    Check,
    Keys,
    as_list,
    assert_same_bag,
    assert_same_rows,
    assert_status,
    at_most,
    close,
    contains,
    each,
    lacks,
    rows_of,
    same,
    same_number,
)

_WRITES = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE written_by_another (x)")
connection.execute("ROLLBACK")
"""
SETTINGS = RewardSettings()


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


@dataclass(kw_only=True)
class Ran(Keys):
    """One statement on the session."""

    session: Session
    path: Path
    sql: str
    result: QueryResult
    gold: GoldResult | None

    @property
    def reward(self) -> float | None:
        """What the statement earns against the case's gold."""
        gold = self.gold or gold_of(self.session, "SELECT 'no answer gives this'")
        schema = asked(self.path)
        return score_answer(self.sql, session=self.session, gold=gold, schema=schema).reward

    def check_status(self, expected: str) -> None:
        """A truncated result is `ok` to a case that says so; the contract calls it truncated."""
        outcome = self.result.outcome
        truncated = outcome is Outcome.TRUNCATED and expected == "ok"
        assert_status("ok" if truncated else outcome.value, expected)

    def check_rows(self, expected: list[Any]) -> None:
        compare = assert_same_rows if order_matters(self.sql) else assert_same_bag
        compare(self.result.rows, expected)

    def check_reward(self, expected: float | None) -> None:
        same_number(self.reward, expected)

    def check_reward_max(self, expected: float) -> None:
        at_most(self.reward, expected)

    def check_error_contains(self, expected: Any) -> None:
        contains(self.result.error, expected)

    def found_n_rows(self) -> int:
        return len(self.result.rows)

    def found_truncated(self) -> bool:
        return self.result.outcome is Outcome.TRUNCATED

    def found_lossy(self) -> bool:
        return self.result.lossy

    def found_parses(self) -> bool | None:
        return self.result.parsed

    def found_columns(self) -> list[str]:
        return list(self.result.columns)


class Execution(Capability):
    """SQL on one session of the executor, and what it leaves behind.

    A key of a statement holds for every statement, with `_each` for each its own value.
    """

    inputs = "ddl sql statements steps timeout_s row_cap gold_sql repeat forbidden_files"

    def run(self) -> None:
        self.path = write_database(self.folder / "case.sqlite", self.given.get("ddl", ""))
        self.before = self._files()
        with Session.open_file(self.path, limits=limits_of(self.given)) as self.session:
            self._run_all()
            self.check(self.case.expected)
            self.check_forbidden_files(self.given.get("forbidden_files", []))

    def find(self, key: str) -> Check | None:
        base = key.removesuffix("_each")
        if (own := super().find(key)) or not any(hasattr(Ran, f"{k}_{base}") for k in _KINDS):
            return own

        def check_step(ran: Ran, wanted: Any) -> None:
            ran.check({base: wanted})

        if base != key:
            return lambda expected: each(check_step, self.ran, expected)
        return lambda expected: [check_step(ran, expected) for ran in self.ran] and None

    def _run_all(self) -> None:
        given, self.ran = self.given, []
        gold = gold_of(self.session, given["gold_sql"]) if "gold_sql" in given else None
        sqls = [given["sql"]] if "sql" in given else []
        steps = [{"sql": sql} for sql in [*sqls, *given.get("statements", [])]]
        steps += given.get("steps", [])
        repeat = int(given.get("repeat", 1))
        for step in steps if repeat > 1 else ():  # what is started once and shared is no growth
            self.session.run(step["sql"])
        before = _threads(), _children(), _rss_mb()
        for _ in range(repeat):
            self.ran = [self._run_step(step, gold) for step in steps]
        rss = _rss_mb()
        gc.collect()
        self.growth = (_threads() - before[0], _children() - before[1], rss - before[2])

    def _run_step(self, step: dict[str, Any], gold: GoldResult | None) -> Ran:
        unknown = set(step) - {"sql", "expect", "note"}
        assert not unknown, f"unknown keys of a step: {sorted(unknown)}"
        sql, session = step["sql"], self.session
        ran = Ran(session=session, path=self.path, sql=sql, result=session.run(sql), gold=gold)
        ran.check(step.get("expect", {}))
        return ran

    def _files(self) -> dict[str, str]:
        """Every file of the database's folder and of the working directory, with its digest."""
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for root in (self.folder, Path.cwd())
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }

    def check_status(self, expected: str) -> None:
        if expected != "sequence":
            each(Ran.check_status, self.ran, expected)

    def check_status_each_one_of(self, expected: list[Any]) -> None:
        """Statuses accepted of every statement, or a list of them for each."""
        accepted = expected if isinstance(expected[0], list) else [expected] * len(self.ran)
        for ran, statuses in zip(self.ran, accepted, strict=True):
            found = {ran.result.outcome.value}
            if found & {"denied", "invalid"}:
                found.add("error")
            assert found & set(statuses), f"{ran.sql}: {found}"

    def check_official_each(self, expected: Any) -> None:
        gold = self.session.run(self.given["gold_sql"])
        judged = [judge(ran.result, gold, verdict="official@1").correct for ran in self.ran]
        each(same, judged, expected)

    def check_check_sql(self, expected: list[Any]) -> None:
        for sql, rows in expected:
            result = self.session.run(sql)
            assert result.ok, result.error
            assert_same_bag(result.rows, rows)

    def check_rows_left(self, expected: dict[str, int]) -> None:
        same({table: count_rows(self.path, table) for table in expected}, expected)

    def found_db_unchanged(self) -> bool:
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        return digest == self.before[str(self.path)]

    def found_no_new_files(self) -> bool:
        return not self._files().keys() - self.before.keys()

    def check_forbidden_files(self, expected: Any) -> None:
        """Files that must not have been made, by name or path, where SQL might have put them."""
        for name in as_list(expected):
            for root in (self.folder, Path.cwd()):
                path = root / name
                assert not path.exists() or str(path) in self.before, path

    def found_other_process_can_write(self) -> bool:
        """No lock is held: another process may write while the session is open."""
        return python("-c", _WRITES, str(self.path)).returncode == 0

    def check_leftover_threads(self, expected: float) -> None:
        at_most(self.growth[0], expected)

    def check_leftover_processes_growth(self, expected: float) -> None:
        at_most(self.growth[1], expected)

    def check_max_parent_rss_growth_mb(self, expected: float) -> None:
        at_most(self.growth[2], expected)


_KINDS = ("check", "found")


def _threads() -> int:
    return max(threading.active_count(), len(list(Path("/proc/self/task").iterdir())))


def _children() -> int:
    tasks = Path("/proc/self/task").iterdir()
    return sum(len((task / "children").read_text().split()) for task in tasks)


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def count_rows(path: Path, table: str) -> int:
    """Rows of one table."""
    query = f"SELECT count(*) FROM {quote_name(table)}"
    ((count,),) = asked(path, lambda connection: connection.execute(query).fetchall())
    return int(count)


class GoldTablesOfQuery(Capability):
    """What a query reads, as SQLite knows it."""

    inputs = "ddl sql"

    def run(self) -> None:
        path = write_database(self.folder / "case.sqlite", self.given.get("ddl", ""))
        self.read: GoldTables | None = None
        self.error: GoldError | None = None
        try:
            self.read = asked(path, lambda c: read_gold_tables(c, self.given["sql"]))
        except GoldError as e:
            self.error = e
        self.check(self.case.expected)

    def check_gold_tables(self, expected: list[str] | None) -> None:
        if expected is None:
            assert self.error is not None
        else:
            assert self.read is not None, self.error
            same(sorted(self.read.tables), sorted(expected))

    def check_views(self, expected: list[str]) -> None:
        assert self.read is not None, self.error
        same(sorted(self.read.views), sorted(expected))

    def check_error(self, expected: Any) -> None:
        assert self.error is not None, self.read
        if expected is not True:
            contains(str(self.error), expected)

    check_error_contains = check_error

    def check_status(self, expected: str) -> None:
        assert_status("error" if self.error else "ok", expected)


class Mask(Capability):
    """One query's mask, and lengths in buckets."""

    inputs = "sql ddl identifiers masked_lengths edges masked_text mask"

    def run(self) -> None:
        given, self.status = self.given, "ok"
        names = given.get("identifiers")
        if isinstance(names, dict):  # tables with their columns
            names = [*names, *(name for columns in names.values() for name in columns)]
        if "ddl" in given:
            path = write_database(self.folder / "case.sqlite", given["ddl"])
            if "sql" in given:
                with Session.open_file(path) as session:
                    self.status = session.run(given["sql"]).outcome.value
            if names is None:
                schema = asked(path)
                columns = [c.name for t in schema.tables for c in t.columns]
                names = [*columns, *(t.name for t in schema.tables), *schema.views]
        self.identifiers = None if names is None else frozenset(names)
        self.edges = list(given.get("edges", PUBLISHED_EDGES))
        self.masked = self._mask(given["sql"]) if "sql" in given else None
        self.text = self.masked.text if self.masked else str(given.get("masked_text"))
        self.check(self.case.expected)

    def _mask(self, sql: str) -> Any:
        mode = self.given.get("mask", "literals")
        return mask_sql(sql, identifiers=self.identifiers, mode=mode)

    def found_literals(self) -> list[str]:
        assert self.masked is not None
        return list(self.masked.literals)

    def check_must_keep(self, expected: Any) -> None:
        contains(self.text, expected, exactly=True)

    def check_must_not_contain(self, expected: Any) -> None:
        lacks(self.text, expected)

    def check_same_mask_as(self, expected: Any) -> None:
        each(same, [self._mask(sql).text for sql in as_list(expected)], self.text)

    def check_different_mask_from(self, expected: Any) -> None:
        assert self.text not in [self._mask(sql).text for sql in as_list(expected)]

    def found_masked(self) -> str:
        return self.text

    def check_masked_length(self, expected: int) -> None:
        same(len(self.text), expected)
        assert self.masked is None or self.masked.length == expected

    def found_bucket(self) -> str:
        return Edges(tuple(self.edges)).bucket(len(self.text))

    def check_buckets(self, expected: list[Any]) -> None:
        """`[[length, name], …]`, or the names of `masked_lengths` in their order."""
        lengths = self.given.get("masked_lengths", [])
        if not (expected and isinstance(expected[0], list)):
            expected = [list(pair) for pair in zip(lengths, expected, strict=True)]
        same(
            [[length, Edges(tuple(self.edges)).bucket(length)] for length, _ in expected], expected
        )
        assert not lengths or sorted(lengths) == sorted(length for length, _ in expected)

    def check_status(self, expected: str) -> None:
        assert_status(self.status, expected)


class Reward(Capability):
    """Verdicts, F1, rewards and consensus over rows or SQL, also with the sides exchanged."""

    inputs = (
        "gold pred pred2 pred3 preds ddl gold_sql pred_sql pred_sqls tolerance cases groups "
        "timeout_s row_cap swap sqls stored_gold_rows stored_with_sqlite"
    )
    patterns: ClassVar = {
        r"(official|strict|multiset_equal|ordered|testsuite)": "match_verdict",
        r"(official|strict|multiset_equal)(2|_each)": "match_verdict",
        r"consensus_(\d+)": "match_consensus_of",
        r"f1(_2|_each)?": "match_f1",
    }
    _rules: ClassVar = {"multiset_equal": "bag"}

    def run(self) -> None:
        swap = self.given.get("swap") or self.case.expected.get("swap")
        for exchanged in (False, True) if swap else (False,):
            self.path = self.folder / f"case{int(exchanged)}.sqlite"
            write_database(self.path, self.given.get("ddl", ""))
            self._read_sides(exchanged=exchanged)
            with Session.open_file(self.path, limits=limits_of(self.given)) as self.session:
                self._run_sides()
                expected = self.case.expected
                if exchanged:  # which of two lists of rows is the gold's has changed too
                    expected = {k: v for k, v in expected.items() if not k.endswith("_rows")}
                self.check(expected)

    def _read_sides(self, *, exchanged: bool) -> None:
        """The SQL of gold and predictions; rows become tables that SQL reads back as they are."""
        given = self.given
        self.gold_sql = given.get("gold_sql", "")
        self.sqls = [given["pred_sql"]] if "pred_sql" in given else []
        self.sqls += given.get("pred_sqls", [])
        lists = [given[key] for key in ("pred", "pred2", "pred3") if key in given]
        lists += given.get("preds", [])
        rows = [row for rows in (given.get("gold", []), *lists) for row in rows]
        width = max(map(len, rows), default=1)
        if "gold" in given:
            self.gold_sql = add_rows_as_table(self.path, "gold", rows_of(given["gold"]), width)
        for n, found in enumerate(lists):
            self.sqls.append(add_rows_as_table(self.path, f"pred{n}", rows_of(found), width))
        if exchanged and self.sqls:
            assert len(self.sqls) == 1, "only one prediction can change places with the gold"
            self.gold_sql, self.sqls = self.sqls[0], [self.gold_sql]

    def _run_sides(self) -> None:
        self.__dict__.pop("breakdowns", None)
        self.gold = self.session.run(self.gold_sql) if self.gold_sql else None
        self.stored = gold_of(self.session, self.gold_sql) if self.gold_sql else None
        self.predicted = [self.session.run(sql) for sql in self.sqls]
        self.groups = list(map(self._consensus, self.given.get("groups", [])))
        self.parts = list(map(_reward_of_parts, self.given.get("cases", [])))

    @cached_property
    def breakdowns(self) -> list[RewardBreakdown]:
        """What each prediction earns, before any group is known."""
        assert self.stored is not None
        return [self._score(sql, self.stored) for sql in self.sqls]

    def _score(self, sql: str, gold: GoldResult) -> RewardBreakdown:
        return score_answer(sql, session=self.session, gold=gold, schema=asked(self.path))

    def _judge(self, number: int, rule: str, tolerance: float | None = None) -> Any:
        assert self.gold is not None
        ordered = order_matters(self.gold_sql)
        predicted = self.predicted[number]
        return judge(predicted, self.gold, verdict=rule, ordered=ordered, tolerance=tolerance)

    def _consensus(self, group: list[Any]) -> list[float]:
        """The members' consensus: equal names are equal results, null is an answer that fails."""
        gold = gold_of(self.session, "SELECT 'the gold is something else'")
        texts = ["'" + str(member).replace("'", "''") + "'" for member in group]
        sqls = [
            "SELECT no_such_column" if member is None else f"SELECT {text}"
            for member, text in zip(group, texts, strict=True)
        ]
        return [b.consensus for b in with_consensus([self._score(sql, gold) for sql in sqls])]

    def match_verdict(self, match: re.Match[str], expected: Any) -> None:
        rule = f"{self._rules.get(match[1], match[1])}@1"
        correct = [self._judge(n, rule).correct for n in range(len(self.sqls))]
        if match[0].endswith("_each"):
            each(same, correct, expected)
        else:
            same(correct[1 if match[0].endswith("2") else 0], expected)

    def found_tolerant(self) -> bool | None:
        return bool(self._judge(0, "bag@1", float(self.given["tolerance"])).correct)

    def match_f1(self, match: re.Match[str], expected: Any) -> None:
        found = [b.f1 for b in self.breakdowns]
        if match[1] == "_each":
            each(same_number, found, expected)
        else:
            same_number(found[1 if match[1] else 0], expected)

    def check_gold_rows(self, expected: list[Any]) -> None:
        _check_rows(self.gold, expected)

    def check_pred_rows(self, expected: list[Any]) -> None:
        _check_rows(self.predicted[0], expected)

    def found_trivial(self) -> bool:
        """The gold is empty or one cell that many wrong queries give too: preflight says so."""
        assert self.gold is not None
        rows = self.gold.rows
        return not rows or (len(rows) == 1 == len(rows[0]) and rows[0][0] in TRIVIAL_CELLS)

    def _rewards(self) -> list[Any]:
        return self.parts or [b.reward for b in self.breakdowns]

    def check_rewards(self, expected: Any) -> None:
        each(same_number, self._rewards(), expected)

    def check_reward(self, expected: Any) -> None:
        each(same_number, self._rewards(), [expected])

    def check_reward_below(self, expected: Any) -> None:
        each(lambda found, bound: same(found < bound, True), self._rewards(), expected)

    def check_reward_min(self, expected: Any) -> None:
        each(lambda found, bound: at_most(bound, found), self._rewards(), expected)

    def check_reward_max(self, expected: Any) -> None:
        each(at_most, self._rewards(), expected)

    def check_scored(self, expected: bool) -> None:
        for number, breakdown in enumerate(self.breakdowns):
            same(breakdown.reward is not None, expected)
            same(self._judge(number, "bag@1").scored, expected)

    def check_reason(self, expected: Any) -> None:
        each(same, [b.verdict for b in self.breakdowns], expected)

    def found_consensus(self) -> list[list[float]]:
        return self.groups

    def match_consensus_of(self, match: re.Match[str], expected: list[float]) -> None:
        same(self.groups[int(match[1]) - 1], [float(value) for value in expected])

    def _ties(self) -> list[tuple[list[Any], list[float]]]:
        """The groups in which two largest classes are equal."""

        def is_tie(group: list[Any]) -> bool:
            counts = sorted(group.count(m) for m in {m for m in group if m is not None})
            return len(counts) > 1 and counts[-1] == counts[-2] > 1

        pairs = zip(self.given["groups"], self.groups, strict=True)
        return [(given, found) for given, found in pairs if is_tie(given)]

    def check_tie_one_of(self, expected: list[list[float]]) -> None:
        """All of a tie, or nobody, get the bonus."""
        ties = self._ties()
        assert ties
        assert all(found in [list(map(float, one)) for one in expected] for _, found in ties), ties

    def check_tie_same_for_reordered(self, expected: bool) -> None:
        """Tied groups of the same members, in whatever order, fare alike."""
        paid: dict[tuple[str, ...], set[Any]] = {}
        for given, found in self._ties():
            fate = tuple(sorted(zip(map(str, given), found, strict=True)))
            paid.setdefault(tuple(sorted(map(str, given))), set()).add(fate)
        same(all(len(fates) == 1 for fates in paid.values()), expected)

    def check_order_matters(self, expected: Any) -> None:
        each(same, list(map(order_matters, self.given.get("sqls") or [self.gold_sql])), expected)

    def check_fk_join_share(self, expected: Any) -> None:
        share = partial(join_share, schema=asked(self.path))
        each(same_number, list(map(share, self.given.get("sqls") or self.sqls)), expected)

    def check_swap(self, expected: Any) -> None:
        """`run` does it."""

    def check_ignore_stored_if_version_differs(self, expected: bool) -> None:
        """The corpus's own stored rows, written by another SQLite, never become the gold's."""
        given, folder = self.given, self.folder / "stored"
        question = {
            "question_id": "q",
            "db_id": "case",
            "gold_sql": given["gold_sql"],
            "stored_result": json.dumps(given["stored_gold_rows"]),
        }
        corpus = write_corpus(folder, {"case": given.get("ddl", "")}, [question])
        assert corpus.questions()[0].stored_result is not None
        build_manifest([corpus], folder / "manifest", settings=ManifestSettings(), workers=1)
        manifest = open_manifest(folder / "manifest")
        (row,) = manifest.rows
        kept = decode_rows(manifest.gold(row.gold_id).result)
        assert self.gold is not None
        assert expected is True
        assert kept == self.gold.rows, "the manifest's gold is not what this SQLite gives"
        assert manifest.index["configuration"]["sqlite"] != given.get("stored_with_sqlite"), (
            "the stored version is the one that runs here"
        )


def _reward_of_parts(parts: dict[str, Any]) -> float | None:
    """The reward that the package's arithmetic makes of a case's parts."""
    known = {"match", "parses", "executes", "f1", "fk_join_share", "consensus", "reward", "scored"}
    assert set(parts) <= known, f"unknown keys of a case: {sorted(set(parts) - known)}"
    if parts.get("scored") is False:
        tier = Tier.UNSCORED
    elif parts.get("match"):
        tier = Tier.EQUIVALENT
    elif parts.get("executes"):
        tier = Tier.EXECUTABLE
    else:
        tier = Tier.PARSABLE if parts.get("parses") else Tier.INVALID
    breakdown = RewardBreakdown(
        tier=tier,
        reward=None,
        verdict=Verdict.EQUAL if parts.get("match") else Verdict.DIFFERENT,
        verdict_name=SETTINGS.verdict,
        f1=float(parts.get("f1") or 0.0),
        join_share=float(parts.get("fk_join_share") or 0.0),
        consensus=float(parts.get("consensus") or 0),
    )
    reward = reward_of(breakdown, SETTINGS)
    assert "reward" not in parts or close(reward, parts["reward"]), f"{parts}: {reward}"
    return reward


def _check_rows(result: QueryResult | None, expected: list[Any]) -> None:
    assert result is not None
    assert result.ok, result.error
    assert_same_rows(result.rows, expected)
