"""How many rows each table of a SQLite file holds, read as cheaply as SQLite allows.

One row of scalar `COUNT(*)` subqueries per 100 tables on an immutable connection: SQLite counts a
table's leaf pages without looking at its rows, and takes no locks.
"""

from collections.abc import Iterator
from pathlib import Path

import apsw

from envbuild.errors import SchemaError
from envbuild.sql.connect import iter_rows, open_read_only, quote_name

TABLES_A_STATEMENT = 100
_TABLES = r"""SELECT name, rootpage FROM sqlite_schema
WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'"""
# Virtual tables have no root page; only where there is one can shadow tables exist.
_ORDINARY_TABLES = r"""SELECT name FROM pragma_table_list
WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'"""


def count_rows(path: Path) -> dict[str, int]:
    """Rows of every ordinary table, in declared order; views, virtual and shadow tables left out.

    Raises SchemaError (`unreadable_database`) where the file is no readable database.
    """
    try:
        connection = open_read_only(path)
        try:
            return count_table_rows(connection)
        finally:
            connection.close()
    except apsw.Error as e:
        raise SchemaError("unreadable_database", str(e)) from e


def count_table_rows(connection: apsw.Connection) -> dict[str, int]:
    """The same on an open connection; a table that SQLite cannot read here is left out."""
    names = ordinary_tables(connection)
    counts: dict[str, int] = {}
    for start in range(0, len(names), TABLES_A_STATEMENT):
        chunk = names[start : start + TABLES_A_STATEMENT]
        columns = ",".join(f"(SELECT COUNT(*) FROM main.{quote_name(name)})" for name in chunk)
        try:
            for row in iter_rows(connection, "SELECT " + columns):
                counts.update(zip(chunk, row, strict=True))
        except apsw.SQLError:  # some index has a collation that is not here
            counts.update(_counted_singly(connection, chunk))
    return counts


def unreadable_tables(connection: apsw.Connection) -> dict[str, str]:
    """Table -> what SQLite says it lacks to read it: a module, a collation, a function."""
    names = [name for name, _ in iter_rows(connection, _TABLES)]
    said = {}
    for name in names:
        try:
            list(
                iter_rows(connection, f"SELECT * FROM main.{quote_name(name)} NOT INDEXED LIMIT 0")
            )
        except apsw.SQLError as e:
            said[name] = str(e)
    return said


def _counted_singly(connection: apsw.Connection, names: list[str]) -> Iterator[tuple[str, int]]:
    """Each table without its indexes, which need their collations even to be counted by."""
    for name in names:
        try:
            statement = f"SELECT COUNT(*) FROM main.{quote_name(name)} NOT INDEXED"
            ((rows,),) = iter_rows(connection, statement)
        except apsw.SQLError:
            continue
        yield name, rows


def ordinary_tables(connection: apsw.Connection) -> list[str]:
    """Names of the tables that hold rows of their own, in declared order."""
    found = list(iter_rows(connection, _TABLES))
    if all(root_page for _, root_page in found):
        return [name for name, _ in found]
    ordinary = {name for (name,) in iter_rows(connection, _ORDINARY_TABLES)}
    return [name for name, _ in found if name in ordinary]
