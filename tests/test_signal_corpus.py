"""A corpus's signal: the sample, the summary, the findings, the stored file."""

import json
from pathlib import Path

import msgspec
import pytest

from envbuild.corpora.folder import CorpusFolder
from envbuild.records.corpus import Question
from envbuild.records.finding import Severity
from envbuild.records.signal import SignalThresholds
from envbuild.signal.corpus import score_corpus
from envbuild.signal.cuts import cut_database
from envbuild.signal.sample import sample_golds
from envbuild.signal.store import covers, read_signal, write_signal
from envbuild.signal.summary import corpus_severity, signal_findings
from tests.shared import shared_data
from tests.signal_corpus import build_folder

DATABASES = ("concert_singer", "pets_1", "tvshow")


def spider_folder(root: Path, name: str, *, rows: int | None) -> CorpusFolder:
    golds = json.loads(shared_data("spider", "dev.json").read_text())
    paths = {}
    for db_id in DATABASES:
        path = shared_data("spider", "database", db_id, f"{db_id}.sqlite")
        if rows is not None:
            cut_database(path, root / f"{name}-{db_id}.sqlite", rows)
            path = root / f"{name}-{db_id}.sqlite"
        paths[db_id] = path
    pairs = [(gold["db_id"], gold["query"]) for gold in golds if gold["db_id"] in DATABASES]
    return build_folder(root, name, paths, pairs)


def question(number: int, db_id: str, gold: str) -> Question:
    return Question(question_id=f"q{number}", db_id=db_id, question="?", gold_sql=gold)


def test_the_sample_is_seeded_bounded_and_local() -> None:
    many = [question(n, f"db{n % 3}", f"SELECT {n}") for n in range(300)]
    drawn = sample_golds(many, wanted=40, most_a_database=20, seed=1)
    assert len(drawn) == 40
    assert max(sum(g.db_id == db for g in drawn) for db in ("db0", "db1", "db2")) <= 20
    assert sample_golds(reversed(many), wanted=40, most_a_database=20, seed=1) == drawn
    assert sample_golds(many, wanted=40, most_a_database=20, seed=2) != drawn
    # a database more changes nothing about which golds stand first in the others
    more = sample_golds([*many, question(999, "db9", "SELECT 1")], wanted=40, seed=1)
    assert len(set(drawn) & set(more)) >= 39


def test_phrasings_of_one_gold_are_scored_once() -> None:
    same = [question(n, "db", "SELECT 1") for n in range(5)]
    (gold,) = sample_golds(same)
    assert gold.question_ids == ("q0", "q1", "q2", "q3", "q4")


@pytest.mark.slow
def test_a_corpus_is_scored_alike_by_any_number_of_workers(tmp_path: Path) -> None:
    folder = spider_folder(tmp_path, "full", rows=None)
    one = score_corpus(folder, wanted=30, workers=1)
    two = score_corpus(folder, wanted=30, workers=2)
    assert one == two
    assert one.summary.sampled >= 30 and one.summary.mean_high is not None


def test_two_rows_a_table_is_an_error_and_full_data_is_not(tmp_path: Path) -> None:
    full = score_corpus(spider_folder(tmp_path, "full", rows=None), wanted=None, workers=1)
    sparse = score_corpus(spider_folder(tmp_path, "sparse", rows=2), wanted=None, workers=1)
    limits = SignalThresholds()
    assert corpus_severity(sparse.summary, limits) is Severity.ERROR
    assert corpus_severity(full.summary, limits) is not Severity.ERROR
    assert (
        sparse.summary.sampled == full.summary.sampled == len({s.question_id for s in full.scores})
    )
    counted = sparse.summary.scored + sum(sparse.summary.unscored.values())
    assert counted == sparse.summary.sampled
    codes = {finding.code for finding in signal_findings(sparse.scores, sparse.summary)}
    assert codes == {"corpus_signal", "no_signal", "weak_signal"}
    example = sparse.summary.example
    assert example is not None and example.gold_rows > 0
    assert len(set(example.wrong_sql)) == 4 and example.gold_sql not in example.wrong_sql


def test_scores_are_stored_and_belong_to_their_corpus(tmp_path: Path) -> None:
    folder = spider_folder(tmp_path, "full", rows=2)
    assert read_signal(folder) is None
    signal = score_corpus(folder, wanted=25, seed=3, workers=1)
    write_signal(folder, signal)
    stored = read_signal(folder)
    assert stored == signal
    assert covers(stored, wanted=25, verdict="ordered@1", seed=3)
    assert not covers(stored, wanted=25, verdict="ordered@1", seed=4)
    assert not covers(stored, wanted=None, verdict="ordered@1", seed=3)
    assert not covers(stored, wanted=25, verdict="bag@1", seed=3)
    index = msgspec.json.decode((folder.root / "corpus.json").read_bytes())
    (folder.root / "corpus.json").write_text(json.dumps({**index, "more": 1}))
    assert read_signal(CorpusFolder(folder.root)) is None


def test_an_unreadable_database_leaves_null_scores(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database at all, but long enough to be looked at " * 40)
    folder = build_folder(tmp_path, "c", {"d": broken}, [("d", "SELECT 1"), ("gone", "SELECT 1")])
    signal = score_corpus(folder, workers=1)
    assert [score.reason for score in signal.scores] == ["unreadable_database"]
    assert signal.summary.mean_high is None and list(signal_findings((), signal.summary)) == []
