"""A SQLite file that its source holds ready: copied or linked, never opened for writing."""

import os
import shutil
from pathlib import Path

import msgspec

from envbuild.errors import CorpusError
from envbuild.io.files import atomic_path, writing
from envbuild.materialize.catalogue import Built, TableCounts, database_row, table_rows
from envbuild.materialize.descriptions import copy_descriptions
from envbuild.records.corpus import DatabaseRecord, Reject
from envbuild.schema.read import read_tables
from envbuild.sql.connect import Connection
from envbuild.sql.files.ready_file import fold_in_log, open_ready, put_out_of_wal_mode
from envbuild.sql.files.row_counts import count_table_rows, unreadable_tables
from envbuild.sql.files.undecodable import find_undecodable


def take_ready_file(record: DatabaseRecord, path: Path, *, link: bool) -> Built:
    """Copies or links the record's file to `path` and catalogues it.

    A copy is out of WAL mode, and holds what an unfinished log beside the source held. BIRD's
    column descriptions come along, to where its readers look for them. A table that SQLite cannot
    read here (its module, collation or function is missing) is a Reject. Raises CorpusError
    `not_a_database` for a file that SQLite cannot read, `missing_file`, and, with `link`,
    `log_beside_file` where a log would be left out; none leaves a file behind.
    """
    source = Path(record.sqlite_file)
    if not source.is_file():
        raise CorpusError("missing_file", f"no file {source.name}", db_id=record.db_id)
    logged = _log_of(source) is not None
    if link and logged:
        raise CorpusError("log_beside_file", "copy it instead of linking", db_id=record.db_id)
    with atomic_path(path) as temporary:
        if link:
            _link(source, temporary)
        else:
            _copy(source, temporary)
        try:
            with open_ready(temporary) as connection:
                built = _catalogue(connection, record)
        finally:
            _drop_logs(temporary)
    described = copy_descriptions(source.parent, path.parent)
    return msgspec.structs.replace(built, description_files=described)


def _catalogue(connection: Connection, record: DatabaseRecord) -> Built:
    unreadable = unreadable_tables(connection)
    tables = [table for table in read_tables(connection) if table.name not in unreadable]
    rows = count_table_rows(connection)
    undecodable: dict[str, int] = {}
    for found in find_undecodable(connection, [table.name for table in tables]):
        undecodable[found.table] = undecodable.get(found.table, 0) + found.cells
    counts = {
        table.name: TableCounts(
            rows=rows[table.name],
            offered=rows[table.name],
            undecodable=undecodable.get(table.name, 0),
        )
        for table in tables
    }
    catalogued = table_rows(connection, tables, counts, db_id=record.db_id)
    return Built(
        database=database_row(catalogued, db_id=record.db_id, split=record.split),
        tables=catalogued,
        rejects=tuple(
            Reject(kind="statement", table=table, reason="unreadable_table", detail=said)
            for table, said in unreadable.items()
        ),
    )


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    log = _log_of(source)
    if log is not None:
        shutil.copyfile(log, target.with_name(target.name + log.name[len(source.name) :]))
        fold_in_log(target)
    put_out_of_wal_mode(target)


def _link(source: Path, target: Path) -> None:
    """A hard link where the file system allows one, else a symbolic one."""
    target.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        with writing(target):
            target.symlink_to(source.resolve())


def _log_of(source: Path) -> Path | None:
    for ending in ("-wal", "-journal"):
        log = source.with_name(source.name + ending)
        if log.is_file() and log.stat().st_size:
            return log
    return None


def _drop_logs(path: Path) -> None:
    for ending in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
