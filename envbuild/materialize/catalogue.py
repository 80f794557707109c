"""A finished database as the catalogue's rows: its tables, keys and counts (CONTRACT 2)."""

from collections.abc import Mapping, Sequence

import msgspec

from envbuild.records.corpus import DatabaseRow, Reject, TableRow
from envbuild.records.schema import Table
from envbuild.schema.read import count_declared_keys
from envbuild.sql.connect import Connection
from envbuild.sql.files.foreign_key_check import orphans_by_table


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
            rows=counts[table.name].rows,
            rows_offered=counts[table.name].offered,
            rows_stored=counts[table.name].offered - counts[table.name].refused,
            rows_refused=counts[table.name].refused,
            primary_key=table.primary_key,
            foreign_keys=keys.get(table.name, 0),
            fk_violations=violations.get(table.name, 0),
            undecodable_cells=counts[table.name].undecodable,
        )
        for table in tables
    )


def database_row(
    tables: tuple[TableRow, ...],
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
    return DatabaseRow(
        corpus="",
        db_id=db_id,
        split=split,
        sqlite_file="",
        sha256="",
        bytes=0,
        tables=len(tables),
        columns=sum(table.columns for table in tables),
        rows=sum(table.rows for table in tables),
        foreign_keys=sum(table.foreign_keys for table in tables),
        fk_violations=sum(table.fk_violations for table in tables),
        rows_offered=sum(table.rows_offered for table in tables) + unknown_rows,
        rows_stored=sum(table.rows_stored for table in tables),
        rows_refused=sum(table.rows_refused for table in tables) + unknown_rows,
        ddl_statements=ddl_statements,
        ddl_refused=ddl_refused,
    )
