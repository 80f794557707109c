"""What amplification reaches on real data (SIGNAL 7): the acceptance figures, as stated.

Those of Spider's and BIRD's cuts stand in `test_false_rewards`, which grows the same rows.
"""

import json
import statistics
from collections import defaultdict

import pytest

from envbuild.generate.database import amplify_database
from envbuild.records.signal import AmplifySettings, Gold, SignalScore
from envbuild.schema.read import read_schema
from envbuild.signal.cuts import cut_image
from envbuild.signal.evidence import open_variants
from envbuild.signal.score import MIN_VARIANTS, score_question
from envbuild.signal.tree import compiler_for
from envbuild.sql.connect import read_image
from envbuild.sql.execution.session import Session
from envbuild.sql.verdicts import equal_bag
from tests.shared import shared_data


def grown_scores(db_id: str, golds: list[str]) -> dict[bool, list[SignalScore]]:
    """Every gold's score on the empty database grown for them, unguided and guided."""
    path = shared_data("synsql", "databases", db_id, f"{db_id}.sqlite")
    named = [Gold(question_id=str(number), sql=sql) for number, sql in enumerate(golds)]
    variants = open_variants(path, golds, db_id=db_id, count=MIN_VARIANTS, seed=1_000)
    scores: dict[bool, list[SignalScore]] = {}
    for guided in (False, True):
        settings = AmplifySettings(guided=guided)
        grown = amplify_database(read_image(path), named, settings=settings, db_id=db_id)
        with Session.open_image(grown.image) as session:
            schema = read_schema(session.connection)
            compiles = compiler_for(schema)
            scores[guided] = [
                score_question(
                    sql, session=session, schema=schema, variants=variants, compiles=compiles
                )
                for sql in golds
            ]
    for variant in variants:
        variant.close()
    return scores


@pytest.mark.slow
def test_synsql_from_empty() -> None:
    """>= 0.85, guided >= 0.92, empty golds <= 7 %.

    As in a preflight, the upper end leaves out what four further fillings do not tell apart.
    """
    asked = defaultdict(list)
    for record in json.loads(shared_data("synsql", "data.json").read_text()):
        asked[record["db_id"]].append(record["sql"])
    scores: dict[bool, list[SignalScore]] = {False: [], True: []}
    for db_id, golds in asked.items():
        for guided, found in grown_scores(db_id, golds).items():
            scores[guided] += found
    for guided, reached in ((False, 0.85), (True, 0.92)):
        high = [one.signal_high for one in scores[guided] if one.signal_high is not None]
        assert len(high) >= 180
        assert statistics.fmean(high) >= reached
        empty = sum(one.gold_rows == 0 for one in scores[guided])
        assert empty <= 0.07 * len(scores[guided])


@pytest.mark.slow
def test_false_rewards_fall_and_right_answers_stay() -> None:
    """SuperSQL on two-row cuts, with one guided hidden variant of each database (SIGNAL 7).

    About 47 % of the wrong ones are paid before, at most 6 % after; at most 5 % of the right ones
    are refused.
    """
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
    assert 0.45 * wrong <= paid_before <= 0.50 * wrong, "without a variant about 47 % are paid"
    assert paid <= 0.06 * wrong
    assert refused <= 0.05 * right


def same(session: Session, record: dict[str, str]) -> bool:
    gold, predicted = session.run(record["gold_sql"]), session.run(record["predicted_sql"])
    return gold.ok and predicted.ok and equal_bag(predicted.rows, gold.rows)
