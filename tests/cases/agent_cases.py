"""Cases about what an agent does: episodes through their tools, and what trainers get of them."""

import asyncio
import json
import math
import os
import pickle
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar
from unittest.mock import patch

from envbuild.env.episode import TextEpisode
from envbuild.env.reward import score_answer
from envbuild.env.views import open_database
from envbuild.io.parquet import open_parquet
from envbuild.records.episode import EpisodeSettings, RewardBreakdown, Task, ToolCall, Turn
from envbuild.sql.connect import quote_name
from envbuild.sql.execution.session import Session
from envbuild.train.completions import completion_rewards, reward_record
from envbuild.train.export import export_manifest
from envbuild.train.trainer_env import MANIFEST_VARIABLE, TrainerEnv
from tests.cases.databases import asked, python, write_database, write_manifest
from tests.cases.form import (
    Capability,
    as_list,
    assert_same_bag,
    at_most,
    close,
    contains,
    each,
    lacks,
    same,
    same_number,
)
from tests.cases.manifest_cases import iter_leaves
from tests.cases.sql_cases import count_rows, gold_of, limits_of

DEFAULTS = EpisodeSettings()
FAILED_RESULTS = ("error_result", "format_error_result", "error", "denied", "invalid")
ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT count(*) FROM r"
_CALL = re.compile(r"(?:call )?(\w+)(?:\((.*)\))?", re.DOTALL)


