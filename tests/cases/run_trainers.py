"""Capability trainer adapters: exports, rewards from anywhere, and what is left behind."""

import asyncio
import json
import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from envbuild.adapters.completions import completion_rewards, reward_record
from envbuild.adapters.export import export_manifest
from envbuild.adapters.rollouts import MANIFEST_VARIABLE, Rollouts
from envbuild.io.parquet import open_parquet
from envbuild.records.reward import RewardBreakdown
from envbuild.reward.score import score_answer
from envbuild.sql.executor import Session
from tests.cases.databases import environment, write_database, write_manifest
from tests.cases.form import (
    Case,
    Checks,
    assert_same_bag,
    at_most,
    close,
    each,
    equals,
    same_number,
)
from tests.cases.run_exec import gold_of, limits_of, schema_of

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT count(*) FROM r"
_TYPES: dict[str, type] = {
    **{"str": str, "string": str, "int": int, "float": float, "bool": bool, "list": list},
    **{"struct": dict, "dict": dict},
}
_RUN_MANY = """
import json, os, resource, sys
from pathlib import Path
from envbuild.records.execution import Limits
from envbuild.sql.executor import Session

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


@dataclass(kw_only=True)
class Outcome:
    """The case's database with whatever the checks ask of it."""

    case: Case
    folder: Path
    path: Path
    session: Session


def run(case: Case, folder: Path) -> None:
    """Opens the database, where the case has one, and checks."""
    path = write_database(folder / "case.sqlite", case.input.get("ddl", ""))
    with Session.open_file(path, limits=limits_of(case.input)) as session:
        CHECKS.check(
            Outcome(case=case, folder=folder, path=path, session=session),
            case.expected,
        )


def _exported(outcome: Outcome) -> list[dict[str, Any]]:
    """The rows of the record's export in the target's own layout."""
    given = outcome.case.input
    records = [given["record"]] if "record" in given else given["records"]
    manifest = write_manifest(outcome.folder / "export", given["databases"], records)
    out = outcome.folder / "export" / given["target"]
    exported = export_manifest(out, to=given["target"], rollouts=Rollouts(manifest.root))
    rows: dict[str, dict[str, Any]] = {}
    for name in exported.files:
        file = out / name
        if file.suffix == ".jsonl":
            found = [json.loads(line) for line in file.read_text().splitlines()]
        elif "results" not in name:  # gold results, which no trainer reads
            found = open_parquet(file).read().to_pylist()
        else:
            continue
        for number, row in enumerate(found):  # questions and answers may be two files
            rows.setdefault(str(row.get("row_id", number)), {}).update(row)
    assert rows
    return list(rows.values())


def _check_required(outcome: Outcome, expected: dict[str, str]) -> None:
    for row in _exported(outcome):
        for path, type_ in expected.items():
            value: Any = row
            for name in path.split("."):
                assert name in value, f"{path} is missing: {sorted(value)}"
                value = value[name]
            assert _has_type(value, type_), f"{path} is no {type_}: {value!r}"


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


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield value


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
    if "fork" in words or "child" in words or "process" in words:
        return json.loads(_in_fork(lambda: json.dumps(function())))
    raise AssertionError(f"unknown place to call from: {where}")


def _in_fork(function: Callable[[], str]) -> str:
    """What a forked child computes."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(write, function().encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        text = stream.read().decode()
    assert os.waitpid(child, 0)[1] == 0, "the forked child failed"
    return text


def _check_rewards(outcome: Outcome, expected: list[float | None]) -> None:
    given = outcome.case.input
    if "completions_a" in given:
        found = [_rewards_of(outcome, given[k]) for k in ("completions_a", "completions_b")]
    else:
        golds = given.get("golds") or [given["gold_sql"]] * len(given["preds"])
        found = [_rewards_of_pairs(outcome, list(zip(golds, given["preds"], strict=True)))]
    for rewards in found:
        each(same_number, lambda rewards: rewards)(rewards, expected)


def _rewards_of_pairs(outcome: Outcome, pairs: list[tuple[str, str]]) -> list[float | None]:
    schema = schema_of(outcome.path)

    def score() -> list[float | None]:
        session = outcome.session
        return [
            score_answer(p, session=session, gold=gold_of(session, g), schema=schema).reward
            for g, p in pairs
        ]

    found: list[float | None] = _called_from(outcome.case.input.get("call_from", ""), score)
    return found


def _rewards_of(outcome: Outcome, completions: list[Any]) -> list[float | None]:
    """By the function that TRL calls, with the export's columns."""
    given = outcome.case.input
    columns = given["columns"]
    names = list(columns)
    records = [
        {"id": str(n), **dict(zip(names, values, strict=True))}
        for n, values in enumerate(zip(*(columns[name] for name in names), strict=True))
    ]
    root = outcome.folder / "completions"
    if not root.exists():
        write_manifest(root, given["databases"], records)
        rollouts = Rollouts(root / "manifest")
        export_manifest(root / "trl", to="trl", rollouts=rollouts)
    rows = open_parquet(root / "trl" / "train.parquet").read().to_pylist()
    tickets = [row["env_json"] for row in rows]
    with patch.dict(os.environ, {MANIFEST_VARIABLE: str(root / "manifest")}):
        return completion_rewards(completions=completions, env_json=tickets)


