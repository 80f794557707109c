"""False rewards counted on real predictions: the figures the README quotes."""

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from false_rewards.measured import Measured
from false_rewards.records import Answer, FalseRewards, PolicyRow
from false_rewards.study import measure_benchmark

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
    return measure_benchmark("spider", spider_answers(), spider_path, workers=2)


@pytest.fixture(scope="module")
def bird() -> FalseRewards:
    golds = json.loads(shared_data("bird", "dev.json").read_text())
    answers = [
        Answer(question_id=f"{g['question_id']:05}", db_id=g["db_id"], gold_sql=g["SQL"])
        for g in golds
    ]
    return measure_benchmark("bird", answers, bird_path, workers=2)


@pytest.mark.slow
def test_half_of_the_wrong_predictions_are_paid_at_two_rows(spider: FalseRewards) -> None:
    """SIGNAL 7 has 80 +- 3 of 169 wrong ones at 2 rows; these are 597 of its questions."""
    rows = by_policy(spider)
    assert spider.questions == spider.predictions == 597
    wrong = rows["full"].wrong
    assert {row.wrong for row in rows.values()} == {wrong}
    assert 77 / 169 <= rows["2 rows"].paid / wrong <= 83 / 169
    assert rows["68 rows"].paid / wrong <= 0.05
    assert rows["full"].paid == rows["full"].refused == 0
    paid = [rows[cut].paid for cut in CUTS]
    assert paid == sorted(paid, reverse=True)
    assert rows["2 rows, naive"].paid >= rows["2 rows"].paid


@pytest.mark.slow
def test_one_guided_variant_ends_most_false_rewards(spider: FalseRewards) -> None:
    """At most 6 % of the wrong ones are paid, at most 5 % of the right ones refused."""
    one = by_policy(spider)["2 + 1 variant, guided"]
    assert one.paid <= 0.06 * one.wrong
    assert one.refused <= 0.05 * one.right


@pytest.mark.slow
def test_the_score_of_spider(spider: FalseRewards) -> None:
    """It rises with every cut; 2 rows 0.45-0.52, full 0.72-0.82, amplified 0.90, guided 0.95.

    All are upper ends, but that both ends of the 2-row score lie in their range. Without the
    equivalents the full databases have 0.70.
    """
    rows = by_policy(spider)
    for end in "signal_low", "signal_high":
        assert rises(getattr(rows[cut], end) for cut in CUTS)
    assert 0.45 <= (rows["2 rows"].signal_low or 0) < (rows["2 rows"].signal_high or 1) <= 0.52
    assert 0.72 <= (rows["full"].signal_high or 0) <= 0.82
    assert (rows["2, amplified"].signal_high or 0) >= 0.90
    assert (rows["2, amplified, guided"].signal_high or 0) >= 0.95
    assert (rows["2, amplified, guided"].empty_golds or 0) <= 0.01


@pytest.mark.slow
def test_the_score_of_bird(bird: FalseRewards) -> None:
    """It rises with every cut; 2 rows at most 0.40, full at least 0.85, guided at least 0.90.

    Full has an upper end of 0.851, of seven independent fillings, and a lower end of 0.748.
    """
    rows = by_policy(bird)
    for end in "signal_low", "signal_high":
        assert rises(getattr(rows[cut], end) for cut in CUTS)
    assert (rows["2 rows"].signal_high or 1) <= 0.40
    assert (rows["full"].signal_high or 0) >= 0.85
    assert (rows["2, amplified, guided"].signal_high or 0) >= 0.90
    assert (rows["2, amplified, guided"].empty_golds or 0) <= 0.01
    assert bird.predictions == rows["2 rows"].wrong == 0


@pytest.mark.slow
def test_a_low_score_means_false_rewards(spider: FalseRewards) -> None:
    """The lowest bin at 2 rows pays at least 65 % of the wrong ones, as SIGNAL 7 asks.

    Two of its figures are not reached within the 2-row cut: a Spearman of -0.5 or less (it is
    -0.24) and at most 25 % paid in the highest bin (8 of 18). Over all cuts, which is another and
    easier question, the correlation is -0.60 and the highest bin pays 11 %; that is checked here
    so that it stays, not in their place.
    """
    lowest = spider.sparse.bins[0]
    assert lowest.paid / lowest.wrong >= 0.65
    assert spider.sparse.spearman is not None and spider.sparse.spearman < -0.2
    assert spider.every_cut.spearman is not None and spider.every_cut.spearman < -0.55
    assert spider.by_database is not None and spider.by_database < -0.75
    shares = [one.paid / one.wrong for one in spider.every_cut.bins]
    assert shares == sorted(shares, reverse=True) and shares[-1] <= 0.12


def test_nested_cuts_are_no_evidence_of_equivalence() -> None:
    """Mutants 2 and 3 are alive everywhere but on one cut, which tells mutant 3 apart."""
    cuts = dict.fromkeys(CUTS[1:-1], (0, 1, 2, 3))
    one = Measured(
        question_id="q", db_id="d", system="", mutants=4, operators=("distinct",) * 4,
        alive={**cuts, "5 rows": (0, 1, 2), "full": (1, 2, 3)},
        rows=dict.fromkeys([*cuts, "full"], 1), right=None, equal={},
    )  # fmt: skip
    assert one.fillings == 1
    assert one.score("full") == (0.25, 0.25), "cuts and one filling presume nothing"
    grown = ("grown", "guided", "variant", "guided variant 1")
    grown_alive = dict.fromkeys(grown, (2, 3))
    more = msgspec.structs.replace(
        one,
        alive={**one.alive, **grown_alive},
        rows={**one.rows, **dict.fromkeys(grown, 1)},
    )
    assert more.fillings == 5
    assert more.score("full") == (1 / 4, 1 / 3)
    assert more.score("5 rows") == (1 / 4, 1 / 3)
    empty = msgspec.structs.replace(more, rows={**more.rows, "grown": 0})
    assert empty.score("full") == (0.25, 0.25), "a gold without rows is no evidence"
    assert empty.presumed("2 rows") == {2}, "there the full database is the fourth"


def rises(values: Iterable[float | None]) -> bool:
    """Every value is there and larger than the one before."""
    known = [value for value in values if value is not None]
    return len(known) == len(CUTS) and all(a < b for a, b in pairwise(known))
