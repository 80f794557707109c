"""Cases about what an agent does: episodes through their tools, and what trainers get of them."""

import asyncio
import json
import os
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

from envbuild.env.episode import TextEpisode
from envbuild.env.reward import score_answer
from envbuild.env.views import open_database
from envbuild.io.parquet import open_parquet
from envbuild.records.episode import EpisodeSettings, RewardBreakdown, Task, ToolCall, Turn
from envbuild.sql.execution.session import Session
from envbuild.train.completions import completion_rewards, reward_record
from envbuild.train.export import export_manifest
from envbuild.train.trainer_env import MANIFEST_VARIABLE, TrainerEnv
from tests.cases.databases import (
    Run,
    asked,
    count_rows,
    gold_of,
    leaves,
    limits_of,
    python,
    write_manifest,
)
from tests.cases.form import (
    Checks,
    as_list,
    at_most,
    close,
    contains,
    each,
    lacks,
    same,
    same_bag,
    same_number,
    says,
)

FAILED_RESULTS = ("error_result", "format_error_result", "error", "denied", "invalid")
ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT count(*) FROM r"


def protocol(run: Run) -> Checks:
    """Turns, calls and queries through a whole episode on the case's database."""
    given, path = run.given, run.database()
    queries = given.get("queries", [])
    fed = run.listed("turn", "turns")
    fed += [*map(json.dumps, given.get("calls", [])), *map(_query, queries)]
    failing = EpisodeSettings().failing_queries if queries else len(fed) + 1
    settings = EpisodeSettings(
        tool_turns=max(EpisodeSettings().tool_turns, len(fed) + 1),
        calls_a_turn=given.get("calls_per_turn"),
        failing_queries=failing,
    )
    episode = TextEpisode(Task(question="?"), open_database(path), settings=settings)
    run.opened.callback(episode.close)
    stopped_after = None
    for number, turn in enumerate(fed, 1):
        episode.feed(turn)
        if episode.over or episode.exploration_ended_by:
            stopped_after = number
            break
    over_before_final = episode.over
    if "final" in given:  # the tool turns are used up by saying nothing
        while (request := episode.next_request()) is not None:
            episode.feed((given["final"] or "") if request.kind == "final" else "Let me think.")
    turns = episode.turns
    calls = [call for turn in turns for call in turn.calls]
    said = "\n".join(turn.observation for turn in turns)
    errors = sum(sum(call.failed for call in t.calls) if t.calls else 1 for t in turns)

    def made(expected: list[Any]) -> None:
        """The calls that were made, with their arguments; unreadable ones are no calls."""
        found = [(c.tool, json.loads(c.arguments)) for c in calls if _is_call(c)]
        same(found, [(c["tool"], c.get("args", {})) for c in expected])

    def included(expected: list[Any]) -> None:
        for wanted in expected:
            assert any(_is_that(call, wanted) for call in calls), f"{wanted}: {calls}"

    def preferred(expected: list[Any]) -> None:
        """Nothing else is called: the rest may be called or refused."""
        allowed = [*expected, *run.expected.get("must_include_calls", [])]
        for call in calls:
            assert call.failed or any(_is_that(call, wanted) for wanted in allowed), call

    def turn_is(turn: Turn, wanted: Any) -> None:
        assert all(_turn_matches(turn, one) for one in as_list(wanted)), f"{wanted}: {turn}"

    def turn_is_one_of(expected: list[Any], number: str) -> None:
        turn = turns[int(number) - 1]
        assert any(_turn_matches(turn, wanted) for wanted in expected), f"{expected}: {turn}"

    def null_distinct(expected: list[str]) -> None:
        """A NULL never looks like one of these texts."""
        texts = ["'" + text.replace("'", "''") + "'" for text in expected]
        shown = set()
        for expression in ("NULL", *texts):
            other = TextEpisode(Task(question="?"), open_database(path))
            run.opened.callback(other.close)
            other.feed(_query(f"SELECT {expression} AS c"))
            shown.add(other.turns[0].calls[0].result)
        same(len(shown), 1 + len(texts))

    def no_token(expected: Any) -> None:
        for token in map(re.escape, as_list(expected)):
            assert not re.search(rf"(?<![A-Za-z]){token}(?![A-Za-z])", said), f"{token} in {said}"

    def final_sql(expected: str | None) -> None:
        pair = (episode.record().sql, expected or "")
        same(*(" ".join(sql.split()).rstrip("; ") for sql in pair))

    return {
        "calls": made,
        "must_include_calls": included,
        "preferred_calls": preferred,
        "n_error_results_at_least": lambda x: at_most(x, errors),
        "results": lambda x: each(turn_is, turns, x),
        "rollout_continues": lambda x: same(not over_before_final, x),
        "episode_ended": lambda x: same(episode.over, x),
        r"turn(\d+)": lambda x, number: turn_is_one_of([x], number),
        r"one_of_turn(\d+)": turn_is_one_of,
        "rows_left": lambda x: same(count_rows(path, x), x),
        r"rows_left_in_(\w+)": lambda x, table: same(count_rows(path, [table])[table], x),
        "status": lambda x: same(not errors, x == "ok"),
        "error_contains": lambda x: says(said, x),
        "null_distinct_from": null_distinct,
        "no_token": no_token,
        "max_rows_returned": lambda x: each(at_most, [call.rows for call in calls], x),
        "must_contain": lambda x: contains(said, x),
        "must_not_contain": lambda x: lacks(said, x),
        "final_sql": final_sql,
        "ended_by": lambda x: same(episode.record().ended_by, x),
        "exploration_stopped_after_query": lambda x: same(stopped_after, x),
    }


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
    match = re.fullmatch(r"(?:call )?(\w+)(?:\((.*)\))?", wanted.strip(), re.DOTALL)
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

