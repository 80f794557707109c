"""One database record as one SQLite file, whole or not at all (CONTRACT 3)."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from envbuild.io.files import atomic_path, sha256_file
from envbuild.materialize.catalogue import Built, TableCounts, database_row, table_rows
from envbuild.materialize.ddl import Ddl
from envbuild.materialize.payload import iter_payload
from envbuild.materialize.ready import take_ready_file
from envbuild.materialize.rows import TableLoad, unknown_table
from envbuild.materialize.sequences import SEQUENCE_TABLE, restore_sequences
from envbuild.records.corpus import DatabaseRecord, Reject
from envbuild.schema.read import read_tables
from envbuild.sql.connect import Connection
from envbuild.sql.files.new_database import finish, open_new
from envbuild.sql.files.row_counts import count_table_rows
from envbuild.sql.files.undecodable import find_undecodable
from envbuild.sql.names import fold_name


def build_database(record: DatabaseRecord, path: Path, *, link: bool = False) -> Built:
    """Writes the record's database to `path`: from its payload, or from its ready SQLite file.

    The same record gives the same bytes. `link` links a ready file instead of copying it. The
    rows of the result name no corpus, and `path`'s own name as the file. Raises CorpusError where
    no database can be made of it (a payload that does not parse, a file that is no database), and
    OutputError where `path` cannot be written; neither leaves a file behind.
    """
    if record.sqlite_file:
        built = take_ready_file(record, path, link=link)
    else:
        with atomic_path(path) as temporary:
            built = _from_payload(record, temporary)
    database = msgspec.structs.replace(
        built.database,
        sqlite_file=path.name,
        sha256=sha256_file(path),
        bytes=path.stat().st_size,
    )
    return msgspec.structs.replace(
        built,
        database=database,
        rejects=tuple(
            msgspec.structs.replace(reject, db_id=record.db_id) for reject in built.rejects
        ),
    )


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
        undecodable = Counter[str]()
        for column in find_undecodable(connection) if ddl.wrote_rows else ():
            undecodable[column.table] += column.cells
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
    rejects = [*ddl.rejects, *unknown]
    for load in loads.values():
        rejects += load.rejects
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
        restore_sequences(connection, sequences)
