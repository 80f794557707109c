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
from envbuild.records.corpus import DatabaseRow
from envbuild.records.preflight import Severity
from envbuild.records.signal import CorpusSignal, SignalThresholds
from envbuild.signal.corpus import (
    corpus_severity,
    covers,
    iter_golds,
    read_signal,
    score_corpus,
    signal_findings,
    write_signal,
)
from envbuild.signal.cuts import cut_image
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
            image = cut_image(path, rows)
            path = root / f"{name}-{db_id}.sqlite"
            path.write_bytes(image)
        paths[db_id] = path
    pairs = [(gold["db_id"], gold["query"]) for gold in golds if gold["db_id"] in DATABASES]
    return build_folder(root, name, paths, pairs)


def asked_of(root: Path, golds: list[tuple[str, str]]) -> CorpusFolder:
    """A folder of questions alone: of each database a catalogue row, and no file."""
    folder = build_folder(root, "c", {}, golds)
    known = {"corpus": "c", "split": "", "sha256": "", "sqlite_file": "f"}
    row = {**dict.fromkeys(DatabaseRow.__struct_fields__, 0), **known}
    databases = [
        msgspec.convert({**row, "db_id": db_id}, DatabaseRow)
        for db_id in sorted({db_id for db_id, _ in golds})
    ]
    write_records(folder.root / "databases.parquet", databases, arrow_schema(DatabaseRow))
    return CorpusFolder(folder.root)


def test_the_sample_is_seeded_bounded_and_local(tmp_path: Path) -> None:
    many = [(f"db{n % 3}", f"SELECT {n}") for n in range(300)]
    folder = asked_of(tmp_path / "a", many)
    drawn = {(gold.db_id, gold.gold_sql) for gold in iter_golds(folder, wanted=40, seed=1)}
    assert len(drawn) == 40
    assert max(sum(db == one for db, _ in drawn) for one in ("db0", "db1", "db2")) <= 20
    reversed_folder = asked_of(tmp_path / "b", many[::-1])
    again = {(gold.db_id, gold.gold_sql) for gold in iter_golds(reversed_folder, wanted=40, seed=1)}
    assert again == drawn
    other = {(gold.db_id, gold.gold_sql) for gold in iter_golds(folder, wanted=40, seed=2)}
    assert other != drawn
    # a database more changes nothing about which golds stand first in the others
    one_more = asked_of(tmp_path / "m", [*many, ("db9", "SELECT 1")])
    more = {(gold.db_id, gold.gold_sql) for gold in iter_golds(one_more, wanted=40, seed=1)}
    assert len(drawn & more) >= 39


def test_phrasings_of_one_gold_are_scored_once(tmp_path: Path) -> None:
    (gold,) = iter_golds(asked_of(tmp_path, [("db", "SELECT 1")] * 5))
    assert gold.question_ids == ("q0000", "q0001", "q0002", "q0003", "q0004")


def test_a_sample_finds_all_that_ask_its_golds_in_little_memory(tmp_path: Path) -> None:
    golds = [
        (f"db{n * 31 % 40:03}", f"SELECT {n % 10_000} /* {'x' * 1_500} */") for n in range(20_000)
    ]
    folder = asked_of(tmp_path, golds)
    tracemalloc.start()
    drawn = list(iter_golds(folder, wanted=300, seed=5))
    every = [(gold.db_id, len(gold.gold_sql)) for gold in iter_golds(folder, wanted=None)]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(every) == 10_000 and [db for db, _ in every] == sorted(db for db, _ in every)
    assert most < 52 * 1024 * 1024  # 60 MiB where all are held, measured
    # what the whole list would give: the lowest places of each database, then of all
    places: dict[str, list[tuple[int, str]]] = {}
    for db, sql in set(golds):
        place = derive_seed(5, f"{db}/{sql}", "signal sample")
        places.setdefault(db, []).append((place, sql))
    kept = [(place, db, sql) for db, own in places.items() for place, sql in sorted(own)[:20]]
    expected = sorted((db, sql) for _, db, sql in sorted(kept)[:300])
    assert [(gold.db_id, gold.gold_sql) for gold in drawn] == expected
    assert all(len(gold.question_ids) == 2 for gold in drawn)


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
    values = [score.signal_high for score in sparse.scores if score.signal_high is not None]
    assert (sparse.summary.mean_high, sparse.summary.median) == (fmean(values), median(values))
    assert sparse.summary.share_below_half == sum(v < 0.5 for v in values) / len(values)
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
    assert covers(stored, wanted=25, seed=3)
    assert covers(stored, wanted=5, seed=3), "a larger sample of one seed"
    assert not covers(stored, wanted=26, seed=3)
    assert not covers(stored, wanted=25, seed=4)
    for older in {"version": "signal@0"}, {"verdict": "bag@1"}:
        summary = msgspec.structs.replace(signal.summary, **older)
        assert not covers(CorpusSignal(summary=summary, scores=()), wanted=25, seed=3)
    assert not covers(stored, wanted=None, seed=3)
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
