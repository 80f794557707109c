"""Copying tables' rows from the attached `src` to the attached `cut`, rowids included."""

from collections.abc import Iterator
from typing import NamedTuple

import apsw

from envbuild.sql.connect import quote_name
from envbuild.sql.names import fold_name

_ROWID_NAMES = ("rowid", "_rowid_", "oid")
_COLUMNS = "SELECT name, type, hidden, pk FROM pragma_table_xinfo(?, 'src')"
_KIND = "SELECT type, wr FROM pragma_table_list(?) WHERE schema = 'src'"
_TABLES_A_QUERY = 100


class Object(NamedTuple):
    """One entry of sqlite_schema."""

    kind: str
    name: str
    table: str
    sql: str


class Shape(NamedTuple):
    """What the copying of a table's rows depends on; its DDL text decides it."""

    columns: tuple[str, ...]
    """The stored columns, quoted."""
    rowid: str
    """A name for the rowid that no column takes; empty where a column is it or none is there."""
    generated: bool
    """Some columns are not stored, or the table is virtual."""


def copy_rows(connection: apsw.Connection, tables: list[Object]) -> None:
    """Copies the tables' rows with their rowids.

    SQLite's bulk transfer (`SELECT *` between like tables) may number rows anew, 1, 2, 3, …: it is
    tried first, and where it changed the first or last number the table is copied column by column.
    """
    unsure = []
    for table in tables:
        name, shape = quote_name(table.name), _shape(connection, table)
        if shape.generated:
            _copy_columns(connection, name, shape)
            continue
        connection.execute(f"INSERT INTO cut.{name} SELECT * FROM src.{name}")
        if shape.rowid:
            unsure.append((name, shape))
    for name, shape in _renumbered(connection, unsure):
        connection.execute(f"DELETE FROM cut.{name}")
        _copy_columns(connection, name, shape)


def _copy_columns(connection: apsw.Connection, name: str, shape: Shape) -> None:
    """Copies rows by naming every column that is stored, and the rowid."""
    listed = ", ".join(([shape.rowid] if shape.rowid else []) + list(shape.columns))
    connection.execute(f"INSERT INTO cut.{name} ({listed}) SELECT {listed} FROM src.{name}")


def _renumbered(
    connection: apsw.Connection, tables: list[tuple[str, Shape]]
) -> Iterator[tuple[str, Shape]]:
    """The tables whose lowest or highest rowid differs from the source's.

    As many different numbers within the same two ends 1 and n are the same numbers.
    """
    for start in range(0, len(tables), _TABLES_A_QUERY):
        some = tables[start : start + _TABLES_A_QUERY]
        ((*same,),) = connection.execute("SELECT " + ", ".join(_same_ends(*t) for t in some))
        yield from (table for table, unchanged in zip(some, same, strict=True) if not unchanged)


def _same_ends(name: str, shape: Shape) -> str:
    return " AND ".join(
        f"(SELECT {end}({shape.rowid}) FROM src.{name})"
        f" IS (SELECT {end}({shape.rowid}) FROM cut.{name})"
        for end in ("min", "max")
    )


def _shape(connection: apsw.Connection, table: Object) -> Shape:
    """The shape of a table that exists in both databases; read once for a DDL text."""
    if table.sql not in _SHAPES:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        _SHAPES[table.sql] = _read_shape(connection, table.name)
    return _SHAPES[table.sql]


_SHAPES: dict[str, Shape] = {}
_MOST_SHAPES = 8192


def _read_shape(connection: apsw.Connection, name: str) -> Shape:
    columns = list(connection.execute(_COLUMNS, (name,)))
    ((kind, without_rowid),) = connection.execute(_KIND, (name,))
    keys = [declared for _, declared, _, key in columns if key]
    is_alias = [key.upper() for key in keys] == ["INTEGER"] and kind == "table"
    taken = {fold_name(column) for column, *_ in columns}
    free = [rowid for rowid in _ROWID_NAMES if rowid not in taken]
    return Shape(
        columns=tuple(quote_name(column) for column, _, hidden, _ in columns if not hidden),
        rowid="" if without_rowid or is_alias or not free else free[0],
        generated=kind == "virtual" or any(hidden for _, _, hidden, _ in columns),
    )
