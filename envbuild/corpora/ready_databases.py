"""Folders of ready SQLite files: `<db_id>/<db_id>.sqlite`, as BIRD, Spider and SynSQL ship them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from envbuild.corpora.folder_files import SQLITE_ENDINGS
from envbuild.io.json_stream import iter_json
from envbuild.records.corpus import DatabaseRecord, Reject


class _SchemaRecord(msgspec.Struct):
    """What we read of a record of tables.json."""

    db_id: str
    ddls: list[str] = msgspec.field(default_factory=list)


def iter_ready(folder: Path, split: str = "") -> Iterator[DatabaseRecord | Reject]:
    """One database a sub-folder, by name; a folder without a SQLite file is a Reject.

    So is the second of two files that are both called like their folder (`.sqlite` and `.db`).
    """
    for place in sorted(folder.iterdir()):
        if not place.is_dir() or place.name.startswith("."):
            continue
        files = sqlite_files_in(place)
        db_id = place.name.encode("utf-8", "replace").decode()  # a name may be no UTF-8
        if not files:
            yield _missing(db_id, "its folder holds no SQLite file")
            continue
        yield DatabaseRecord(db_id=db_id, split=split, sqlite_file=str(files[0].resolve()))
        for other in files[1:]:
            detail = f"{files[0].name} was read, {other.name} was not"
            yield Reject(db_id=db_id, kind="database", reason="duplicate_db_id", detail=detail)


def iter_listed(
    tables_file: Path, known: Iterable[str], split: str = ""
) -> Iterator[DatabaseRecord | Reject]:
    """The databases that tables.json lists beyond the `known` ones: from their DDL, or a Reject."""
    seen = set(known)
    for record in iter_json(tables_file, _SchemaRecord) if tables_file.is_file() else ():
        if record.db_id in seen:
            continue
        seen.add(record.db_id)
        if record.ddls:
            ddl = ";\n".join(statement.rstrip().rstrip(";") for statement in record.ddls)
            yield DatabaseRecord(db_id=record.db_id, split=split, ddl=ddl)
        else:
            yield _missing(record.db_id, f"{tables_file.name} lists it, and there is no file")


def sqlite_files_in(place: Path) -> list[Path]:
    """The SQLite files of a database's folder: those called like it, else the only one."""
    named = [place / f"{place.name}{ending}" for ending in SQLITE_ENDINGS]
    if found := [file for file in named if file.is_file()]:
        return found
    found = [p for p in place.iterdir() if p.suffix in SQLITE_ENDINGS and p.is_file()]
    return found if len(found) == 1 else []


def _missing(db_id: str, detail: str) -> Reject:
    return Reject(db_id=db_id, kind="database", reason="missing_file", detail=detail)
