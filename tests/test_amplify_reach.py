"""What amplification reaches on real data: signal, empty golds, false rewards (SIGNAL 7)."""

import json
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from envbuild.records.amplified import AmplifySettings, Gold, GoldState
from envbuild.signal.amplify.build import amplify_database
from envbuild.signal.cuts import cut_image
from envbuild.sql.executor import Session
from envbuild.sql.verdicts import equal_bag
from tests.shared import shared_data


def golds_of(file: Path, key: str) -> dict[str, list[Gold]]:
    golds: dict[str, dict[str, Gold]] = defaultdict(dict)
    for number, record in enumerate(json.loads(file.read_text())):
        gold = Gold(question_id=str(number), sql=record[key])
        golds[record["db_id"]].setdefault(gold.sql, gold)
    return {db_id: list(known.values()) for db_id, known in golds.items()}


def mean_killed(states: list[GoldState]) -> float:
    """The lower end of the signal: mutants told apart among all, equivalent ones included."""
    return statistics.fmean(s.killed / s.mutants for s in states if s.mutants >= 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("corpus", "key", "reached"), [("spider", "query", 0.78), ("bird", "SQL", 0.78)]
)
def test_two_row_cuts_grown_with_guidance(corpus: str, key: str, reached: float) -> None:
    root = shared_data(corpus)
    states = []
    for db_id, golds in list(golds_of(root / "dev.json", key).items())[:4]:
        path = next(root.rglob(f"{db_id}.sqlite"))
        settings = AmplifySettings(guided=True)
        grown = amplify_database(
            cut_image(path, 2), golds[:30], settings=settings, db_id=db_id
        ).growth
        states += grown.golds
    assert sum(s.rows_after == 0 for s in states) <= 0.02 * len(states)
    assert mean_killed(states) >= reached


@pytest.mark.slow
def test_synsql_from_empty() -> None:
    root = shared_data("synsql")
    states = []
    for db_id, golds in list(golds_of(root / "data.json", "sql").items())[::4]:
        image = (root / "databases" / db_id / f"{db_id}.sqlite").read_bytes()
        grown = amplify_database(
            image, golds, settings=AmplifySettings(guided=True), db_id=db_id
        ).growth
        states += grown.golds
    assert sum(s.rows_after <= 0 for s in states) <= 0.07 * len(states)
    assert mean_killed(states) >= 0.68


@pytest.mark.slow
def test_false_rewards_fall_and_right_answers_stay() -> None:
    """SuperSQL on two-row cuts, with one guided hidden variant of each database."""
    lines = shared_data("predictions", "spider_dev_supersql.jsonl").read_text().splitlines()
    answers = defaultdict(list)
    for line in lines:
        record = json.loads(line)
        answers[record["db_id"]].append(record)
    wrong = right = paid_before = paid = refused = 0
    for db_id, records in answers.items():
        path = shared_data("spider", "database", db_id, f"{db_id}.sqlite")
        cut = cut_image(path, 2)
        golds = [Gold(question_id=str(r["id"]), sql=r["gold_sql"]) for r in records]
        grown = amplify_database(cut, golds, settings=AmplifySettings(guided=True), db_id=db_id)
        judges = {
            s.question_id: s.rows_after > 0 and not s.tie_sensitive for s in grown.growth.golds
        }
        with (
            Session.open_file(path) as full,
            Session.open_image(cut) as visible,
            Session.open_image(grown.image) as hidden,
        ):
            for record in records:
                is_right = same(full, record)
                rewarded = same(visible, record)
                wrong, right = wrong + (not is_right), right + is_right
                paid_before += rewarded and not is_right
                if judges[str(record["id"])]:
                    rewarded = rewarded and same(hidden, record)
                paid += rewarded and not is_right
                refused += is_right and not rewarded
    assert paid_before >= 0.4 * wrong, "without a variant nearly half are paid"
    assert paid <= 0.08 * wrong
    assert refused <= 0.06 * right


def same(session: Session, record: dict[str, str]) -> bool:
    gold, predicted = session.run(record["gold_sql"]), session.run(record["predicted_sql"])
    return gold.ok and predicted.ok and equal_bag(predicted.rows, gold.rows)
