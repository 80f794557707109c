"""Published verdicts: the test-suite rule on real predictions, BIRD's set rule on real golds."""

import json
from pathlib import Path

import pytest

from envbuild.records.execution import QueryResult, Verdict
from envbuild.sql.execution.session import Session
from envbuild.sql.from_names import order_matters
from envbuild.sql.verdicts import judge, without_distinct
from tests.shared import shared_data


@pytest.mark.parametrize(
    ("sql", "without"),
    [
        ("SELECT DISTINCT a FROM t", "SELECT  a FROM t"),
        ("SELECT count(distinct a), 'distinct' FROM t", "SELECT count( a), 'distinct' FROM t"),
        ("SELECT a IS NOT DISTINCT FROM b", "SELECT a IS NOT DISTINCT FROM b"),
        ('SELECT "DISTINCT" -- DISTINCT', 'SELECT "DISTINCT" -- DISTINCT'),
    ],
)
def test_without_distinct(sql: str, without: str) -> None:
    assert without_distinct(sql) == without


def test_597_published_verdicts() -> None:
    """DISTINCT ignored on both sides, order where the gold's outermost query orders."""
    lines = shared_data("predictions", "spider_dev_supersql.jsonl").read_text().splitlines()
    predictions = [json.loads(line) for line in lines]
    databases = shared_data("spider", "database")
    sessions: dict[str, Session] = {}
    wrong = []
    for each in predictions:
        name = each["db_id"]
        if name not in sessions:
            sessions[name] = Session.open_file(databases / name / f"{name}.sqlite")
        predicted, gold = (
            sessions[name].run(without_distinct(each[key])) for key in ("predicted_sql", "gold_sql")
        )
        found = judge(
            predicted, gold, verdict="testsuite@1", ordered=order_matters(each["gold_sql"])
        )
        if found.correct != (each["exec_acc"] == 1.0):
            wrong.append(each["id"])
    assert (len(predictions), wrong) == (597, [])


def test_birds_rule_is_a_plain_set() -> None:
    """Every gold beside every other gold of its database: 287 questions, 41,000 pairs."""
    folder = shared_data("bird")
    results: dict[str, list[QueryResult]] = {}
    for question in json.loads((folder / "dev.json").read_text()):
        results.setdefault(question["db_id"], []).append(
            run(folder / "dev_databases", question["db_id"], question["SQL"])
        )
    assert sum(map(len, results.values())) == 287
    assert all(result.ok for golds in results.values() for result in golds)
    pairs = equal = 0
    for golds in results.values():
        sets = [set(gold.rows) for gold in golds]
        for i, predicted in enumerate(golds):
            for j in range(i, len(golds), 3):
                found = judge(predicted, golds[j], verdict="official@1") is Verdict.EQUAL
                assert found == (sets[i] == sets[j])
                pairs += 1
                equal += found
    assert pairs > 5000 and equal > 287 / 3


def run(databases: Path, name: str, sql: str) -> QueryResult:
    with Session.open_file(databases / name / f"{name}.sqlite") as session:
        return session.run(sql)