class Protocol(Capability):
    """Turns, calls and queries through a whole episode on the case's database."""

    inputs = "turn turns ddl calls calls_per_turn queries final"
    patterns: ClassVar = {
        r"turn(\d+)": "match_turn",
        r"one_of_turn(\d+)": "match_one_of_turn",
        r"rows_left_in_(\w+)": "match_rows_left_in",
    }

    def run(self) -> None:
        given = self.given
        self.path = write_database(self.folder / "case.sqlite", given.get("ddl", ""))
        turns = [given["turn"]] if "turn" in given else []
        turns += given.get("turns", [])
        turns += [json.dumps(call) for call in given.get("calls", [])]
        turns += map(_query, given.get("queries", []))
        settings = EpisodeSettings(
            tool_turns=max(DEFAULTS.tool_turns, len(turns) + 1),
            calls_a_turn=given.get("calls_per_turn"),
            failing_queries=DEFAULTS.failing_queries if "queries" in given else len(turns) + 1,
        )
        database = open_database(self.path)
        self.episode = TextEpisode(Task(question="?"), database, settings=settings)
        try:
            self.stopped_after = self._feed(turns)
            self.before_final = not self.episode.over
            if "final" in given:  # the tool turns are used up by saying nothing
                while (request := self.episode.next_request()) is not None:
                    final = given["final"] or ""
                    self.episode.feed(final if request.kind == "final" else "Let me think.")
            self.turns = self.episode.turns
            self.calls = [call for turn in self.turns for call in turn.calls]
            self.observations = "\n".join(turn.observation for turn in self.turns)
            self.check(self.case.expected)
        finally:
            self.episode.close()

    def _feed(self, turns: list[str]) -> int | None:
        """After how many queries exploration was stopped; None where it was not."""
        for number, turn in enumerate(turns, 1):
            if self.episode.over:
                return number - 1
            self.episode.feed(turn)
            if self.episode.over or self.episode.exploration_ended_by:
                return number
        return None

    def _errors(self) -> int:
        """Failed calls, and turns that held no call."""
        return sum(sum(c.failed for c in t.calls) if t.calls else 1 for t in self.turns)

    def check_calls(self, expected: list[Any]) -> None:
        """The calls that were made, with their arguments; unreadable ones are no calls."""
        made = [(c.tool, json.loads(c.arguments)) for c in self.calls if _is_call(c)]
        same(made, [(c["tool"], c.get("args", {})) for c in expected])

    def check_must_include_calls(self, expected: list[Any]) -> None:
        for wanted in expected:
            assert any(_is_that(call, wanted) for call in self.calls), f"{wanted}: {self.calls}"

    def check_preferred_calls(self, expected: list[Any]) -> None:
        """Nothing else is called: the rest may be called or refused."""
        allowed = [*expected, *self.case.expected.get("must_include_calls", [])]
        for call in self.calls:
            assert call.failed or any(_is_that(call, wanted) for wanted in allowed), call

    def check_n_error_results_at_least(self, least: int) -> None:
        at_most(least, self._errors())

    def check_results(self, expected: list[Any]) -> None:
        for turn, wanted in zip(self.turns, expected, strict=True):
            assert all(_turn_matches(turn, one) for one in as_list(wanted)), f"{wanted}: {turn}"

    def found_rollout_continues(self) -> bool:
        return self.before_final

    def found_episode_ended(self) -> bool:
        return self.episode.over

    def match_turn(self, match: re.Match[str], expected: Any) -> None:
        self.match_one_of_turn(match, [expected])

    def match_one_of_turn(self, match: re.Match[str], expected: list[Any]) -> None:
        turn = self.turns[int(match[1]) - 1]
        assert any(_turn_matches(turn, wanted) for wanted in expected), f"{expected}: {turn}"

    def check_rows_left(self, expected: dict[str, int]) -> None:
        same({table: count_rows(self.path, table) for table in expected}, expected)

    def match_rows_left_in(self, match: re.Match[str], expected: int) -> None:
        same(count_rows(self.path, match[1]), expected)

    def check_status(self, expected: str) -> None:
        same(not self._errors(), expected == "ok")

    def check_error_contains(self, expected: Any) -> None:
        contains(self.observations, expected)

    def check_null_distinct_from(self, expected: list[str]) -> None:
        """A NULL never looks like one of these texts."""
        literals = ["'" + text.replace("'", "''") + "'" for text in expected]
        shown = list(map(self._shown, ["NULL", *literals]))
        assert len(set(shown)) == len(shown), shown

    def _shown(self, expression: str) -> str:
        episode = TextEpisode(Task(question="?"), open_database(self.path))
        try:
            episode.feed(_query(f"SELECT {expression} AS {quote_name('c')}"))
            (call,) = episode.turns[0].calls
            return call.result
        finally:
            episode.close()

    def check_no_token(self, expected: Any) -> None:
        for token in as_list(expected):
            pattern = rf"(?<![A-Za-z]){re.escape(token)}(?![A-Za-z])"
            assert not re.search(pattern, self.observations), f"{token} in {self.observations}"

    def check_max_rows_returned(self, expected: Any) -> None:
        """An upper bound of every call, or one for each."""
        each(at_most, [call.rows for call in self.calls], expected)

    def check_must_contain(self, expected: Any) -> None:
        contains(self.observations, expected, exactly=True)

    def check_must_not_contain(self, expected: Any) -> None:
        lacks(self.observations, expected)

    def check_final_sql(self, expected: str | None) -> None:
        found, wanted = (
            " ".join(sql.split()).rstrip("; ")
            for sql in (self.episode.record().sql, expected or "")
        )
        same(found, wanted)

    def found_ended_by(self) -> str:
        return self.episode.record().ended_by.value

    def found_exploration_stopped_after_query(self) -> int | None:
        return self.stopped_after


def _query(sql: str) -> str:
    return json.dumps({"tool": "run_query", "args": {"sql": sql}})


def _is_call(call: ToolCall) -> bool:
    """Well formed: not one that could not be read."""
    return bool(call.tool) and call.arguments.startswith("{")


def _is_that(call: ToolCall, wanted: Any) -> bool:
    """A call given as an object, or as `call NAME(argument=value, …)`."""
    if isinstance(wanted, dict):
        if call.tool != wanted["tool"] or not _is_call(call):
            return False
        return "args" not in wanted or bool(json.loads(call.arguments) == wanted["args"])
    match = _CALL.fullmatch(wanted.strip())
    assert match, f"unknown way to name a call: {wanted}"
    if call.tool != match[1]:
        return False
    shown = ", ".join(f"{k}={v}" for k, v in json.loads(call.arguments).items())
    return not match[2] or shown == match[2]


