"""Text cells that are not UTF-8, counted by column.

SQLite stores whatever bytes it is given as text; Python, and every trainer, refuses such cells. A
block of rows is concatenated by SQLite and decoded at once; only a column that fails is looked at
cell by cell.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import apsw
import msgspec

from envbuild.sql.connect import iter_rows, quote_name
from envbuild.sql.files.new_database import row_id_name
from envbuild.sql.files.row_counts import ordinary_tables

ROWS_A_BLOCK = 5_000


class UndecodableColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column with text that does not decode."""

    table: str
    column: str
    cells: int
    example: str
    """The first such cell's bytes, hexadecimal, at most 32 of them."""


def find_undecodable(
    connection: apsw.Connection, tables: Iterable[str] | None = None
) -> list[UndecodableColumn]:
    """The columns with undecodable text, in declared order; none in a UTF-16 database.

    `tables` are the ones to look at (those that hold rows); every ordinary table where it is None.
    SQLite itself converts UTF-16, so what arrives always decodes.
    """
    ((encoding,),) = iter_rows(connection, "PRAGMA encoding")
    if encoding != "UTF-8":
        return []
    found = []
    for table in ordinary_tables(connection) if tables is None else tables:
        columns = _columns(connection, table)
        if not _decodes(connection, table, columns):
            for column in columns:
                with suppress(apsw.SQLError):  # it is computed by a function that is not here
                    bad = _bad_cells(connection, table, column)
                    found += [bad] if bad.cells else []
    return found


def _columns(connection: apsw.Connection, table: str) -> list[str]:
    rows = iter_rows(connection, "SELECT name FROM pragma_table_xinfo(?, 'main')", (table,))
    return [name for (name,) in rows]


def _decodes(connection: apsw.Connection, table: str, columns: list[str]) -> bool:
    try:
        for _ in _blocks(connection, table, columns):
            pass
    except UnicodeDecodeError:
        return False
    except (apsw.TooBigError, apsw.SQLError):
        # a block past SQLite's own length limit, a collation that is not here: look at the cells
        return False
    return True


def _blocks(
    connection: apsw.Connection, table: str, columns: list[str]
) -> Iterator[tuple[object, ...]]:
    """Each block's text, one string a column; reading it is what tries to decode it."""
    texts = ", ".join(
        f"group_concat(CASE typeof({name}) WHEN 'text' THEN {name} END)"
        for name in map(quote_name, columns)
    )
    source = f"main.{quote_name(table)}"
    row_id = row_id_name(columns)
    if row_id is None or _without_row_id(connection, table):
        yield from iter_rows(connection, f"SELECT {texts} FROM {source}")
        return
    block = (
        f"SELECT max({row_id}), {texts} FROM (SELECT {row_id}, * FROM {source} "
        f"WHERE {row_id} > ? ORDER BY {row_id} LIMIT {ROWS_A_BLOCK})"
    )
    last: int | None = -(2**63)
    while last is not None:
        for row in iter_rows(connection, block, (last,)):
            last = row[0]
            yield row


def _without_row_id(connection: apsw.Connection, table: str) -> bool:
    kinds = iter_rows(
        connection, "SELECT wr FROM pragma_table_list(?) WHERE schema = 'main'", (table,)
    )
    return any(without for (without,) in kinds)


def _bad_cells(connection: apsw.Connection, table: str, column: str) -> UndecodableColumn:
    name = quote_name(column)
    cells, example = 0, ""
    # an index may have a collation that is not here
    texts = f"FROM main.{quote_name(table)} NOT INDEXED WHERE typeof({name}) = 'text'"
    for (raw,) in iter_rows(connection, f"SELECT CAST({name} AS BLOB) {texts}"):
        try:
            raw.decode()
        except UnicodeDecodeError:
            cells += 1
            example = example or raw[:32].hex()
    return UndecodableColumn(table=table, column=column, cells=cells, example=example)
