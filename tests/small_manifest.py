"""Small manifests over real databases, written as `envbuild manifest` writes them."""

from collections.abc import Iterable
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

MUSIC = """
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
CREATE TEMP TABLE number AS
  WITH RECURSIVE n(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM n LIMIT 180) SELECT n FROM n;
INSERT INTO singer SELECT n + 1, 'singer ' || n,
  CASE n % 3 WHEN 0 THEN 'France' WHEN 1 THEN 'Spain' ELSE 'Peru' END, 20 + n
  FROM number WHERE n < 30;
INSERT INTO secret SELECT n + 1, n * 1.5 FROM number WHERE n < 30;
INSERT INTO award SELECT n + 1, 'p' || n, 2000 + n FROM number WHERE n < 30 AND n % 2;
INSERT INTO album SELECT n + 1, n % 20 + 1, 'album ' || n, 1990 + n % 30, 'label'
  FROM number WHERE n < 60;
INSERT INTO track SELECT n + 1, n % 60 + 1, 'track ' || n, 100 + n * 7 % 300 FROM number;
INSERT INTO venue SELECT n, 'city ' || n, n * 100 FROM number WHERE n < 7;
"""


class Asked(NamedTuple):
    """A question and its gold."""

    question: str
    gold: str


QUESTIONS = (
    Asked(
        "Names and ages of the French singers.",
        "SELECT name, age FROM singer WHERE country = 'France'",
    ),
    Asked(
        "How many albums did each singer make?",
        "SELECT s.name, count(*) FROM singer s JOIN album a ON a.singer_id = s.id GROUP BY s.id",
    ),
    Asked(
        "Titles of the tracks on albums since 2015, longest first.",
        "SELECT t.title FROM track t JOIN album a ON t.album_id = a.id WHERE a.year >= 2015"
        " ORDER BY t.seconds DESC, t.id",
    ),
    Asked(
        "Singers with a prize and the prize.",
        "SELECT s.name, w.prize FROM singer s JOIN award w ON w.singer_id = s.id",
    ),
)
VIEW = ("track", "singer", "venue", "album", "award")


def write_database(path: Path, ddl: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with apsw.Connection(str(path)) as connection:
        connection.execute(ddl)


def manifest_row(row_id: str, **changes: object) -> ManifestRow:
    values: dict[str, object] = {
        "row_id": row_id,
        "corpus": "made",
        "question_id": row_id,
        "db_id": "shop",
        "question": f"What is number {row_id}?",
        "gold_sql": "SELECT name FROM item",
        "masked_length": 100,
        "bucket": "short",
        "gold_tables": ("item",),
        "literals": (),
        "tables": ("item",),
        "distractors": (),
        "target_size": 4,
        "seed": 1,
        "sqlite_file": "shop.sqlite",
        "database_sha256": "",
        "gold_id": row_id,
        "gold_digest": "",
        "gold_rows": 1,
        "gold_columns": 1,
        "gold_ordered": False,
    }
    return ManifestRow(**{**values, **changes})  # type: ignore[arg-type]


def write_manifest(folder: Path, rows: Iterable[ManifestRow]) -> Path:
    """A manifest folder of these rows, each with the gold result that its SQL gives."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "shop.sqlite").exists():
        write_database(
            folder / "shop.sqlite",
            "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT);"
            "INSERT INTO item (name) VALUES ('pen'), ('ink');",
        )
    kept, golds = [], []
    for row in sorted(rows, key=lambda row: row.row_id):
        with Session.open_file(folder / row.sqlite_file) as session:
            result = session.run(row.gold_sql)
        assert result.ok, result.error
        gold = GoldResult(
            gold_id=row.gold_id,
            outcome="ok",
            columns=result.columns,
            ordered=row.gold_ordered,
            digest=digest_rows(result.rows, ordered=row.gold_ordered),
            result=encode_rows(result.rows),
        )
        figures = {"gold_rows": len(result.rows), "gold_columns": len(result.columns)}
        kept.append(msgspec.structs.replace(row, gold_digest=gold.digest, **figures))
        golds.append(gold)
    write_records(folder / ROWS_FILE, kept, ROW_SCHEMA)
    write_records(folder / GOLD_FILE, golds, GOLD_SCHEMA)
    index = {
        "format": FORMAT,
        "versions": {"sqlite": SQLITE_VERSION},
        "edges": {"c": [149, 278]},
    }
    (folder / MANIFEST_FILE).write_bytes(msgspec.json.encode(index))
    return folder


def write_small_manifest(root: Path) -> Path:
    """Four questions over a database of six tables, which lies beside the manifest's folder."""
    database = root / "music.sqlite"
    write_database(database, MUSIC)
    digest, rows = sha256_file(database), []
    with Session.open_file(database) as session:
        for number, (question, gold) in enumerate(QUESTIONS):
            gold_tables = read_gold_tables(session.connection, gold).tables
            row = manifest_row(
                f"music/music/{number}",
                corpus="music",
                question_id=str(number),
                db_id="music",
                question=question,
                gold_sql=gold,
                masked_length=len(gold),
                gold_tables=gold_tables,
                tables=VIEW,
                distractors=tuple(sorted(set(VIEW) - set(gold_tables))),
                target_size=len(VIEW),
                seed=number,
                sqlite_file="../music.sqlite",
                database_sha256=digest,
                gold_ordered=order_matters(gold),
            )
            rows.append(row)
    return write_manifest(root / "manifest", rows)
