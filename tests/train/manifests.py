"""Small real manifests: SQLite files, rows and an index, written through the package."""

from collections.abc import Iterable
from pathlib import Path

import apsw
import msgspec

from envbuild.io.files import write_bytes
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
from envbuild.sql.verdicts import digest_rows, encode_rows

EDGES = (149, 278)


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
    ordered = sorted(rows, key=lambda row: row.row_id)
    golds = []
    for row in ordered:
        connection = apsw.Connection(str(folder / row.sqlite_file), flags=apsw.SQLITE_OPEN_READONLY)
        result = list(connection.execute(row.gold_sql))
        golds.append(
            GoldResult(
                gold_id=row.gold_id,
                outcome="ok",
                columns=tuple(f"c{i}" for i in range(len(result[0]) if result else 1)),
                ordered=row.gold_ordered,
                digest=digest_rows(result, ordered=row.gold_ordered),
                result=encode_rows(result),
            )
        )
        connection.close()
    write_records(folder / ROWS_FILE, ordered, ROW_SCHEMA)
    write_records(folder / GOLD_FILE, golds, GOLD_SCHEMA)
    write_bytes(
        folder / MANIFEST_FILE, msgspec.json.encode({"format": FORMAT, "edges": {"c": list(EDGES)}})
    )
    return folder
