"""The question pool: everything adds up, and nothing but inputs and seed decides its bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.errors import (
    ConfigurationError,
    CorpusFolderError,
    OutputError,
    UnknownNameError,
    UsageError,
)
from envbuild.io.parquet import arrow_schema, read_records, write_records
from envbuild.manifest import build as build_module
from envbuild.manifest.buckets import bucket_corpora
from envbuild.manifest.build import build_manifest
from envbuild.manifest.read import ROW_SCHEMA, open_manifest
from envbuild.manifest.settings import ManifestSettings, parse_tables
from envbuild.records.corpus import Question, Reject
from envbuild.records.preflight import Finding, Severity
from envbuild.records.signal import SignalScore
from envbuild.signal.variants import VariantStore
from envbuild.sql.verdicts import decode_rows
from tests.small_corpus import real_corpus, write_corpus

SHOP = (
    "CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, photo BLOB);"
    "CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INT REFERENCES customer, price REAL);"
    "CREATE TABLE item(order_id INT REFERENCES orders, what TEXT); CREATE TABLE lonely(x);"
    "CREATE VIEW spent AS SELECT customer, sum(price) AS total FROM orders GROUP BY customer;"
    "INSERT INTO customer VALUES (1, 'ff', x'ff'), (2, 'Ann', NULL);"
    "INSERT INTO orders VALUES (1, 1, 2.5), (2, 1, 9223372036854775807), (3, 2, 1);"
)
FILES = ("manifest.parquet", "gold.parquet", "rejects.parquet", "manifest.json")


def ask(number: int, sql: str, **fields: str) -> Question:
    given = {"db_id": "shop", "question": f"question {number}?", **fields}
    return Question(question_id=f"q{number}", gold_sql=sql, **given)


QUESTIONS = [
    ask(0, "SELECT name, photo FROM customer ORDER BY id", style="verbose"),
    ask(0, "SELECT name, photo FROM customer ORDER BY id", style="casual", question="names"),
    ask(0, "SELECT name, photo FROM customer ORDER BY id", style="short", question="<string>"),
    ask(1, "SELECT total FROM spent WHERE customer = 1", difficulty="simple"),
    ask(2, "SELECT nope FROM customer"),
    ask(3, "DELETE FROM customer"),
    ask(4, "SELECT 1; SELECT 2"),
    ask(5, "SELECT 1", db_id=""),
    ask(6, "SELECT 1", db_id="nowhere"),
    ask(7, "SELECT count(*) FROM sqlite_schema"),
    ask(8, "SELECT count(*) FROM orders JOIN item ON item.order_id = orders.id"),
    ask(8, "SELECT count(*) FROM orders"),
    ask(9, "   "),
    ask(10, "SELECT x FROM lonely", db_id="../a b"),
    ask(11, "SELECT max(x) FROM lonely", db_id="../a b", question="…"),
]  # fmt: skip


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    write_corpus(
        tmp_path / "corpus" / "shop", {"shop": SHOP, "../a b": "CREATE TABLE lonely(x)"}, QUESTIONS
    )
    write_corpus(tmp_path / "corpus" / "b", {"shop": SHOP}, [ask(1, "SELECT id FROM orders")])
    return tmp_path / "corpus"


def build(corpora: Path, out: Path, **settings: object) -> Path:
    wanted = {"smallest": 1, "largest": 3, **settings}
    build_manifest(open_corpora(corpora), out, settings=ManifestSettings(**wanted), workers=1)
    return out


def bytes_of(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in FILES]


def test_every_question_is_a_row_or_a_named_reject(corpora: Path, tmp_path: Path) -> None:
    manifest = open_manifest(build(corpora, tmp_path / "out"))
    rejects = {
        (r.question_id, r.detail.partition("]")[0].removeprefix("[")): r.reason
        for r in read_records(manifest.root / "rejects.parquet", Reject)
    }
    assert [row.row_id for row in manifest.rows] == [
        "b/shop/q1", "shop/..%2Fa b/q10", "shop/shop/q0/casual", "shop/shop/q0/verbose",
        "shop/shop/q1", "shop/shop/q8",
    ]  # fmt: skip
    assert {key[0]: reason for key, reason in rejects.items()} == {
        "q0": "placeholder_phrasing", "q2": "gold_error", "q3": "gold_denied",
        "q4": "gold_invalid", "q5": "missing_db_id", "q6": "unknown_db_id", "q7": "view_differs",
        "q8": "duplicate_question", "q9": "no_gold_sql", "q11": "placeholder_phrasing",
    }  # fmt: skip
    assert ("q0", "short") in rejects
    counts = manifest.index["counts"]
    assert counts["offered"] == len(QUESTIONS) + 1 == counts["rows"] + len(rejects)


def test_a_row_is_a_whole_training_input(corpora: Path, tmp_path: Path) -> None:
    manifest = open_manifest(build(corpora, tmp_path / "out"))
    row = manifest.row("shop/shop/q1")
    assert row.gold_tables == ("orders",)
    assert row.literals == ("1",)
    assert row.masked_length == len("SELECT total FROM spent WHERE customer = ?")
    assert (row.bucket, row.difficulty, row.split) == ("short", "simple", "")
    assert len(row.tables) == max(1, row.target_size) and "orders" in row.tables
    assert set(row.distractors) == set(row.tables) - {"orders"}
    assert manifest.database_path(row).is_file()
    assert not Path(row.sqlite_file).is_absolute()
    gold = manifest.gold(manifest.row("shop/shop/q0/verbose").gold_id)
    assert gold.ordered and decode_rows(gold.result) == (("ff", b"\xff"), ("Ann", None))
    assert manifest.row("shop/shop/q0/casual").gold_id == gold.gold_id


def test_findings_signal_and_edges_of_earlier_stages_are_taken(
    corpora: Path, tmp_path: Path
) -> None:
    bucket_corpora(open_corpora(corpora), edges="10,20,30")
    folder = corpora / "shop"
    findings = [
        Finding(corpus="shop", code=code, severity=Severity.WARNING, db_id="shop", question_id="q1")
        for code in ("trivial_gold", "empty_gold", "trivial_gold")
    ]
    write_records(folder / "findings.parquet", findings, arrow_schema(Finding))
    scores = [
        SignalScore(
            db_id="shop", question_id="q1", mutants=8, killed=6, signal_low=0.75, signal_high=0.75
        ),
        SignalScore(
            db_id="shop", question_id="q8", mutants=2, killed=2, signal_low=None, signal_high=None
        ),
    ]
    write_records(folder / "signal.parquet", scores, arrow_schema(SignalScore))
    manifest = open_manifest(build(corpora, tmp_path / "out"))
    row = manifest.row("shop/shop/q1")
    assert row.findings == ("empty_gold", "trivial_gold")
    assert manifest.edges == {"b": [10, 20, 30], "shop": [10, 20, 30]}
    assert (row.signal, row.signal_mutants, row.bucket) == (0.75, 8, "b3")
    assert manifest.row("shop/shop/q8").signal is None
    assert manifest.row("shop/shop/q0/casual").signal_mutants == 0
    left = open_manifest(build(corpora, tmp_path / "left", leave_out=("empty_gold",)))
    assert "shop/shop/q1" not in left.row_ids
    assert left.index["counts"]["rejects"]["empty_gold"] == 1


def test_styles_not_taken_are_rejects_and_change_no_other_row(
    corpora: Path, tmp_path: Path
) -> None:
    every = open_manifest(build(corpora, tmp_path / "every"))
    some = open_manifest(build(corpora, tmp_path / "some", styles=("casual",)))
    assert some.row("shop/shop/q0/casual") == every.row("shop/shop/q0/casual")
    assert some.index["counts"]["offered"] == every.index["counts"]["offered"]
    assert some.index["counts"]["rejects"]["style_not_taken"] > 5


@pytest.fixture
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "PART_QUESTIONS", 1)


@pytest.mark.usefixtures("many_parts")
def test_shards_parts_and_interruptions_leave_the_same_bytes(corpora: Path, tmp_path: Path) -> None:
    whole = bytes_of(build(corpora, tmp_path / "whole"))
    settings = ManifestSettings(smallest=1, largest=3)
    sharded = tmp_path / "sharded"
    for index in range(3):
        built = build_manifest(
            open_corpora(corpora), sharded, settings=settings, workers=1, shard=(index, 3)
        )
        assert not (sharded / "manifest.json").exists()
    assert built.complete and built.parts > 3
    assert bytes_of(build(corpora, sharded)) == whole
    assert sorted(path.name for path in sharded.iterdir()) == sorted(FILES)

    interrupted = tmp_path / "interrupted"
    with pytest.raises(KeyboardInterrupt):
        build_manifest(
            open_corpora(corpora), interrupted, settings=settings, workers=1, watch=_stop
        )
    assert not (interrupted / "manifest.parquet").exists()
    assert len(list((interrupted / ".parts").glob("*.done"))) == 2
    assert bytes_of(build(corpora, interrupted)) == whole


def _stop(done: int, parts: int) -> None:
    if done == 2:
        raise KeyboardInterrupt


def test_another_configuration_is_refused_naming_what_differs(
    corpora: Path, tmp_path: Path
) -> None:
    out = build(corpora, tmp_path / "out")
    before = bytes_of(out)
    build(corpora, out)
    assert bytes_of(out) == before
    with pytest.raises(
        ConfigurationError, match=r"holds a manifest made with another --tables, --seed"
    ):
        build(corpora, out, seed=1, largest=4)
    bucket_corpora(open_corpora(corpora))
    with pytest.raises(ConfigurationError, match=r"made with another b/buckets\.parquet"):
        build(corpora, out)


def test_replace_takes_away_another_manifest_and_nothing_else(
    corpora: Path, tmp_path: Path
) -> None:
    fresh = build(corpora, tmp_path / "fresh", seed=1)
    out = build(corpora, tmp_path / "out")
    (out / "notes.txt").write_text("mine")
    (out / "variants.parquet").write_bytes(b"of a manifest whose removal a kill cut short")
    settings = ManifestSettings(smallest=1, largest=3, seed=1)
    build_manifest(open_corpora(corpora), out, replace=True, settings=settings, workers=1)
    assert bytes_of(out) == bytes_of(fresh)
    assert (out / "notes.txt").read_text() == "mine"
    (out / "variants.parquet").write_bytes(b"of one that was made with variants")
    (out / "manifest.json").unlink()
    build_manifest(open_corpora(corpora), out, settings=settings, workers=1)
    assert not (out / "variants.parquet").exists()
    for written in (b"[]", b"no json", b'{"format": "other/9"}'):
        (out / "manifest.json").write_bytes(written)
        for replace in (True, False):
            with pytest.raises(CorpusFolderError, match=r"manifest\.json is no manifest's"):
                build_manifest(
                    open_corpora(corpora), out, replace=replace, settings=settings, workers=1
                )
        assert (out / "manifest.json").read_bytes() == written


@pytest.mark.usefixtures("many_parts")
@pytest.mark.parametrize("shard", [None, (0, 2)])
def test_nothing_is_replaced_under_a_build_in_progress(
    corpora: Path, tmp_path: Path, shard: tuple[int, int] | None
) -> None:
    out = tmp_path / "out"
    begun: list[str] = []

    def replace(done: int, parts: int) -> None:
        with pytest.raises(OutputError, match=f"another run is writing {out}"):
            build_manifest(
                open_corpora(corpora), out, settings=ManifestSettings(seed=2), replace=True
            )
        begun.append("refused")

    build_manifest(
        open_corpora(corpora), out, settings=ManifestSettings(), shard=shard, watch=replace
    )
    build_manifest(open_corpora(corpora), out, settings=ManifestSettings())
    assert begun and len(open_manifest(out).row_ids)
    with pytest.raises(UsageError, match="without --shard"):
        build_manifest(
            open_corpora(corpora), out, settings=ManifestSettings(), shard=(0, 2), replace=True
        )


def test_seeds_change_samples_and_hash_seeds_and_workers_do_not(
    corpora: Path, tmp_path: Path
) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from envbuild.corpora.folder import open_corpora\n"
        "from envbuild.manifest.build import build_manifest\n"
        "from envbuild.manifest.settings import ManifestSettings as S\n"
        "from envbuild.manifest import build; build.PART_QUESTIONS = 1\n"
        "if __name__ == '__main__':\n"
        "    build_manifest(open_corpora(Path(sys.argv[1])), Path(sys.argv[2]),\n"
        "        settings=S(smallest=1, largest=3), workers=int(sys.argv[3]))\n"
    )
    (tmp_path / "program.py").write_text(program)
    for name, workers in (("one", 1), ("two", 2)):
        subprocess.run(
            [sys.executable, tmp_path / "program.py", corpora, tmp_path / name, str(workers)],
            env={**os.environ, "PYTHONHASHSEED": str(workers * 7)},
            check=True,
        )
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    first = open_manifest(tmp_path / "one").columns("seed", "tables")
    other = open_manifest(build(corpora, tmp_path / "other", seed=5)).columns("seed", "tables")
    assert first["seed"] != other["seed"]


def test_other_readers_see_the_same_rows(corpora: Path, tmp_path: Path) -> None:
    out = build(corpora, tmp_path / "out")
    file = str(out / "manifest.parquet")
    assert pl.read_parquet(file).height == 6
    assert duckdb.sql(f"SELECT sum(len(tables)) FROM '{file}'").fetchall()[0][0] > 6
    assert pl.read_parquet(file).columns == ROW_SCHEMA.names
    assert not any(isinstance(kind, pl.Struct) for kind in pl.read_parquet(file).dtypes)


def test_the_command_says_what_was_left_out(corpora: Path, tmp_path: Path) -> None:
    arguments = ["manifest", str(corpora), "--out", str(tmp_path / "m"), "--workers", "1"]
    run = CliRunner().invoke(app, [*arguments, "--json", "--tables", "1:3"])
    assert run.exit_code == 1
    document = json.loads(run.stdout)
    assert (document["format"], document["complete"]) == ("envbuild.manifest/1", True)
    assert document["counts"]["rows"] == 6
    run = CliRunner().invoke(app, [*arguments, "--tables", "1:3"])
    assert run.exit_code == 1
    assert "16 questions: 6 rows, 10 left out, 5 gold results" in run.stdout
    assert "placeholder_phrasing" in run.stdout
    only_b = ["manifest", str(corpora / "b"), "--out", str(tmp_path / "n"), "--workers", "1"]
    assert CliRunner().invoke(app, only_b).exit_code == 0
    row = open_manifest(tmp_path / "n").row(open_manifest(tmp_path / "n").row_ids[0])
    empty = Finding(
        corpus=row.corpus,
        code="empty_gold",
        severity=Severity.ERROR,
        db_id=row.db_id,
        question_id=row.question_id,
    )
    write_records(corpora / "b" / "findings.parquet", [empty], arrow_schema(Finding))
    asked = CliRunner().invoke(app, [*only_b, "--leave-out", "empty_gold", "--replace", "--json"])
    assert asked.exit_code == 0
    assert json.loads(asked.stdout)["counts"]["rejects"] == {"empty_gold": 1}


def test_what_cannot_be_is_said_before_any_work(corpora: Path, tmp_path: Path) -> None:
    assert (parse_tables("4:64"), parse_tables("16")) == ((4, 64), (16, 16))
    for text in ("", "4:", "a:b", "-1"):
        with pytest.raises(UsageError):
            parse_tables(text)
    with pytest.raises(UsageError, match="1 <= SMALLEST"):
        build(corpora, tmp_path / "out", smallest=9, largest=3)
    with pytest.raises(UnknownNameError, match="lexical"):
        build(corpora, tmp_path / "out", distractors="near")
    with pytest.raises(UsageError, match="--full"):
        build(corpora, tmp_path / "out", full=True, extra=3)
    with pytest.raises(UnknownNameError, match="no phrasing 'foo'; known: casual"):
        build(corpora, tmp_path / "out", styles=("casual", "foo"))
    assert not (tmp_path / "out").exists()
    write_corpus(tmp_path / "empty", {"shop": SHOP}, [])
    with pytest.raises(CorpusFolderError, match="no questions in empty"):
        build(tmp_path / "empty", tmp_path / "out")
    twice = [CorpusFolder(corpora / "b")] * 2
    with pytest.raises(UsageError, match="two corpora are called 'b'"):
        build_manifest(twice, tmp_path / "twice", settings=ManifestSettings(), workers=1)
    assert not (tmp_path / "twice").exists()


def test_birds_golds_all_become_rows(tmp_path: Path) -> None:
    corpus = real_corpus(tmp_path, "bird")
    manifest = open_manifest(build(CorpusFolder(corpus.root).root, tmp_path / "out"))
    assert len(manifest.rows) == 287
    assert manifest.index["counts"]["rejects"] == {}


def test_hidden_variants_are_stored_with_their_golds_results(tmp_path: Path) -> None:
    golds = [
        "SELECT name FROM customer WHERE id > 1",
        "SELECT count(*) FROM orders WHERE price > 1",
        "SELECT name FROM customer WHERE 1 = 0",
    ]
    write_corpus(tmp_path / "c", {"shop": SHOP}, [ask(n, sql) for n, sql in enumerate(golds)])
    settings = ManifestSettings(variants=2)
    outs = [tmp_path / name for name in ("one", "two")]
    for out in outs:
        built = build_manifest(open_corpora(tmp_path / "c"), out, settings=settings, workers=1)
    assert built.counts.variants == {"gold_empty": 2, "made": 2}
    manifest = open_manifest(outs[0])
    assert manifest.row("c/shop/q0").variants == ("c/shop/0.0", "c/shop/1.0")
    assert manifest.row("c/shop/q2").variants == ()
    with VariantStore(outs[0]) as store:
        for row in manifest.rows:
            for variant in row.variants:
                session = store.session(variant, manifest.database_path(row))
                stored = manifest.gold(row.gold_id, variant)
                assert session.run(row.gold_sql).rows == decode_rows(stored.result)
    files = (*FILES, "variants.parquet")
    assert [(outs[0] / f).read_bytes() for f in files] == [
        (outs[1] / f).read_bytes() for f in files
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("many_parts")
def test_a_local_ray_leaves_the_same_bytes(corpora: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    whole = bytes_of(build(corpora, tmp_path / "whole"))
    settings = ManifestSettings(smallest=1, largest=3)
    build_manifest(
        open_corpora(corpora), tmp_path / "ray", settings=settings, workers=2, engine="ray"
    )
    assert bytes_of(tmp_path / "ray") == whole


def test_a_question_id_of_two_databases_is_two_questions(tmp_path: Path) -> None:
    asked = [ask(1, "SELECT id FROM orders", db_id=db_id) for db_id in ("one", "two")]
    corpus = write_corpus(tmp_path / "c", {"one": SHOP, "two": SHOP}, asked)
    scores = [
        SignalScore(
            db_id=db_id, question_id="q1", mutants=4, killed=1, signal_low=high, signal_high=high
        )
        for db_id, high in (("one", 0.25), ("two", 0.75))
    ]
    write_records(corpus.root / "signal.parquet", scores, arrow_schema(SignalScore))
    found = Finding(
        corpus="c", code="no_signal", severity=Severity.ERROR, db_id="one", question_id="q1"
    )
    write_records(corpus.root / "findings.parquet", [found], arrow_schema(Finding))
    manifest = open_manifest(build(tmp_path / "c", tmp_path / "out"))
    known = {row.db_id: (row.signal, row.findings) for row in manifest.rows}
    assert known == {"one": (0.25, ("no_signal",)), "two": (0.75, ())}
