"""A corpus's signal: the sample, the summary, the findings, the stored file."""

import json
import tracemalloc
from contextlib import closing
from pathlib import Path
from statistics import fmean, median

import apsw
import msgspec
import pytest

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.seeds import derive_seed
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.records.corpus import DatabaseRow, Question
from envbuild.records.preflight import Severity
from envbuild.records.signal import CorpusSignal, SignalThresholds
from envbuild.signal.corpus import (
    covers,
    iter_golds,
    read_signal,
    sample_golds,
    score_corpus,
    write_signal,
)
from envbuild.signal.cuts import cut_database
from envbuild.signal.summary import Shares, corpus_severity, signal_findings
from envbuild.signal.variants import make_variants
from tests.shared import shared_data
from tests.signal_corpus import build_folder

DATABASES = ("concert_singer", "pets_1", "tvshow", "student_transcripts_tracking")


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


class Counted:
    """A question that counts how many of its kind are in memory."""

    alive = most = 0

    def __init__(self, number: int) -> None:
        self.question_id, self.db_id = f"q{number}", f"db{number % 40}"
        self.gold_sql = f"SELECT {number % 15_000}"
        Counted.alive += 1
        Counted.most = max(Counted.most, Counted.alive)

    def __del__(self) -> None:
        Counted.alive -= 1


def test_a_sample_holds_no_questions_but_finds_all_that_ask_its_golds() -> None:
    drawn = sample_golds(map(Counted, range(30_000)), wanted=300, most_a_database=20, seed=5)
    assert Counted.most <= 3
    # what the whole list would give: the lowest places of each database, then of all
    places: dict[str, list[tuple[int, str]]] = {}
    for n in range(15_000):
        place = derive_seed(5, f"db{n % 40}/SELECT {n}", "signal sample")
        places.setdefault(f"db{n % 40}", []).append((place, f"SELECT {n}"))
    kept = [(place, db, sql) for db, own in places.items() for place, sql in sorted(own)[:20]]
    expected = sorted((db, sql) for _, db, sql in sorted(kept)[:300])
    assert [(gold.db_id, gold.gold_sql) for gold in drawn] == expected
    assert all(len(gold.question_ids) == 2 for gold in drawn)


def test_all_golds_come_database_by_database_in_little_memory(tmp_path: Path) -> None:
    folder = build_folder(tmp_path, "c", {}, [])
    asked = (
        question(n, f"db{n * 31 % 40:03}", f"SELECT {n} /* {'x' * 1_500} */") for n in range(20_000)
    )
    write_records(folder.root / "questions.parquet", asked, arrow_schema(Question))
    row = {**dict.fromkeys(DatabaseRow.__struct_fields__, 0), "corpus": "c", "split": ""}
    databases = [
        msgspec.convert(
            {**row, "sha256": "", "db_id": f"db{n:03}", "sqlite_file": "f"}, DatabaseRow
        )
        for n in range(40)
    ]
    write_records(folder.root / "databases.parquet", databases, arrow_schema(DatabaseRow))
    tracemalloc.start()
    golds = 0
    before = ""
    for gold in iter_golds(folder, wanted=None):
        assert gold.db_id >= before
        golds, before = golds + 1, gold.db_id
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert golds == 20_000
    assert most < 52 * 1024 * 1024  # 60 MiB where all are held, measured


def test_means_and_medians_are_those_of_the_whole_list() -> None:
    for values in ([0.25], [1 / 3, 0.1, 0.7], [n % 13 / 12 for n in range(1000)], [0.1] * 10):
        shares = Shares()
        for value in values:
            shares.add(value)
        assert shares.mean == fmean(values) and shares.median == median(values)
        assert shares.below(0.5) == sum(value < 0.5 for value in values) / len(values)
    assert Shares().mean is None and Shares().median is None and Shares().below(1) is None


@pytest.mark.slow
def test_a_corpus_is_scored_alike_by_any_number_of_workers(tmp_path: Path) -> None:
    folder = spider_folder(tmp_path, "full", rows=None)
    one = score_corpus(folder, wanted=30, workers=1)
    two = score_corpus(folder, wanted=30, workers=2)
    assert list(one.scores) == list(two.scores) and one.summary == two.summary
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
    assert stored is not None and stored.summary == signal.summary
    assert list(stored.scores) == list(signal.scores)
    assert covers(stored, wanted=25, verdict="ordered@1", seed=3)
    assert covers(stored, wanted=5, verdict="ordered@1", seed=3), "a larger sample of one seed"
    assert not covers(stored, wanted=26, verdict="ordered@1", seed=3)
    assert not covers(stored, wanted=25, verdict="ordered@1", seed=4)
    older = msgspec.structs.replace(signal.summary, version="signal@0")
    other = CorpusSignal(summary=older, scores=())
    assert not covers(other, wanted=25, verdict="ordered@1", seed=3)
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


APP_COLLATED = (
    "CREATE TABLE p (id INTEGER PRIMARY KEY, name TEXT);"
    "CREATE TABLE k (id INTEGER PRIMARY KEY, p INT REFERENCES p, n TEXT{}, y INT);"
    "INSERT INTO p VALUES (1, 'a'), (2, 'b'), (3, 'c');"
    "INSERT INTO k VALUES (1, 1, 'm', 2000), (2, 1, 'n', 2001), (3, 2, 'o', 2002)"
)
APP_GOLDS = [
    "SELECT name FROM p JOIN k ON p.id = k.p WHERE y > 2000",
    "SELECT max(n) FROM k WHERE y > 2000 AND p = 1",
]


def app_collated(path: Path, ddl: str) -> Path:
    """A database whose application brings a collation along."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.create_collation("app", lambda a, b: (a > b) - (a < b))
        connection.execute(ddl)
    return path


@pytest.mark.parametrize("where", ["an index", "a column"])
def test_golds_that_run_are_scored_whatever_else_sqlite_cannot_do(
    where: str, tmp_path: Path
) -> None:
    ddl = APP_COLLATED.format(" COLLATE app" if where == "a column" else "")
    if where == "an index":
        ddl += "; CREATE INDEX of_app ON k (n COLLATE app)"
    path = app_collated(tmp_path / "d.sqlite", ddl)
    opened = apsw.connections()
    folder = build_folder(tmp_path, "c", {"d": path}, [("d", gold) for gold in APP_GOLDS])
    first, second = score_corpus(folder, workers=1).scores
    assert first.reason == "" and first.signal_low is not None
    assert second.reason == ("gold_error" if where == "a column" else "")
    # where no variant can be filled, the lower end stands alone
    assert first.variants == (0 if where == "a column" else 4)
    assert apsw.connections() == opened, "no session is left open"
    # no row can be added to such an index: the variants' golds are skipped, and nothing ends
    batch = make_variants(path, [("g", APP_GOLDS[0])], corpus="c", db_id="d", count=2, seed=0)
    refused = ["not_amplified"] * 2 if where == "an index" else []
    assert [gold.reason for gold in batch.skipped] == refused


def test_no_variant_is_left_open_where_scoring_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = app_collated(tmp_path / "d.sqlite", APP_COLLATED.format(""))
    folder = build_folder(tmp_path, "c", {"d": path}, [("d", APP_GOLDS[0])])
    opened = apsw.connections()

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("envbuild.signal.corpus.score_question", stopped)
    with pytest.raises(KeyboardInterrupt):
        score_corpus(folder, workers=1)
    assert apsw.connections() == opened