def _turn_matches(turn: Turn, wanted: Any) -> bool:
    """A call, a status, `contains: …`, `not contains: …`, `equals: …`, or text that was said."""
    said = turn.observation
    if wanted in FAILED_RESULTS:
        return bool(said) and (not turn.calls or any(c.failed for c in turn.calls))
    if wanted in ("ok", "result"):
        return bool(turn.calls) and not any(call.failed for call in turn.calls)
    if isinstance(wanted, dict) or str(wanted).startswith("call"):
        return any(_is_that(call, wanted) and not call.failed for call in turn.calls)
    kind, colon, text = str(wanted).partition(":")
    match kind.strip().lower().replace("_", " ") if colon else "":
        case "contains":
            return text.strip() in said
        case "not contains" | "does not contain":
            return text.strip() not in said
        case "equals":
            return any(call.result == text.strip() for call in turn.calls)
        case _:
            return wanted in said


_TYPES: dict[str, type] = {
    **{"str": str, "string": str, "int": int, "float": float, "bool": bool, "list": list},
    **{"struct": dict, "dict": dict},
}
_SAMPLES: dict[str, str | None] = {
    **dict.fromkeys(("correct", "right", "match", "equal", "equivalent", "ok"), "gold"),
    **dict.fromkeys(("wrong", "different", "executable"), "SELECT 'something else'"),
    **dict.fromkeys(("error", "parsable", "runtime error"), "SELECT no_such_column"),
    **dict.fromkeys(("syntax error", "invalid", "unparsable"), "SELEC 1"),
    **dict.fromkeys(("timeout", "gold timeout"), ENDLESS),
    **dict.fromkeys(("gold error", "unscored"), "SELECT 1"),
    **dict.fromkeys(("", "empty", "no answer", "no prediction"), None),
}
"""Words for what a sample came to, and SQL that comes to it."""
_RUN_MANY = """
import json, os, resource, sys
from pathlib import Path
from envbuild.records.execution import Limits
from envbuild.sql.execution.session import Session

given = json.load(sys.stdin)
if given["ulimit_n"]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (given["ulimit_n"], hard))
other, growth, first = [], 0, None
for number in range(given["n"]):
    try:
        limits = Limits(seconds=given["seconds"])
        with Session.open_file(Path(given["path"]), limits=limits) as session:
            for sql in given["sqls"]:
                error = session.run(sql).error
                if "unable to open" in error or "too many" in error.lower():
                    other.append(error)
    except Exception as e:
        other.append(f"{type(e).__name__}: {e}")
    now = len(os.listdir("/proc/self/fd"))
    first = now if first is None else first
    growth = max(growth, now - first)
print(json.dumps({"growth": growth, "other": other}))
"""


