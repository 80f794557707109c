"""pack, then materialize: the same tables, rows and storage classes as before."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pyarrow.parquet as pq
import pytest

from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.corpora.source import read_source
from envbuild.materialize.corpus import build_corpus
from envbuild.materialize.pack import pack_databases
from envbuild.sql.connect import open_read_only, quote_name
from tests.shared import shared_data


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
    (plain,) = open_corpora(source)
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
