"""One database record as one SQLite file, whole or not at all (CONTRACT 3), and its catalogue rows.

A ready SQLite file is copied or linked, never opened for writing.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from envbuild.errors import CorpusError, PayloadError
from envbuild.io.files import atomic_path, sha256_file, writing
from envbuild.materialize.ddl import Ddl
from envbuild.materialize.payload import iter_payload
from envbuild.materialize.rows import TableLoad, unknown_table
from envbuild.records.corpus import DatabaseRecord, DatabaseRow, Reject, Table, TableRow
from envbuild.schema.read import count_declared_keys, read_tables
from envbuild.sql.connect import Connection
from envbuild.sql.files.create import finish, open_new
from envbuild.sql.files.inspect import (
    count_table_rows,
    find_undecodable,
    fold_in_log,
    open_ready,
    orphans_by_table,
    put_out_of_wal_mode,
    unreadable_tables,
)
from envbuild.sql.names import fold_name

DESCRIPTIONS = "database_description"
"""BIRD's folder of CSV files, one a table, that say what columns and values mean."""
SEQUENCE_TABLE = "sqlite_sequence"
"""AUTOINCREMENT counters, which outlive the rows that were deleted; a packed payload holds them as
rows `{"name": …, "seq": …}`."""


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """One database that exists now, and everything of its source that it does not hold."""

    database: DatabaseRow
    tables: tuple[TableRow, ...]
    rejects: tuple[Reject, ...] = ()
    """Notes too: reasons `transpiled` and `folded` name statements that were taken after all."""
    description_files: int = 0
    """CSV files of column descriptions copied beside it; not in the catalogue."""


class TableCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What loading one table came to."""

    rows: int
    """Rows the table holds now."""
    offered: int
    refused: int = 0
    undecodable: int = 0
    """Text cells that are not UTF-8."""


def build_database(record: DatabaseRecord, path: Path, *, link: bool = False) -> Built:
    """Writes the record's database to `path`: from its payload, or from its ready SQLite file.

    The same record gives the same bytes. `link` links a ready file instead of copying it. The
    rows of the result name no corpus, and `path`'s own name as the file. Raises CorpusError where
    no database can be made of it (a payload that does not parse, a file that is no database), and
    OutputError where `path` cannot be written; neither leaves a file behind.
    """
    if record.sqlite_file:
        built = _from_file(record, path, link=link)
    else:
        with atomic_path(path) as temporary:
            built = _from_payload(record, temporary)
    database = msgspec.structs.replace(
        built.database,
        sqlite_file=path.name,
        sha256=sha256_file(path),
        bytes=path.stat().st_size,
    )
    rejects = tuple(msgspec.structs.replace(r, db_id=record.db_id) for r in built.rejects)
    return msgspec.structs.replace(built, database=database, rejects=rejects)


def _from_payload(record: DatabaseRecord, path: Path) -> Built:
    ddl = Ddl(record.ddl, dialect=record.dialect)
    connection = open_new(path)
    try:
        ddl.create(connection)
        tables = read_tables(connection)
        loads = {fold_name(table.name): TableLoad(table) for table in tables}
        unknown = list(_load_tables(connection, record, loads))
        ddl.create_triggers(connection)
        stored = count_table_rows(connection) if ddl.wrote_rows else {}
        undecodable = _undecodable(connection, None) if ddl.wrote_rows else {}
        counts = {
            load.table.name: TableCounts(
                rows=stored.get(load.table.name, load.offered - load.refused),
                offered=load.offered,
                refused=load.refused,
                undecodable=undecodable[load.table.name] if ddl.wrote_rows else load.undecodable,
            )
            for load in loads.values()
        }
        catalogued = table_rows(connection, tables, counts, db_id=record.db_id)
        finish(connection)
    finally:
        connection.close()
    rejects = [*ddl.rejects, *unknown, *(r for load in loads.values() for r in load.rejects)]
    database = database_row(
        catalogued,
        db_id=record.db_id,
        split=record.split,
        unknown_rows=len(unknown),
        ddl_statements=ddl.statements,
        ddl_refused=ddl.refused,
    )
    return Built(database=database, tables=catalogued, rejects=tuple(rejects))


def _load_tables(
    connection: Connection, record: DatabaseRecord, loads: dict[str, TableLoad]
) -> Iterator[Reject]:
    """Loads every table of the payload; yields the rows of tables that do not exist."""
    sequences = None
    for given in iter_payload(record.payload):
        folded = fold_name(given.name)
        if folded in loads:
            loads[folded].load(connection, given)
        elif folded == SEQUENCE_TABLE and given.packed:
            sequences = given.rows
        else:
            yield from unknown_table(given)
    if sequences is not None:
        _restore_sequences(connection, sequences)


def _restore_sequences(connection: Connection, rows: Any) -> None:
    try:
        counters = [(row["name"], row["seq"]) for row in rows]
    except (TypeError, KeyError):
        raise PayloadError("payload_parse_error", f"{SEQUENCE_TABLE} has odd rows") from None
    if has_sequences(connection):
        connection.execute(f"DELETE FROM {SEQUENCE_TABLE}")
        connection.executemany(f"INSERT INTO {SEQUENCE_TABLE}(name, seq) VALUES (?, ?)", counters)


def has_sequences(connection: Connection) -> bool:
    """Whether some table has, or had, an AUTOINCREMENT column."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (SEQUENCE_TABLE,))
    return found.fetchone() is not None