class Trainers(Capability):
    """Exports, rewards from anywhere, and what is left behind."""

    inputs = (
        "record records databases target call_from ddl gold_sql preds timeout_s "
        "completions_a completions_b columns sql samples n_good bad golds sqls n ulimit_n"
    )

    def run(self) -> None:
        self.path = write_database(self.folder / "case.sqlite", self.given.get("ddl", ""))
        with Session.open_file(self.path, limits=limits_of(self.given)) as self.session:
            self.check(self.case.expected)

    def _score(self, sql: Any, gold_sql: str, session: Session | None = None) -> RewardBreakdown:
        session = session or self.session
        gold = gold_of(session, gold_sql)
        return score_answer(sql, session=session, gold=gold, schema=asked(self.path))

    def _exported(self) -> list[dict[str, Any]]:
        """The rows of the record's export in the target's own layout."""
        given, folder = self.given, self.folder / "export"
        records = [given["record"]] if "record" in given else given["records"]
        manifest = write_manifest(folder, given["databases"], records)
        out = folder / given["target"]
        exported = export_manifest(out, to=given["target"], env=TrainerEnv(manifest.root))
        rows: dict[str, dict[str, Any]] = {}
        for name in exported.files:
            file = out / name
            if file.suffix == ".jsonl":
                found = list(map(json.loads, file.read_text().splitlines()))
            elif "results" not in name:  # gold results, which no trainer reads
                found = open_parquet(file).read().to_pylist()
            else:
                continue
            for number, row in enumerate(found):  # questions and answers may be two files
                rows.setdefault(str(row.get("row_id", number)), {}).update(row)
        assert rows
        return list(rows.values())

    def check_required(self, expected: dict[str, str]) -> None:
        for row in self._exported():
            for path, type_ in expected.items():
                value: Any = row
                for name in path.split("."):
                    assert name in value, f"{path} is missing: {sorted(value)}"
                    value = value[name]
                assert _has_type(value, type_), f"{path} is no {type_}: {value!r}"

    def found_no_nulls(self) -> bool:
        return None not in list(iter_leaves(self._exported()))

    def check_rewards(self, expected: list[float | None]) -> None:
        given = self.given
        if "completions_a" in given:
            for name in ("completions_a", "completions_b"):
                each(same_number, self._rewards_of(given[name]), expected)
            return
        golds = given.get("golds") or [given["gold_sql"]] * len(given["preds"])
        pairs = list(zip(given["preds"], golds, strict=True))
        found = _called_from(
            given.get("call_from", ""), lambda: [self._score(*pair).reward for pair in pairs]
        )
        each(same_number, found, expected)

    def _rewards_of(self, completions: list[Any]) -> list[float | None]:
        """By the function that TRL calls, with the export's columns."""
        columns, root = self.given["columns"], self.folder / "completions"
        rows = zip(*columns.values(), strict=True)
        records = [
            {"id": str(n), **dict(zip(columns, row, strict=True))} for n, row in enumerate(rows)
        ]
        if not root.exists():
            write_manifest(root, self.given["databases"], records)
            export_manifest(root / "trl", to="trl", env=TrainerEnv(root / "manifest"))
        exported = open_parquet(root / "trl" / "train.parquet").read().to_pylist()
        rows_json = [row["env_json"] for row in exported]
        with patch.dict(os.environ, {MANIFEST_VARIABLE: str(root / "manifest")}):
            return completion_rewards(completions=completions, env_json=rows_json)

    def found_equal(self) -> bool:
        a, b = (self._rewards_of(self.given[k]) for k in ("completions_a", "completions_b"))
        return a == b

    def check_type(self, expected: str) -> None:
        assert _has_type(
            self._rewards_of(self.given["completions_a"]),
            expected.replace("[", "<").replace("]", ">"),
        )

    def check_pickle_roundtrip_rows(self, expected: list[Any]) -> None:
        sql = self.given["sql"]
        with pickle.loads(pickle.dumps(self.session)) as copy:
            assert_same_bag(copy.run(sql).rows, expected)
        assert_same_bag(self.session.run(sql).rows, expected)

    def check_fork_child_rows(self, expected: list[Any]) -> None:
        sql = self.given["sql"]
        assert self.session.run(sql).ok
        assert_same_bag(_in_fork(lambda: self.session.run(sql).rows), expected)
        assert_same_bag(self.session.run(sql).rows, expected)

    def _records(self) -> list[dict[str, Any]]:
        """The reward record of every sample."""
        return [reward_record(self._sampled(sample)) for sample in self.given["samples"]]

    def _sampled(self, sample: Any) -> RewardBreakdown:
        """A sample is SQL, nothing, what became of it in words, or an object with its SQL."""
        gold_sql = self.given.get("gold_sql", "SELECT 1")
        if isinstance(sample, dict):
            gold_sql = sample.get("gold_sql", sample.get("gold", gold_sql))
            names = ("pred_sql", "pred", "sql", "completion", "status", "outcome", "kind")
            sample = next((sample[name] for name in names if name in sample), None)
        text = str(sample or "").lower()
        if "gold" in text:
            gold_sql = ENDLESS if "timeout" in text else "SELECT no_such_column"
        sql = _SAMPLES.get(text.replace("_", " "), sample)
        return self._score(gold_sql if sql == "gold" else sql, gold_sql)

    def found_same_keys(self) -> bool:
        return len({tuple(sorted(record)) for record in self._records()}) == 1

    def found_same_types(self) -> bool:
        return len({tuple((k, type(r[k])) for k in sorted(r)) for r in self._records()}) == 1

    def found_no_nan(self) -> bool:
        values = [v for record in self._records() for v in record.values()]
        return not [v for v in values if v is None or (isinstance(v, float) and math.isnan(v))]

    def _group(self) -> list[float | None]:
        """Rewards of a group scored at once: the right candidates', and last the bad one's."""
        given = self.given
        gold_sql, bad = given.get("gold_sql", "SELECT 1"), given["bad"]
        if isinstance(bad, str):
            bad = _SAMPLES.get(bad.lower().replace("_", " "), bad)

        def score(sql: Any) -> float | None:
            with Session.open_file(self.path, limits=limits_of(given)) as session:
                return self._score(sql, gold_sql, session).reward

        with ThreadPoolExecutor(max_workers=8) as pool:
            return list(pool.map(score, [*[gold_sql] * int(given["n_good"]), bad]))

    def found_n_reward_3(self) -> int:
        return sum(close(reward, 3.0) for reward in self._group()[:-1])

    def check_bad_reward_max(self, expected: float) -> None:
        at_most(self._group()[-1], expected)

    def _run_many(self) -> dict[str, Any]:
        given = self.given
        question = {
            "path": str(self.path),
            "sqls": given["sqls"],
            "n": int(given.get("n", 1)),
            "ulimit_n": int(given.get("ulimit_n", 0)),
            "seconds": float(given.get("timeout_s", 30)),
        }
        done = python("-c", _RUN_MANY, input=json.dumps(question))
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def check_fd_growth_max(self, expected: int) -> None:
        at_most(self._run_many()["growth"], expected)

    def found_errors_other_than_sql(self) -> int:
        return len(self._run_many()["other"])


