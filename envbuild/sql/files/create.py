"""A new SQLite file while it is being filled: nothing acts on rows, every refusal is reported.

Foreign keys and CHECKs are off, the journal stays in memory, and the rows go in as one
transaction. Statements come from strangers: they may create and fill tables, and nothing else.
"""

import errno
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from envbuild.records.execution import Row
from envbuild.sql.connect import Connection, quote_name

DDL_STEPS = 200_000_000
"""VM steps that one statement of the DDL may take: `CREATE TABLE … AS` may be any query."""
_STEPS_A_CHECK = 100_000
_FORBIDDEN = frozenset(
    (
        apsw.SQLITE_ATTACH,
        apsw.SQLITE_DETACH,
        apsw.SQLITE_PRAGMA,
        apsw.SQLITE_TRANSACTION,
        apsw.SQLITE_SAVEPOINT,
        apsw.SQLITE_CREATE_TEMP_TABLE,
        apsw.SQLITE_CREATE_TEMP_INDEX,
        apsw.SQLITE_CREATE_TEMP_TRIGGER,
        apsw.SQLITE_CREATE_TEMP_VIEW,
    )
)
LARGEST_ID = 2**63 - 1
"""SQLite's largest row id; past it an AUTOINCREMENT table is "full", any other's ids are random."""
_NO_ID_LEFT = "a row would come after the one with the largest id"
_DISK = (apsw.FullError, apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError)


class RefusedStatementError(Exception):
    """SQLite's refusal of one statement; `denied` where it reached outside the database."""

    def __init__(self, message: str, *, denied: bool = False) -> None:
        self.denied = denied
        super().__init__(message)


def open_new(path: Path) -> Connection:
    """A connection to a new file at `path`, inside a transaction; the caller closes it."""
    connection = apsw.Connection(str(path))
    connection.execute(
        "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;"
        "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;"
        "PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY; BEGIN"
    ).fetchall()
    return connection


def run_statement(connection: Connection, sql: str) -> int:
    """Runs one statement of a schema; the number of rows it inserted, changed or deleted.

    Raises RefusedStatementError where SQLite refuses it, or where it does more than create and
    fill tables of this database. So is one that inserts a row where the largest id is taken, since
    SQLite may pick its id at random. Raises OSError for a full disk.
    """
    inserted: dict[str, bool] = {}
    """Table -> whether the last row inserted into it has the largest id."""

    def note(operation: int, database: str, table: str, row_id: int) -> None:
        if operation == apsw.SQLITE_INSERT:
            inserted[table] = row_id == LARGEST_ID

    checks = iter(range(DDL_STEPS // _STEPS_A_CHECK))
    before = connection.total_changes()
    runs_query = _runs_query(sql)
    if runs_query:  # one that is interrupted rolls back all of its transaction
        connection.execute("COMMIT; BEGIN")
        connection.set_update_hook(note)
    connection.authorizer = _authorize
    connection.set_progress_handler(lambda: next(checks, None) is None, _STEPS_A_CHECK)
    try:
        connection.execute(sql, can_cache=False).fetchall()
    except apsw.AuthError:
        raise RefusedStatementError("not a statement of a schema", denied=True) from None
    except _DISK as e:
        ids = _counters(connection)
        if isinstance(e, apsw.FullError) and (LARGEST_ID in ids or any(inserted.values())):
            raise RefusedStatementError(_NO_ID_LEFT) from None
        raise disk_error(connection, e) from e
    except (apsw.Error, ValueError) as e:  # a ValueError: a NUL or a lone surrogate within
        raise RefusedStatementError(str(e)) from None
    finally:
        connection.authorizer = None
        connection.set_progress_handler(None)
        connection.set_update_hook(None)
        if runs_query and not connection.in_transaction:
            connection.execute("BEGIN")
    others = [table for table, is_largest in inserted.items() if not is_largest]
    if any(ids_left(connection, table, ()) == 0 for table in others):  # SQLite may have drawn one
        connection.execute("ROLLBACK; BEGIN")
        raise RefusedStatementError(_NO_ID_LEFT)
    return connection.total_changes() - before


def finish(connection: Connection) -> None:
    """Commits and closes; the file is whole afterwards, in rollback-journal mode."""
    try:
        connection.execute("COMMIT")
        connection.close()
    except _DISK as e:
        raise disk_error(connection, e) from e


def ids_left(connection: Connection, table: str, columns: Sequence[str]) -> int:
    """How many rows SQLite can still number by itself: it goes on from the largest id.

    `columns` are the table's, in case one hides the row id; the table has row ids.
    """
    taken = [0, *_counters(connection, table)]
    if row_id := row_id_name(columns):
        taken += _numbers(connection, f"SELECT max({row_id}) FROM main.{quote_name(table)}")
    return LARGEST_ID - max(taken)


def _counters(connection: Connection, table: str | None = None) -> list[int]:
    """What AUTOINCREMENT tables, or this one, have counted to."""
    kept = "SELECT 1 FROM main.sqlite_schema WHERE name = 'sqlite_sequence'"
    counted = "SELECT seq FROM main.sqlite_sequence WHERE name = ifnull(?, name)"
    return _numbers(connection, counted, (table,)) if _numbers(connection, kept) else []


def row_id_name(columns: Sequence[str]) -> str | None:
    """A name of the row id that no column hides."""
    taken = {name.lower() for name in columns}
    return next((name for name in ("_rowid_", "rowid", "oid") if name not in taken), None)


def _numbers(connection: Connection, sql: str, bindings: Row = ()) -> list[int]:
    return [n for (n,) in connection.execute(sql, bindings) if isinstance(n, int)]


def disk_error(connection: Connection, error: apsw.Error) -> OSError:
    """What SQLite says about writing, as the operating system's error."""
    full = isinstance(error, apsw.FullError)
    number = errno.ENOSPC if full else connection.system_errno or errno.EIO
    return OSError(number, os.strerror(number))


def _runs_query(sql: str) -> bool:
    """Whether it may take long: plain words, since a regular expression costs more than CREATE."""
    lower = sql.lower()
    words = ("select", "insert into", "replace into", "delete from")
    starts = ("insert", "replace", "update", "delete")
    return any(word in lower for word in words) or lower.lstrip().startswith(starts)


def _authorize(
    action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
) -> int:
    if action in _FORBIDDEN:
        return apsw.SQLITE_DENY
    if action == apsw.SQLITE_FUNCTION and (second or "").lower() == "load_extension":
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK


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
                _raise_unless_refusal(connection, e)
                for position in range(len(rows) - left, len(rows)):
                    yield Refusal(position, "refused", str(e))
                return
            position = len(rows) - operator.length_hint(remaining) - 1
            if isinstance(e, _UNBINDABLE):
                try:
                    connection.execute(sql, mend(rows[position]))
                    continue
                except apsw.Error as again:
                    refusal: Exception = again
            else:
                refusal = e
            _raise_unless_refusal(connection, refusal)
            yield Refusal(position, _reason(refusal), str(refusal))


def _raise_unless_refusal(connection: Connection, error: Exception) -> None:
    if isinstance(error, apsw.FullError | apsw.IOError | apsw.CantOpenError):
        raise disk_error(connection, error) from error
    if not isinstance(error, apsw.Error):
        raise error


def _reason(error: Exception) -> str:
    if isinstance(error, apsw.ConstraintError):
        code = getattr(error, "extendedresult", 0)  # missing from APSW's type stubs
        return _REASONS.get(code, "constraint")
    if isinstance(error, apsw.MismatchError):
        return "datatype_mismatch"
    return "too_big" if isinstance(error, apsw.TooBigError) else "refused"
