"""Sources to corpus folders: counts that add up, the same bytes however they were built."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pyarrow.parquet as pq
import pytest

from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.corpora.source import read_source
from envbuild.errors import ConfigurationError, CorpusFolderError, OutputError
from envbuild.materialize.any_folder import open_any
from envbuild.materialize.corpus import (
    CorpusSummary,
    build_corpus,
    build_unit,
    build_unit_singly,
    claim_name,
    iter_units,
)
from envbuild.materialize.pack import pack_databases
from envbuild.sql.connect import open_read_only, quote_name
from tests.shared import shared_data


def write_records(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def many_records(count: int = 70) -> list[dict[str, Any]]:
    """Databases with every kind of trouble, and a question each."""
    records = []
    for n in range(count):
        rows = [{"id": i, "s": "x" * (n % 7)} for i in range(n * 3)] + [{"id": 0}, {"zzz": 1}]
        records.append(
            {
                "id": f"q{n}",
                "db_id": f"Shop {n % 60}",
                "ddl": "CREATE TABLE t(id INTEGER PRIMARY KEY, s TEXT); NONSENSE;",
                "payload": json.dumps({"t": rows, "u": [1]}) if n % 9 else "{",
                "sql": "SELECT count(*) FROM t" if n % 11 else "",
                "question": "How many?",
            }
        )
    return records


def build(source: Path, out: Path, **options: Any) -> CorpusSummary:
    return build_corpus(read_source(source), out, **options)


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def check_accounts(corpus: CorpusFolder) -> None:
    """Every row, database and question offered is in exactly one place."""
    rejects = Counter((r.db_id, r.table) for r in corpus.rejects() if r.kind == "row")
    for table in corpus.tables():
        assert table.rows_offered == table.rows_stored + table.rows_refused
        assert rejects[table.db_id, table.table] == table.rows_refused
    by_database = Counter(r.db_id for r in corpus.rejects() if r.kind == "row")
    for row in corpus.databases():
        assert row.rows_offered == row.rows_stored + row.rows_refused
        assert by_database[row.db_id] == row.rows_refused
        assert corpus.database_path(row.db_id).stat().st_size == row.bytes


def test_everything_offered_ends_in_one_place(tmp_path: Path) -> None:
    source = write_records(tmp_path / "shops.jsonl", many_records())
    summary = build(source, tmp_path / "out", workers=1)
    (corpus,) = open_corpora(tmp_path / "out")
    check_accounts(corpus)
    rejects = corpus.rejects()
    failed = [r for r in rejects if r.kind == "database" and r.reason == "payload_parse_error"]
    assert len(failed) == summary.rejects["payload_parse_error"] == 7
    assert summary.databases + len(failed) == 60
    refused = [r for r in rejects if r.kind == "question"]
    assert len(corpus.questions()) + len(refused) == 70
    assert {r.reason for r in refused} == {"no_gold_sql", "database_not_built"}
    assert summary.ddl_refused == summary.databases


@pytest.mark.parametrize("options", [{"workers": 2}, {"shards": 3}])
def test_the_bytes_do_not_depend_on_how_it_was_built(
    tmp_path: Path, options: dict[str, int]
) -> None:
    source = write_records(tmp_path / "shops.jsonl", many_records())
    build(source, tmp_path / "one", workers=1)
    if shards := options.get("shards"):
        for index in range(shards):
            last = build(source, tmp_path / "other", workers=1, shard=(index, shards))
            assert last.complete == (index == shards - 1)
    else:
        build(source, tmp_path / "other", **options)
    assert content_of(tmp_path / "one") == content_of(tmp_path / "other")


@pytest.mark.slow
def test_ray_gives_the_same_bytes(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    source = write_records(tmp_path / "shops.jsonl", many_records(40))
    build(source, tmp_path / "one", workers=1)
    try:
        build(source, tmp_path / "other", engine="ray", workers=2)
    finally:
        ray.shutdown()
    assert content_of(tmp_path / "one") == content_of(tmp_path / "other")


@pytest.mark.slow
def test_killed_at_any_moment_it_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    source = write_records(tmp_path / "shops.jsonl", many_records(700))
    build(source, tmp_path / "clean", workers=1)
    command = [sys.executable, "-m", "envbuild", "materialize", str(source), "--workers", "2"]
    out = tmp_path / "killed"
    for wait in (0.3, 0.5, 0.7, 0.9):
        run = subprocess.Popen([*command, "--out", str(out)], stderr=subprocess.DEVNULL)
        time.sleep(wait)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        assert not (out / "shops" / "corpus.json").exists() or wait > 0.3
    finished = subprocess.run([*command, "--out", str(out)], capture_output=True, check=False)
    assert finished.returncode == 1
    assert content_of(tmp_path / "clean") == content_of(out)


def test_a_unit_whose_worker_died_is_built_database_by_database(tmp_path: Path) -> None:
    records = list(read_source(write_records(tmp_path / "s.jsonl", many_records(12))).databases())
    options: dict[str, Any] = {"shard": (0, 1), "link": False, "limit": None, "split": None}
    for name, built in (("together", build_unit), ("singly", lambda u: build_unit_singly(u, "x"))):
        (unit,) = iter_units(records, tmp_path / name, **options)
        assert built(unit) == 12
    assert content_of(tmp_path / "together") == content_of(tmp_path / "singly")


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    source = write_records(tmp_path / "shops.jsonl", many_records(12))
    build(source, tmp_path / "clean", workers=1)
    root = tmp_path / "out" / "shops"
    (root / "databases" / "Shop 1").mkdir(parents=True)
    (root / "databases" / "Shop 1" / "Shop 1.sqlite.99.partial").write_bytes(b"half")
    (root / "databases" / "Shop 1" / "Shop 1.sqlite.99.partial-journal").write_bytes(b"half")
    (root / "tables.parquet.99.partial").write_bytes(b"half")
    build(source, tmp_path / "out", workers=1)
    assert content_of(tmp_path / "clean") == content_of(tmp_path / "out")


def test_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    source = write_records(tmp_path / "shops.jsonl", many_records(3))
    build(source, tmp_path / "out", workers=1)
    assert build(source, tmp_path / "out", workers=1).resumed
    with pytest.raises(
        ConfigurationError, match=r"holds a corpus made .*--limit \(None then, 2 now\)"
    ):
        build(source, tmp_path / "out", workers=1, limit=2)
    write_records(source, many_records(4))
    with pytest.raises(ConfigurationError, match=r"source\..*shops\.jsonl"):
        build(source, tmp_path / "out", workers=1)


def test_limit_takes_the_first_databases_and_their_questions(tmp_path: Path) -> None:
    source = write_records(tmp_path / "shops.jsonl", many_records(20))
    summary = build(source, tmp_path / "out", workers=1, limit=4)
    assert summary.databases + summary.failed == 4
    assert summary.questions + summary.questions_refused + summary.questions_outside == 20
    assert "unknown_db_id" not in summary.rejects


def test_hostile_names_stay_inside_and_apart(tmp_path: Path) -> None:
    hostile = ["__\nolive", "a/b", "a_b", "../x", "A_B", "é" * 200, "e\u0301", "é", "CON", ".", ""]
    records = [{"db_id": name, "ddl": "CREATE TABLE t(a);"} for name in hostile]
    build(write_records(tmp_path / "odd.jsonl", records), tmp_path / "out", workers=1)
    (corpus,) = open_corpora(tmp_path / "out")
    given = [row.db_id for row in corpus.databases()]
    assert given[:-1] == hostile[:-1]
    files = [corpus.database_path(db_id) for db_id in given]
    inside = (tmp_path / "out" / "odd" / "databases").resolve()
    assert all(file.resolve().parent.parent == inside for file in files)
    assert len({file.name.casefold() for file in files}) == len(hostile)
    assert claim_name("california_schools", set()) == "california_schools"


def test_an_unwritable_or_full_place_is_one_sentence(tmp_path: Path) -> None:
    source = write_records(tmp_path / "shops.jsonl", many_records(3))
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(OutputError, match="cannot write"):
        build(source, blocked / "out", workers=1)
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, 6_000));"
        "from envbuild.cli.app import main; main()"
    )
    arguments = ["materialize", str(source), "--out", str(tmp_path / "full")]
    for workers in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", program, *arguments, "--workers", workers],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 2, run.stderr
        assert run.stdout == ""
        assert "cannot write" in run.stderr
        assert "Traceback" not in run.stderr
    assert not (tmp_path / "full" / "shops" / "corpus.json").exists()
    resumed = build(source, tmp_path / "full", workers=1)
    assert resumed.databases + resumed.failed == 3


def test_linked_files_share_the_source(tmp_path: Path) -> None:
    build(shared_data("spider"), tmp_path, workers=1, link=True)
    (corpus,) = open_corpora(tmp_path)
    file = corpus.database_path("singer")
    assert file.samefile(shared_data("spider") / "database" / "singer" / "singer.sqlite")


@pytest.mark.parametrize(
    ("folder", "reader", "databases", "questions"),
    [
        ("bird", "bird", 2, 287),
        ("spider", "spider", 10, 597),
        ("machinespider_de", "spider", 4, 197),
        ("synsql", "synsql", 193, 200),
        ("large/beaver", "spider", 5, 88),
        ("sqale/sqale_v1", "sqale", 5, 5),
    ],
)
def test_real_folders(
    tmp_path: Path, folder: str, reader: str, databases: int, questions: int
) -> None:
    source = read_source(shared_data(folder))
    assert source.kind == reader
    summary = build_corpus(source, tmp_path, workers=1)
    assert (summary.databases, summary.failed) == (databases, 0)
    assert (summary.questions, summary.questions_refused) == (questions, 0)
    assert ("no data rows" in summary.said) == folder.endswith("v1")
    (corpus,) = open_corpora(tmp_path)
    check_accounts(corpus)
    assert len(corpus.questions()) == questions


@pytest.mark.parametrize("link", [False, True])
def test_birds_column_descriptions_stay_beside_their_databases(tmp_path: Path, link: bool) -> None:
    published = shared_data("bird")
    summary = build_corpus(read_source(published), tmp_path, workers=1, link=link)
    pattern = "*/database_description/*.csv"
    theirs, ours = published / "dev_databases", tmp_path / summary.name / "databases"
    expected = {p.relative_to(theirs): p.read_bytes() for p in theirs.glob(pattern)}
    assert {p.relative_to(ours): p.read_bytes() for p in ours.glob(pattern)} == expected
    assert summary.description_files == len(expected) == 18
    index = json.loads((tmp_path / summary.name / "corpus.json").read_text())
    assert index["counts"]["description_files"] == 18


def there_and_back(folder: Path, tmp_path: Path) -> CorpusFolder:
    (summary,) = pack_databases(folder, tmp_path / "packed", workers=1)
    assert summary.problems == ()
    build_corpus(read_source(tmp_path / "packed"), tmp_path / "corpus", workers=1)
    (corpus,) = open_corpora(tmp_path / "corpus")
    assert corpus.rejects() == []
    return corpus


def dump(path: Path) -> Iterator[tuple[object, ...]]:
    """Every cell's storage class and bytes, and every statement but SQLite's own."""
    connection = open_read_only(path)
    try:
        yield from connection.execute(
            "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL "
            "AND name NOT LIKE 'sqlite_stat%' ORDER BY type, name"
        )
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_stat%'"
            "ORDER BY name"
        ).fetchall()
        for (table,) in tables:
            columns = connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))
            parts = [
                f"typeof({c}), CASE typeof({c}) WHEN 'text' THEN CAST({c} AS BLOB) ELSE {c} END"
                for (name,) in columns
                if (c := quote_name(name))
            ]
            yield (table,)
            rows = connection.execute(f"SELECT {', '.join(parts)} FROM {quote_name(table)}")
            yield from (tuple(map(repr, row)) for row in rows)
    finally:
        connection.close()


@pytest.mark.parametrize(
    "folder",
    ["bird/dev_databases", "spider/database", "machinespider_de/database", "large/pokedex"],
)
def test_real_databases_come_back_as_they_were(folder: str, tmp_path: Path) -> None:
    source = shared_data(folder)
    corpus = there_and_back(source, tmp_path)
    (plain,) = open_any(source)
    assert (plain.name, plain.questions()) == (Path(folder).name, [])
    with pytest.raises(CorpusFolderError, match="no database 'nope'"):
        plain.database_path("nope")
    assert [row.db_id for row in plain.databases()] == [row.db_id for row in corpus.databases()]
    for row in plain.databases():
        before, after = plain.database_path(row.db_id), corpus.database_path(row.db_id)
        assert list(dump(before)) == list(dump(after)), row.db_id


def test_every_kind_of_value_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    connection = apsw.Connection(str(folder / "odd.sqlite"))
    connection.execute(
        """
        CREATE TABLE v(id INTEGER PRIMARY KEY AUTOINCREMENT, v, t TEXT, n NUMERIC -- the end
        );
        CREATE TABLE "we ird""name"(k TEXT PRIMARY KEY, "%" ANY) STRICT, WITHOUT ROWID;
        CREATE TABLE g(a INT, b INT AS (a * 2) STORED, c TEXT AS ('x' || a));
        CREATE TABLE empty(x);
        CREATE VIEW w AS SELECT v FROM v;
        CREATE INDEX i ON v(t) WHERE t > 'a;b';
        CREATE TRIGGER tr AFTER INSERT ON v BEGIN INSERT INTO empty VALUES('a;'); END;
        INSERT INTO v(v, t, n) VALUES
          (x'00ff', 'a' || char(0) || 'b', 9223372036854775807),
          (9e999, CAST(x'ff41' AS TEXT), -9223372036854775808),
          (-9e999, '{"$hex": "ff"}', 1.5), (1.0, '1', '1'), ('1', NULL, 'x'),
          (x'', '', 1e300), (-0.0, 'é😀', 0.1);
        DELETE FROM empty;
        DELETE FROM v WHERE id = 7;
        INSERT INTO g(a) VALUES (3);
        INSERT INTO "we ird""name" VALUES ('b', 1), ('a', '01'), ('c', x'01');
        ANALYZE;
        """
    ).fetchall()
    connection.close()
    corpus = there_and_back(folder, tmp_path)
    before, after = folder / "odd.sqlite", corpus.database_path("odd")
    assert list(dump(before)) == list(dump(after))
    assert [t.undecodable_cells for t in corpus.tables() if t.table == "v"] == [1]


def test_questions_travel_along(tmp_path: Path) -> None:
    build_corpus(read_source(shared_data("bird")), tmp_path / "one", workers=1)
    corpus = there_and_back(tmp_path / "one" / "bird", tmp_path)
    (first,) = open_corpora(tmp_path / "one")

    def without_corpus(folder: CorpusFolder) -> list[tuple[str, ...]]:
        return [(q.question_id, q.question, q.evidence, q.gold_sql) for q in folder.questions()]

    assert without_corpus(corpus) == without_corpus(first)


def test_a_plain_database_makes_a_plain_payload(tmp_path: Path) -> None:
    pack_databases(shared_data("spider/database/singer"), tmp_path, workers=1)
    (payload,) = pq.read_table(next(tmp_path.rglob("*.parquet")))["schema_content"].to_pylist()
    assert payload.startswith('{"singer":[{"Singer_ID":1,')
