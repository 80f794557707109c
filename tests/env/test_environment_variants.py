"""Rewards with hidden variants: what one answer does on a variant holds up no other answer."""

import json
from pathlib import Path

import pytest

from envbuild.corpora.folder import open_corpora
from envbuild.env.environment import Environment
from envbuild.env.episode import TextEpisode
from envbuild.manifest.build import build_manifest
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.corpus import Question
from envbuild.records.episode import Episode
from envbuild.train.trainer_env import TrainerEnv
from tests.manifest.test_build import SHOP
from tests.small_corpus import write_corpus

GOLD = "SELECT count(*) FROM orders WHERE price > 1"


def play(episode: TextEpisode, sql: str) -> Episode:
    """Runs the query, as a submit gate asks, and submits it."""
    for tool in ("run_query", "submit_sql"):
        episode.feed(json.dumps({"tool": tool, "args": {"sql": sql}}))
    return episode.record()


@pytest.mark.parametrize(("split", "scored"), [("train", 1), ("", 1), ("dev", 0), ("Test", 0)])
def test_evaluation_rows_are_judged_on_their_own_database_whoever_judges(
    tmp_path: Path, split: str, scored: int
) -> None:
    question = Question(
        corpus="c", question_id="q", db_id="shop", question="how many?", gold_sql=GOLD, split=split
    )
    write_corpus(tmp_path / "c", {"shop": SHOP}, [question])
    settings = ManifestSettings(variants=1)
    corpora = open_corpora(tmp_path / "c")
    build_manifest(corpora, tmp_path / "m", settings=settings, workers=1)
    rollouts = TrainerEnv(tmp_path / "m")
    env = Environment.open(tmp_path / "m")
    for sql in (GOLD, "SELECT 2"):  # by luck the gold's result on the shop's own rows
        episode = env.new_episode("c/shop/q", step=0)
        record = play(episode, sql)
        breakdown = env.score(record)
        assert rollouts.finish_alone([episode])[0].breakdown == breakdown
        assert (record.gated, breakdown.variants_scored) == (scored == 1, scored)
        assert (breakdown.reward == 3.0) is (sql == GOLD or not scored)