path, sqls, times, descriptors, seconds = json.load(sys.stdin)
if descriptors:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
other, held = [], []
for number in range(times):
    try:
        with Session.open_file(Path(path), limits=Limits(seconds=seconds)) as session:
            errors = [session.run(sql).error for sql in sqls]
        other += [e for e in errors if "unable to open" in e or "too many" in e.lower()]
    except Exception as e:
        other.append(f"{type(e).__name__}: {e}")
    held.append(len(os.listdir("/proc/self/fd")))
print(json.dumps([max(held) - held[0], other]))
"""


def trainers(run: Run) -> Checks:
    """Exports, rewards from anywhere, and what is left behind."""
    given, path = run.given, run.database()
    session, schema = run.session(path), asked(path)

    def score(sql: Any, gold_sql: str, session: Session = session) -> RewardBreakdown:
        gold = gold_of(session.run(gold_sql), gold_sql)
        return score_answer(sql, session=session, gold=gold, schema=schema)

    @cache
    def exported() -> list[dict[str, Any]]:
        """The rows of the records' export in the target's own layout."""
        manifest = write_manifest(run.folder, given["databases"], run.listed("record", "records"))
        out = run.folder / given["target"]
        files = export_manifest(out, to=given["target"], env=TrainerEnv(manifest.root)).files
        rows: dict[str, dict[str, Any]] = {}
        for name in files:
            if name.endswith(".jsonl"):
                found = list(map(json.loads, (out / name).read_text().splitlines()))
            elif "results" in name:
                continue  # gold results, which no trainer reads
            else:
                found = open_parquet(out / name).read().to_pylist()
            for number, row in enumerate(found):  # questions and answers may be two files
                rows.setdefault(str(row.get("row_id", number)), {}).update(row)
        assert rows
        return list(rows.values())

    def required(expected: dict[str, str]) -> None:
        for row in exported():
            for place, type_ in expected.items():
                value: Any = row
                for name in place.split("."):
                    assert name in value, f"{place} is missing: {sorted(value)}"
                    value = value[name]
                assert _has_type(value, type_), f"{place} is no {type_}: {value!r}"

    @cache
    def rewarded(name: str) -> list[float | None]:
        """The completions' rewards by the function that TRL calls, with the export's columns."""
        columns, root = given["columns"], run.folder / "completions"
        if not root.exists():
            rows = enumerate(zip(*columns.values(), strict=True))
            records = [{"id": str(n), **dict(zip(columns, row, strict=True))} for n, row in rows]
            write_manifest(root, given["databases"], records)
            export_manifest(root / "trl", to="trl", env=TrainerEnv(root / "manifest"))
        exported = open_parquet(root / "trl" / "train.parquet").read().to_pylist()
        rows_json = [row["env_json"] for row in exported]
        with patch.dict(os.environ, {MANIFEST_VARIABLE: str(root / "manifest")}):
            return completion_rewards(completions=given[name], env_json=rows_json)

    def rewards(expected: list[float | None]) -> None:
        if "completions_a" in given:
            each(same_number, rewarded("completions_a"), expected)
            each(same_number, rewarded("completions_b"), expected)
            return
        golds = given.get("golds") or [given["gold_sql"]] * len(given["preds"])
        pairs = list(zip(given["preds"], golds, strict=True))
        where = given.get("call_from", "")
        found = _called_from(where, lambda: [score(*pair).reward for pair in pairs])
        each(same_number, found, expected)

    def is_type(expected: str) -> None:
        wanted = expected.replace("[", "<").replace("]", ">")
        assert _has_type(rewarded("completions_a"), wanted), wanted

    def rows_here_and(there: Callable[[str], Any], expected: list[Any]) -> None:
        """The query gives these rows elsewhere, and then here as well."""
        assert session.run(given["sql"]).ok
        same_bag(there(given["sql"]), expected)
        same_bag(session.run(given["sql"]).rows, expected)

    def of_a_copy(sql: str) -> Any:
        with pickle.loads(pickle.dumps(session)) as copy:
            return copy.run(sql).rows

    def sampled(sample: Any) -> dict[str, Any]:
        """A sample is SQL, nothing, what became of it in words, or an object with its SQL."""
        gold_sql = given.get("gold_sql", "SELECT 1")
        if isinstance(sample, dict):
            gold_sql = sample.get("gold_sql", sample.get("gold", gold_sql))
            names = ("pred_sql", "pred", "sql", "completion", "status", "outcome", "kind")
            sample = next((sample[name] for name in names if name in sample), None)
        text = str(sample or "").lower()
        if "gold" in text:
            gold_sql = ENDLESS if "timeout" in text else "SELECT no_such_column"
        sql = _SAMPLES.get(text.replace("_", " "), sample)
        return reward_record(score(gold_sql if sql == "gold" else sql, gold_sql))

    records = list(map(sampled, given.get("samples", [])))
    types = [sorted((key, type(value).__name__) for key, value in r.items()) for r in records]
    missing = [v for r in records for v in r.values() if v is None or v != v]

    @cache
    def group() -> list[float | None]:
        """Rewards of a group scored at once: the right candidates', and last the bad one's."""
        gold_sql, bad = given.get("gold_sql", "SELECT 1"), given["bad"]
        if isinstance(bad, str):
            bad = _SAMPLES.get(bad.lower().replace("_", " "), bad)

        def score_alone(sql: Any) -> float | None:
            with Session.open_file(path, limits=limits_of(given)) as own:
                return score(sql, gold_sql, own).reward

        with ThreadPoolExecutor(max_workers=8) as pool:
            return list(pool.map(score_alone, [*[gold_sql] * int(given["n_good"]), bad]))

    @cache
    def run_many() -> tuple[int, list[str]]:
        """Descriptors more than after the first run, and errors that are not the SQL's."""
        numbers = (int(given.get("n", 1)), int(given.get("ulimit_n", 0)))
        question = [str(path), given["sqls"], *numbers, float(given.get("timeout_s", 30))]
        growth, other = json.loads(python("-c", _RUN_MANY, input=json.dumps(question)))
        return growth, other

    return {
        "required": required,
        "no_nulls": lambda x: same(None not in list(leaves(exported())), x),
        "rewards": rewards,
        "equal": lambda x: same(rewarded("completions_a") == rewarded("completions_b"), x),
        "type": is_type,
        "pickle_roundtrip_rows": lambda x: rows_here_and(of_a_copy, x),
        "fork_child_rows": lambda x: rows_here_and(
            lambda sql: _in_fork(lambda: session.run(sql).rows), x
        ),
        "same_keys": lambda x: same(len({tuple(sorted(r)) for r in records}) == 1, x),
        "same_types": lambda x: same(len(set(map(str, types))) == 1, x),
        "no_nan": lambda x: same(not missing, x),
        "n_reward_3": lambda x: same(sum(close(reward, 3.0) for reward in group()[:-1]), x),
        "bad_reward_max": lambda x: at_most(group()[-1], x),
        "fd_growth_max": lambda x: at_most(run_many()[0], x),
        "errors_other_than_sql": lambda x: same(len(run_many()[1]), x),
    }


_TYPES: dict[str, type] = {
    **{"str": str, "string": str, "int": int, "float": float, "bool": bool, "list": list},
    **{"struct": dict, "dict": dict},
}


def _has_type(value: Any, type_: str) -> bool:
    """`str`, `list<…>`, `{role:str,content:str}` or `struct<…>`."""
    text = type_.replace(" ", "")
    if match := re.fullmatch("list<(.*)>", text):
        return isinstance(value, list) and all(_has_type(one, match[1]) for one in value)
    if match := re.fullmatch("struct<(.*)>|{(.*)}", text):
        fields = dict(part.split(":", 1) for part in (match[1] or match[2]).split(","))
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
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(function).result()
    if "async" in words or "loop" in words:

        async def call() -> Any:
            return function()

        return asyncio.run(call())
    assert re.search("fork|child|process", words), f"unknown place to call from: {where}"
    return _in_fork(function)


def _in_fork(function: Callable[[], Any]) -> Any:
    """What a forked child computes. Raises EOFError where the child fails."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(function()))
    child.start()
    sender.close()
    found = receiver.recv()
    child.join()
    return found
