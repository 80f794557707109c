"""A manifest of a few rows over one small database, written as `envbuild manifest` writes them."""

from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from envbuild.io.files import sha256_file
from envbuild.io.parquet import write_records
from envbuild.manifest.read import (
    FORMAT,
    GOLD_FILE,
    GOLD_SCHEMA,
    MANIFEST_FILE,
    ROW_SCHEMA,
    ROWS_FILE,
)
from envbuild.records.manifest import GoldResult, ManifestRow
from envbuild.sql.connect import SQLITE_VERSION
from envbuild.sql.execution.session import Session
from envbuild.sql.from_names import order_matters
from envbuild.sql.gold_tables import read_gold_tables
from envbuild.sql.verdicts import digest_rows, encode_rows

SCRIPT = """
CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT, country TEXT, age INT);
CREATE TABLE album (
  id INTEGER PRIMARY KEY, singer_id INT REFERENCES singer(id), title TEXT, year INT, label TEXT
);
CREATE TABLE track (
  id INTEGER PRIMARY KEY, album_id INT REFERENCES album(id), title TEXT, seconds INT
);
CREATE TABLE award (singer_id INT REFERENCES singer(id), prize TEXT, year INT);
CREATE TABLE venue (id INTEGER PRIMARY KEY, city TEXT, seats INT);
CREATE TABLE secret (singer_id INT REFERENCES singer(id), fee REAL);
"""


class Asked(NamedTuple):
    """A question, its gold, and an answer that is honest but only partly right."""

    question: str
    gold: str
    partial: str


QUESTIONS = (
    Asked(
        "Names and ages of the French singers.",
        "SELECT name, age FROM singer WHERE country = 'France'",
        "SELECT name, age FROM singer WHERE country = 'France' AND age > 30",
    ),
    Asked(
        "How many albums did each singer make?",
        "SELECT s.name, count(*) FROM singer s JOIN album a ON a.singer_id = s.id GROUP BY s.id",
        "SELECT s.name FROM singer s JOIN album a ON a.singer_id = s.id GROUP BY s.id",
    ),
    Asked(
        "Titles of the tracks on albums since 2015, longest first.",
        "SELECT t.title FROM track t JOIN album a ON t.album_id = a.id WHERE a.year >= 2015"
        " ORDER BY t.seconds DESC, t.id",
        "SELECT t.title FROM track t JOIN album a ON t.album_id = a.id WHERE a.year >= 2012",
    ),
    Asked(
        "Singers with a prize and the prize.",
        "SELECT s.name, w.prize FROM singer s JOIN award w ON w.singer_id = s.id",
        "SELECT s.name, w.prize FROM singer s JOIN award w ON w.singer_id = s.id"
        " WHERE w.year > 2012",
    ),
)
VIEW = ("track", "singer", "venue", "album", "award")


def write_small_manifest(root: Path) -> Path:
    """The manifest folder; its database lies beside it."""
    database = root / "music.sqlite"
    _write_database(database)
    manifest = root / "manifest"
    rows, golds = [], []
    with Session.open_file(database) as session:
        for number, asked in enumerate(QUESTIONS):
            row, gold = _row(session, number, asked, database)
            rows.append(row)
            golds.append(gold)
    write_records(manifest / ROWS_FILE, rows, ROW_SCHEMA)
    write_records(manifest / GOLD_FILE, golds, GOLD_SCHEMA)
    index = {"format": FORMAT, "versions": {"sqlite": SQLITE_VERSION}}
    (manifest / MANIFEST_FILE).write_bytes(msgspec.json.encode(index))
    return manifest


def _write_database(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(SCRIPT)
    countries = ("France", "Spain", "Peru")
    with connection:
        for n in range(30):
            singer = (n + 1, f"singer {n}", countries[n % 3], 20 + n)
            connection.execute("INSERT INTO singer VALUES (?, ?, ?, ?)", singer)
            connection.execute("INSERT INTO secret VALUES (?, ?)", (n + 1, n * 1.5))
            if n % 2:
                connection.execute("INSERT INTO award VALUES (?, ?, ?)", (n + 1, f"p{n}", 2000 + n))
        for n in range(60):
            album = (n + 1, n % 20 + 1, f"album {n}", 1990 + n % 30, "label")
            connection.execute("INSERT INTO album VALUES (?, ?, ?, ?, ?)", album)
        for n in range(180):
            track = (n + 1, n % 60 + 1, f"track {n}", 100 + n * 7 % 300)
            connection.execute("INSERT INTO track VALUES (?, ?, ?, ?)", track)
        for n in range(7):
            connection.execute("INSERT INTO venue VALUES (?, ?, ?)", (n, f"city {n}", n * 100))
    connection.close()


def _row(
    session: Session, number: int, asked: Asked, database: Path
) -> tuple[ManifestRow, GoldResult]:
    result = session.run(asked.gold)
    assert result.ok, result.error
    ordered = order_matters(asked.gold)
    digest = digest_rows(result.rows, ordered=ordered)
    gold_tables = read_gold_tables(session.connection, asked.gold).tables
    row = ManifestRow(
        row_id=f"music/music/{number}",
        corpus="music",
        question_id=str(number),
        db_id="music",
        question=asked.question,
        gold_sql=asked.gold,
        masked_length=len(asked.gold),
        bucket="short",
        gold_tables=gold_tables,
        literals=(),
        tables=VIEW,
        distractors=tuple(sorted(set(VIEW) - set(gold_tables))),
        target_size=len(VIEW),
        seed=number,
        sqlite_file="../music.sqlite",
        database_sha256=sha256_file(database),
        gold_id=f"g{number}",
        gold_digest=digest,
        gold_rows=len(result.rows),
        gold_columns=len(result.columns),
        gold_ordered=ordered,
    )
    gold = GoldResult(
        gold_id=row.gold_id,
        outcome=result.outcome,
        columns=result.columns,
        ordered=ordered,
        digest=digest,
        result=encode_rows(result.rows),
    )
    return row, gold