def _has_type(value: Any, type_: str) -> bool:
    """`str`, `list<…>`, `{role:str,content:str}` or `struct<…>`."""
    text = type_.replace(" ", "")
    if text.startswith("list<") and text.endswith(">"):
        return isinstance(value, list) and all(_has_type(one, text[5:-1]) for one in value)
    inner = text.removeprefix("struct<") if text.startswith("struct<") else text.removeprefix("{")
    if inner != text:
        fields = dict(part.split(":", 1) for part in inner[:-1].split(","))
        return isinstance(value, dict) and all(
            name in value and _has_type(value[name], wanted) for name, wanted in fields.items()
        )
    assert text in _TYPES, f"unknown type {type_}"
    return isinstance(value, _TYPES[text]) and (text == "bool" or not isinstance(value, bool))


def _called_from(where: str, function: Callable[[], Any]) -> Any:
    """The function's result, called from where the case says."""
    words = where.lower()
    if not words or "main" in words:
        return function()
    if "thread" in words:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(function()))
        thread.start()
        thread.join()
        assert found, "the call raised"
        return found[0]
    if "async" in words or "loop" in words:

        async def call() -> Any:
            return function()

        return asyncio.run(call())
    assert re.search("fork|child|process", words), f"unknown place to call from: {where}"
    return _in_fork(function)


def _in_fork(function: Callable[[], Any]) -> Any:
    """What a forked child computes."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(write, json.dumps(function()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        text = stream.read()
    assert os.waitpid(child, 0)[1] == 0, "the forked child failed"
    return json.loads(text)
