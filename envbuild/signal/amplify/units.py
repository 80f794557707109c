"""A few databases amplified at once: what a worker gets, does, and leaves on the disk."""

from pathlib import Path

import msgspec

from envbuild.errors import CorpusError
from envbuild.io.files import sha256_file, write_bytes
from envbuild.materialize.build import TableCounts, copy_descriptions, database_row, table_rows
from envbuild.records.amplified import AmplifySettings, Gold, Growth
from envbuild.records.corpus import DatabaseRow, Reject, TableRow
from envbuild.schema.read import read_schema
from envbuild.signal.amplify.build import amplify_database
from envbuild.sql.connect import SQLiteError, open_read_only, read_image
from envbuild.sql.files.row_counts import count_table_rows

DATABASES_A_UNIT = 4


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One database to amplify."""

    database: DatabaseRow
    tables: tuple[TableRow, ...]
    """Its tables as the source's catalogue has them; none from a plain folder."""
    source: str
    """The SQLite file, never written."""
    golds: tuple[Gold, ...]


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """The databases one worker amplifies before it reports."""

    root: str
    """The new corpus folder."""
    part: str
    """File that says the unit is done; relative to `root`."""
    entries: tuple[Entry, ...]
    settings: AmplifySettings


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One database of the new corpus."""

    database: DatabaseRow
    tables: tuple[TableRow, ...]
    growth: Growth
    reject: Reject | None = None
    """Why no row was added, where none could be."""


def amplify_unit(unit: Unit) -> int:
    """Amplifies the unit's databases and writes its part file; how many there were."""
    return _finish(unit, [_amplify(entry, unit) for entry in unit.entries])


def copy_unit(unit: Unit, reason: str) -> int:
    """The same for a unit whose worker died: its databases are copied as they are."""
    return _finish(unit, [_copied(entry, unit, "worker_died", reason) for entry in unit.entries])


def read_part(path: Path) -> list[Outcome]:
    """The outcomes a unit left."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Outcome])


def _finish(unit: Unit, outcomes: list[Outcome]) -> int:
    for entry in unit.entries:
        new = Path(unit.root) / entry.database.sqlite_file
        copy_descriptions(Path(entry.source).parent, new.parent)
    write_bytes(Path(unit.root) / unit.part, msgspec.msgpack.encode(outcomes))
    return len(outcomes)


def _amplify(entry: Entry, unit: Unit) -> Outcome:
    image = read_image(Path(entry.source))
    try:
        grown = amplify_database(
            image, entry.golds, settings=unit.settings, db_id=entry.database.db_id
        )
    except (SQLiteError, CorpusError) as e:
        return _copied(entry, unit, "not_amplified", str(e))
    path = Path(unit.root) / entry.database.sqlite_file
    write_bytes(path, grown.image)
    return _catalogued(entry, path, grown.growth)


def _copied(entry: Entry, unit: Unit, reason: str, detail: str) -> Outcome:
    path = Path(unit.root) / entry.database.sqlite_file
    write_bytes(path, read_image(Path(entry.source)))
    database = msgspec.structs.replace(
        entry.database, sha256=sha256_file(path), bytes=path.stat().st_size
    )
    return Outcome(
        database=database,
        tables=entry.tables,
        growth=Growth(tables=(), golds=(), rows=()),
        reject=Reject(db_id=database.db_id, kind="database", reason=reason, detail=detail),
    )


def _catalogued(entry: Entry, path: Path, growth: Growth) -> Outcome:
    """The database's rows of the catalogue: what was offered once, and what was added, together."""
    connection = open_read_only(path)
    try:
        schema = read_schema(connection)
        rows = count_table_rows(connection)
        known = {table.table: table for table in entry.tables}
        added = {table.table: table.rows_added for table in growth.tables}
        counts = {}
        for table in schema.tables:
            before = known.get(table.name)
            offered = before.rows_offered if before else rows[table.name] - added[table.name]
            counts[table.name] = TableCounts(
                rows=rows[table.name],
                offered=offered + added[table.name],
                refused=before.rows_refused if before else 0,
                undecodable=before.undecodable_cells if before else 0,
            )
        tables = table_rows(connection, schema.tables, counts, db_id=entry.database.db_id)
    finally:
        connection.close()
    summed = database_row(tables, db_id=entry.database.db_id, split=entry.database.split)
    old = entry.database
    total = sum(added.values())
    return Outcome(
        database=msgspec.structs.replace(
            summed,
            sqlite_file=old.sqlite_file,
            sha256=sha256_file(path),
            bytes=path.stat().st_size,
            rows_offered=(old.rows_offered + total) if entry.tables else summed.rows_offered,
            rows_stored=(old.rows_stored + total) if entry.tables else summed.rows_stored,
            rows_refused=old.rows_refused,
            ddl_statements=old.ddl_statements,
            ddl_refused=old.ddl_refused,
        ),
        tables=tables,
        growth=growth,
    )
