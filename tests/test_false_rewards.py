"""False rewards counted on real predictions: the figures the README quotes."""

import json
from pathlib import Path

import pytest

from envbuild.records.false_rewards import Answer, FalseRewards, PolicyRow
from envbuild.signal.false_rewards import measure_benchmark
from tests.shared import shared_data

CUTS = ["0 rows", "1 row", "2 rows", "5 rows", "10 rows", "20 rows", "68 rows", "full"]


def spider_answers() -> list[Answer]:
    lines = shared_data("predictions", "spider_dev_supersql.jsonl").read_text().splitlines()
    return [
        Answer(
            question_id=f"{row['id']:05}",
            db_id=row["db_id"],
            gold_sql=row["gold_sql"],
            predicted_sql=row["predicted_sql"],
        )
        for row in map(json.loads, lines)
    ]


def spider_path(db_id: str) -> Path:
    return shared_data("spider", "database", db_id, f"{db_id}.sqlite")


def bird_path(db_id: str) -> Path:
    return shared_data("bird", "dev_databases", db_id, f"{db_id}.sqlite")


def by_policy(study: FalseRewards) -> dict[str, PolicyRow]:
    return {row.policy: row for row in study.rows}


@pytest.fixture(scope="module")
def spider() -> FalseRewards:
    return measure_benchmark("spider", spider_answers(), spider_path, amplified=False, workers=2)


@pytest.mark.slow
def test_half_of_the_wrong_predictions_are_paid_at_two_rows(spider: FalseRewards) -> None:
    rows = by_policy(spider)
    assert spider.questions == spider.predictions == 597
    assert 0.40 <= (rows["2 rows"].paid_share or 0) <= 0.55
    assert (rows["68 rows"].paid_share or 0) <= 0.08
    assert rows["full"].paid == rows["full"].refused == 0
    paid = [rows[cut].paid for cut in ("0 rows", "1 row", "2 rows", "5 rows", "10 rows", "20 rows")]
    assert paid == sorted(paid, reverse=True)
    assert (rows["2 rows, naive"].paid_share or 0) >= (rows["2 rows"].paid_share or 0)


@pytest.mark.slow
def test_the_score_rises_with_every_cut_of_spider(spider: FalseRewards) -> None:
    low = [by_policy(spider)[cut].signal_low or 0.0 for cut in CUTS]
    assert low == sorted(low) and len(set(low)) == len(low)
    assert 0.38 <= low[2] <= 0.52 and 0.65 <= low[-1] <= 0.82


@pytest.mark.slow
def test_a_low_score_means_false_rewards(spider: FalseRewards) -> None:
    assert spider.sparse.spearman is not None and spider.sparse.spearman < -0.2
    assert spider.every_cut.spearman is not None and spider.every_cut.spearman < -0.5
    assert spider.by_database is not None and spider.by_database < -0.7
    lowest = spider.sparse.bins[0]
    assert lowest.paid / lowest.wrong >= 0.65
    shares = [one.paid / one.wrong for one in spider.every_cut.bins]
    assert shares == sorted(shares, reverse=True) and shares[-1] <= 0.2


@pytest.mark.slow
def test_the_score_rises_with_every_cut_of_bird() -> None:
    golds = json.loads(shared_data("bird", "dev.json").read_text())
    answers = [
        Answer(question_id=f"{g['question_id']:05}", db_id=g["db_id"], gold_sql=g["SQL"])
        for g in golds
    ]
    study = measure_benchmark("bird", answers, bird_path, amplified=False, workers=2)
    rows = by_policy(study)
    low = [rows[cut].signal_low or 0.0 for cut in CUTS]
    assert low == sorted(low)
    assert (rows["2 rows"].signal_high or 1) <= 0.40
    assert (rows["full"].signal_high or 0) >= 0.85
    assert rows["2 rows"].paid_share is None and study.predictions == 0