def _is_equal(outcome: Outcome) -> bool:
    given = outcome.case.input
    a, b = (_rewards_of(outcome, given[key]) for key in ("completions_a", "completions_b"))
    return a == b


def _check_type(outcome: Outcome, expected: str) -> None:
    found = _rewards_of(outcome, outcome.case.input["completions_a"])
    element = expected.removeprefix("list[").removeprefix("list<").rstrip("]>")
    assert isinstance(found, list)
    assert all(_has_type(value, element) for value in found), found


def _check_pickled(outcome: Outcome, expected: list[Any]) -> None:
    copy: Session = pickle.loads(pickle.dumps(outcome.session))
    with copy:
        assert_same_bag(copy.run(outcome.case.input["sql"]).rows, expected)
    assert_same_bag(outcome.session.run(outcome.case.input["sql"]).rows, expected)


def _check_forked(outcome: Outcome, expected: list[Any]) -> None:
    sql = outcome.case.input["sql"]
    assert outcome.session.run(sql).ok
    rows = json.loads(_in_fork(lambda: json.dumps(outcome.session.run(sql).rows)))
    assert_same_bag(rows, expected)
    assert_same_bag(outcome.session.run(sql).rows, expected)


def _records(outcome: Outcome) -> list[dict[str, Any]]:
    """The reward record of every sample."""
    return [reward_record(_sampled(outcome, sample)) for sample in outcome.case.input["samples"]]


def _sampled(outcome: Outcome, sample: Any) -> RewardBreakdown:
    """A sample is SQL, nothing, what became of it in words, or an object with its SQL."""
    gold_sql = outcome.case.input.get("gold_sql", "SELECT 1")
    if isinstance(sample, dict):
        gold_sql = sample.get("gold_sql", sample.get("gold", gold_sql))
        names = ("pred_sql", "pred", "sql", "completion", "status", "outcome", "kind")
        sample = next((sample[name] for name in names if name in sample), None)
    text = str(sample or "").lower()
    if "gold" in text:
        gold_sql = ENDLESS if "timeout" in text else "SELECT no_such_column"
    sql = _SAMPLES.get(text.replace("_", " "), sample)
    if sql == "gold":
        sql = gold_sql
    session = outcome.session
    return score_answer(
        sql, session=session, gold=gold_of(session, gold_sql), schema=schema_of(outcome.path)
    )


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


def _have_no_nan(outcome: Outcome) -> bool:
    values = [v for record in _records(outcome) for v in record.values()]
    return not [v for v in values if v is None or (isinstance(v, float) and math.isnan(v))]


def _group(outcome: Outcome) -> tuple[list[float | None], float | None]:
    """Rewards of a group scored at once: the right candidates', and the bad one's."""
    given = outcome.case.input
    gold_sql = given.get("gold_sql", "SELECT 1")
    gold = gold_of(outcome.session, gold_sql)
    schema = schema_of(outcome.path)
    bad = given["bad"]
    word = bad.lower().replace("_", " ") if isinstance(bad, str) else ""
    bad = _SAMPLES.get(word, bad)

    def score(sql: Any) -> float | None:
        with Session.open_file(outcome.path, limits=limits_of(given)) as session:
            return score_answer(sql, session=session, gold=gold, schema=schema).reward

    with ThreadPoolExecutor(max_workers=8) as pool:
        *good, last = pool.map(score, [*[gold_sql] * int(given["n_good"]), bad])
    return good, last


def _run_many(outcome: Outcome) -> dict[str, Any]:
    given = outcome.case.input
    question = {
        "path": str(outcome.path),
        "sqls": given["sqls"],
        "n": int(given.get("n", 1)),
        "ulimit_n": int(given.get("ulimit_n", 0)),
        "seconds": float(given.get("timeout_s", 30)),
    }
    done = subprocess.run(
        [sys.executable, "-c", _RUN_MANY],
        input=json.dumps(question),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


CHECKS = Checks(
    inputs=(
        "record records databases target call_from ddl gold_sql preds timeout_s "
        "completions_a completions_b columns sql samples n_good bad golds sqls n ulimit_n"
    ),
    by_key={
        "required": _check_required,
        "no_nulls": equals(lambda o: None not in list(_leaves(_exported(o)))),
        "rewards": _check_rewards,
        "equal": equals(_is_equal),
        "type": _check_type,
        "pickle_roundtrip_rows": _check_pickled,
        "fork_child_rows": _check_forked,
        "same_keys": equals(lambda o: len({tuple(sorted(r)) for r in _records(o)}) == 1),
        "same_types": equals(
            lambda o: len({tuple((k, type(r[k])) for k in sorted(r)) for r in _records(o)}) == 1
        ),
        "no_nan": equals(_have_no_nan),
        "n_reward_3": equals(lambda o: sum(close(reward, 3.0) for reward in _group(o)[0])),
        "bad_reward_max": at_most(lambda o: _group(o)[1]),
        "fd_growth_max": at_most(lambda o: _run_many(o)["growth"]),
        "errors_other_than_sql": equals(lambda o: len(_run_many(o)["other"])),
    },
)