def _undecodable(connection: Connection, tables: list[str] | None) -> Counter[str]:
    """Table -> its text cells that are not UTF-8."""
    cells = Counter[str]()
    for column in find_undecodable(connection, tables):
        cells[column.table] += column.cells
    return cells


def _from_file(record: DatabaseRecord, path: Path, *, link: bool) -> Built:
    """Copies or links the record's file to `path` and catalogues it.

    A copy is out of WAL mode, and holds what an unfinished log beside the source held. BIRD's
    column descriptions come along, to where its readers look for them. A table that SQLite cannot
    read here (its module, collation or function is missing) is a Reject. With `link` a file with a
    log beside it is copied all the same: a link would leave the log out. Raises CorpusError
    `not_a_database` for a file that SQLite cannot read, and `missing_file`; none leaves a file
    behind.
    """
    source = Path(record.sqlite_file)
    if not source.is_file():
        raise CorpusError("missing_file", f"no file {source.name}", db_id=record.db_id)
    logs = (source.with_name(source.name + ending) for ending in ("-wal", "-journal"))
    log = next((log for log in logs if log.is_file() and log.stat().st_size), None)
    with atomic_path(path) as temporary:
        if link and log is None:
            _link(source, temporary)
        else:
            shutil.copyfile(source, temporary)
            if log is not None:
                ending = log.name[len(source.name) :]
                shutil.copyfile(log, temporary.with_name(temporary.name + ending))
                fold_in_log(temporary)
            put_out_of_wal_mode(temporary)
        try:
            with open_ready(temporary) as connection:
                built = _catalogue(connection, record)
        finally:
            for ending in ("-wal", "-shm", "-journal"):
                temporary.with_name(temporary.name + ending).unlink(missing_ok=True)
    described = copy_descriptions(source.parent, path.parent)
    return msgspec.structs.replace(built, description_files=described)


def _link(source: Path, target: Path) -> None:
    """A hard link where the file system allows one, else a symbolic one."""
    target.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        with writing(target):
            target.symlink_to(source.resolve())


def _catalogue(connection: Connection, record: DatabaseRecord) -> Built:
    unreadable = unreadable_tables(connection)
    tables = [table for table in read_tables(connection) if table.name not in unreadable]
    names = [table.name for table in tables]
    rows, undecodable = count_table_rows(connection), _undecodable(connection, names)
    counts = {
        name: TableCounts(rows=rows[name], offered=rows[name], undecodable=undecodable[name])
        for name in names
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


def copy_descriptions(source: Path, target: Path) -> int:
    """Copies `database_description/*.csv` of the folder `source` into `target`; how many."""
    described = [
        file
        for file in sorted((source / DESCRIPTIONS).glob("*"))
        if file.suffix.lower() == ".csv" and file.is_file()
    ]
    for file in described:
        with atomic_path(target / DESCRIPTIONS / file.name) as temporary:
            shutil.copyfile(file, temporary)
    return len(described)


def table_rows(
    connection: Connection,
    tables: Sequence[Table],
    counts: Mapping[str, TableCounts],
    *,
    db_id: str,
) -> tuple[TableRow, ...]:
    """One row a table, in declared order; foreign-key violations are counted here."""
    keys = count_declared_keys(connection)
    violations = orphans_by_table(connection) if keys else {}
    return tuple(
        TableRow(
            corpus="",
            db_id=db_id,
            table=table.name,
            columns=len(table.columns),
            rows=count.rows,
            rows_offered=count.offered,
            rows_stored=count.offered - count.refused,
            rows_refused=count.refused,
            primary_key=table.primary_key,
            foreign_keys=keys.get(table.name, 0),
            fk_violations=violations.get(table.name, 0),
            undecodable_cells=count.undecodable,
        )
        for table in tables
        for count in (counts[table.name],)
    )


def database_row(
    tables: Sequence[TableRow],
    *,
    db_id: str,
    split: str,
    unknown_rows: int = 0,
    ddl_statements: int = 0,
    ddl_refused: int = 0,
) -> DatabaseRow:
    """The database's row, summed from its tables; file, size and digest are filled in later.

    `unknown_rows` are payload rows for tables that do not exist: offered, and all refused.
    """

    names = ("columns", "rows", "foreign_keys", "fk_violations", "rows_stored")
    return DatabaseRow(
        corpus="",
        db_id=db_id,
        split=split,
        sqlite_file="",
        sha256="",
        bytes=0,
        tables=len(tables),
        rows_offered=unknown_rows + sum(table.rows_offered for table in tables),
        rows_refused=unknown_rows + sum(table.rows_refused for table in tables),
        ddl_statements=ddl_statements,
        ddl_refused=ddl_refused,
        **{name: sum(getattr(table, name) for table in tables) for name in names},
    )
