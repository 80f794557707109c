"""Copying tables' rows from the main database to the attached `cut`, rowids included."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import apsw

from envbuild.sql.connect import quote_name
from envbuild.sql.names import fold_name

_ROWID_NAMES = ("rowid", "_rowid_", "oid")
_COLUMNS = "SELECT name, type, hidden, pk FROM pragma_table_xinfo(?, 'main')"
_KIND = "SELECT type, wr FROM pragma_table_list(?) WHERE schema = 'main'"
_TABLES_A_QUERY = 100


class Entry(NamedTuple):
    """One entry of sqlite_schema."""

    kind: str
    name: str
    table: str
    """The table it belongs to; its own name for a table."""
    sql: str
    """Empty for an index that a constraint makes."""


class Shape(NamedTuple):
    """How a table's rows can be copied."""

    rowid: str
    """A name for the rowid that no column takes; empty where a column is it or none is there."""
    by_column: bool = False
    """Some columns are not stored, or the table is virtual: `SELECT *` will not do."""


def read_shapes(connection: apsw.Connection, tables: Sequence[Entry]) -> dict[str, Shape]:
    """Name -> shape of each of these tables of the main database."""
    return {table.name: _shape_of(table.sql) or _read_shape(connection, table) for table in tables}


def copy_rows(
    connection: apsw.Connection, tables: Sequence[Entry], shapes: Mapping[str, Shape]
) -> None:
    """Copies the tables' rows with their rowids.

    SQLite's bulk transfer (`SELECT *` between like tables) may number rows anew, 1, 2, 3, …: it is
    tried first, and where it changed the first or last number the table is copied column by column.
    NOT INDEXED, since an index read in place of the table would give its own order to the numbers.
    """
    plain = {name: shape for name, shape in shapes.items() if not shape.by_column}
    copies = (
        f"INSERT INTO cut.{name} SELECT * FROM main.{name} NOT INDEXED"
        for name in map(quote_name, plain)
    )
    connection.execute(";".join(copies), can_cache=False)
    again = _renumbered(connection, {name: shape.rowid for name, shape in plain.items()})
    for table in tables:
        if table.name in again:
            connection.execute(f"DELETE FROM cut.{quote_name(table.name)}")
        if table.name in again or table.name not in plain:
            _copy_columns(connection, table, _read_shape(connection, table).rowid)


def _copy_columns(connection: apsw.Connection, table: Entry, rowid: str) -> None:
    """Copies rows by naming every column that is stored, and the rowid."""
    name = quote_name(table.name)
    stored = [quote_name(c) for c, _, hidden, _ in _columns(connection, table) if not hidden]
    listed = ", ".join(([rowid] if rowid else []) + stored)
    connection.execute(f"INSERT INTO cut.{name} ({listed}) SELECT {listed} FROM main.{name}")


def _renumbered(connection: apsw.Connection, rowids: dict[str, str]) -> set[str]:
    """The tables whose lowest or highest rowid differs from the source's; `rowids`: their names.

    As many different numbers within the same two ends 1 and n are the same numbers.
    """
    found: set[str] = set()
    names = [name for name, rowid in rowids.items() if rowid]
    for start in range(0, len(names), _TABLES_A_QUERY):
        some = names[start : start + _TABLES_A_QUERY]
        same = ", ".join(_same_ends(quote_name(name), rowids[name]) for name in some)
        ((*unchanged,),) = connection.execute(f"SELECT {same}", can_cache=False)
        found |= {name for name, kept in zip(some, unchanged, strict=True) if not kept}
    return found


def _same_ends(name: str, rowid: str) -> str:
    return " AND ".join(
        f"(SELECT {end}({rowid}) FROM main.{name}) IS (SELECT {end}({rowid}) FROM cut.{name})"
        for end in ("min", "max")
    )


@lru_cache(maxsize=8192)
def _shape_of(sql: str) -> Shape | None:
    """The shape that a CREATE TABLE's text leaves no doubt about; None where SQLite must say.

    Asking SQLite costs as much as the copying of a small table.
    """
    text = sql.lower()
    if "rowid" in text or "--" in text or "/*" in text:
        return None
    if "'" in text or '"' in text or "`" in text or "[" in text:
        text = _QUOTED.sub("_", text)
        if "'" in text or '"' in text or "`" in text or "[" in text:
            return None  # a quote without an end
    if "generated" in text or "virtual" in text or _COMPUTED.search(text):
        return None
    is_alias = "primary" in text and _ALIAS.search(text)
    return Shape(rowid="" if is_alias else "rowid")


_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\[[^\]]*\]""")
_COMPUTED = re.compile(r"as\s*\(")
_ALIAS = re.compile(r"\binteger\s+primary\s+key\b(?!\s+desc)", re.ASCII)
"""ASCII: a no-break space is part of a name for SQLite."""


def _read_shape(connection: apsw.Connection, table: Entry) -> Shape:
    """The shape of a table as SQLite sees it."""
    columns = _columns(connection, table)
    ((kind, without_rowid),) = connection.execute(_KIND, (table.name,))
    keys = [declared for _, declared, _, key in columns if key]
    is_alias = [key.upper() for key in keys] == ["INTEGER"] and kind == "table"
    taken = {fold_name(column) for column, *_ in columns}
    free = [rowid for rowid in _ROWID_NAMES if rowid not in taken]
    return Shape(
        rowid="" if without_rowid or is_alias or not free else free[0],
        by_column=kind == "virtual" or any(hidden for _, _, hidden, _ in columns),
    )


def _columns(connection: apsw.Connection, table: Entry) -> list[tuple[str, str, int, int]]:
    """(name, declared type, hidden, place in the primary key) of each."""
    return list(connection.execute(_COLUMNS, (table.name,)))
