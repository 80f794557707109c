"""Rows into a table by bound values, every refusal reported; nothing ignored or replaced."""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import apsw

from envbuild.records.execution import Row
from envbuild.sql.connect import Connection, quote_name
from envbuild.sql.files.new_database import disk_error

_REASONS = {
    apsw.SQLITE_CONSTRAINT_PRIMARYKEY: "PRIMARY KEY",
    apsw.SQLITE_CONSTRAINT_ROWID: "PRIMARY KEY",
    apsw.SQLITE_CONSTRAINT_UNIQUE: "UNIQUE",
    apsw.SQLITE_CONSTRAINT_NOTNULL: "NOT NULL",
    apsw.SQLITE_CONSTRAINT_CHECK: "CHECK",
    apsw.SQLITE_CONSTRAINT_DATATYPE: "DATATYPE",
}
"""SQLite's extended result codes, under the constraint's name."""
_UNBINDABLE = (OverflowError, UnicodeEncodeError, TypeError)


class Refusal(NamedTuple):
    """One row that the table refused."""

    position: int
    """0-based, within the rows given."""
    reason: str
    """The constraint's name, or `datatype_mismatch`, `too_big`, `refused`."""
    detail: str


def insert_sql(table: str, columns: Sequence[str], *, as_text: Sequence[bool] = ()) -> str:
    """The INSERT of these columns; `as_text` marks those bound as bytes and stored as text.

    `OR ABORT` overrules an `ON CONFLICT IGNORE` or `REPLACE` of the DDL, which would be silent.
    """
    if not columns:
        return f"INSERT OR ABORT INTO {quote_name(table)} DEFAULT VALUES"
    names = ", ".join(map(quote_name, columns))
    marks = ", ".join(
        "CAST(? AS TEXT)" if text else "?" for text in as_text or [False] * len(columns)
    )
    return f"INSERT OR ABORT INTO {quote_name(table)} ({names}) VALUES ({marks})"


def insert_rows(
    connection: Connection, sql: str, rows: Sequence[Row], *, mend: Callable[[Row], Row]
) -> Iterator[Refusal]:
    """Inserts all rows but those the table refuses, which are yielded; read it to its end.

    `mend` turns a row that cannot be bound (an integer past 64 bits, a lone surrogate) into one
    that can. Raises OSError for a full disk.
    """
    remaining = iter(rows)
    while left := operator.length_hint(remaining):
        try:
            connection.executemany(sql, remaining)
            return
        except Exception as e:  # noqa: BLE001 - what is no refusal is raised again below
            if operator.length_hint(remaining) == left:
                # it did not compile: no row was taken, and none ever would be
                yield from _all_refused(connection, e, len(rows) - left, len(rows))
                return
            position = len(rows) - operator.length_hint(remaining) - 1
            refusal = _one_again(connection, sql, mend(rows[position]), e, position)
            if refusal:
                yield refusal


def _all_refused(
    connection: Connection, error: Exception, first: int, end: int
) -> Iterator[Refusal]:
    if isinstance(error, apsw.FullError | apsw.IOError | apsw.CantOpenError):
        raise disk_error(connection, error) from error
    if not isinstance(error, apsw.Error):
        raise error
    for position in range(first, end):
        yield Refusal(position, "refused", str(error))


def _one_again(
    connection: Connection, sql: str, row: Row, error: Exception, position: int
) -> Refusal | None:
    if isinstance(error, _UNBINDABLE):
        try:
            connection.execute(sql, row)
            return None
        except apsw.Error as e:
            error = e
    if isinstance(error, apsw.FullError | apsw.IOError | apsw.CantOpenError):
        raise disk_error(connection, error) from error
    if not isinstance(error, apsw.Error):
        raise error
    return Refusal(position, _reason(error), str(error))


def _reason(error: apsw.Error) -> str:
    if isinstance(error, apsw.ConstraintError):
        code = getattr(error, "extendedresult", 0)  # missing from APSW's type stubs
        return _REASONS.get(code, "constraint")
    if isinstance(error, apsw.MismatchError):
        return "datatype_mismatch"
    return "too_big" if isinstance(error, apsw.TooBigError) else "refused"
