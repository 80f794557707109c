"""A new SQLite file while it is being filled: nothing acts on the rows, nothing reaches outside.

Foreign keys and CHECKs are off, the journal stays in memory, and the rows go in as one
transaction. Statements come from strangers: they may create and fill tables, and nothing else.
"""

import errno
import os
from pathlib import Path

import apsw

from envbuild.sql.connect import Connection

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
    )
)
_TEMPORARY = frozenset(
    (
        apsw.SQLITE_CREATE_TEMP_TABLE,
        apsw.SQLITE_CREATE_TEMP_INDEX,
        apsw.SQLITE_CREATE_TEMP_TRIGGER,
        apsw.SQLITE_CREATE_TEMP_VIEW,
    )
)
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
    fill tables of this database. Raises OSError for a full disk.
    """
    checks = iter(range(DDL_STEPS // _STEPS_A_CHECK))
    before = connection.total_changes()
    runs_query = _runs_query(sql)
    if runs_query:  # one that is interrupted rolls back all of its transaction
        connection.execute("COMMIT")
    connection.authorizer = _authorize
    connection.set_progress_handler(lambda: next(checks, None) is None, _STEPS_A_CHECK)
    try:
        connection.execute(sql, can_cache=False).fetchall()
    except apsw.AuthError:
        raise RefusedStatementError("not a statement of a schema", denied=True) from None
    except _DISK as e:
        raise disk_error(connection, e) from e
    except (apsw.Error, ValueError) as e:  # a ValueError: a NUL or a lone surrogate within
        raise RefusedStatementError(str(e)) from None
    finally:
        connection.authorizer = None
        connection.set_progress_handler(None)
        if runs_query:
            connection.execute("BEGIN")
    return connection.total_changes() - before


def finish(connection: Connection) -> None:
    """Commits and closes; the file is whole afterwards, in rollback-journal mode."""
    try:
        connection.execute("COMMIT")
        connection.close()
    except _DISK as e:
        raise disk_error(connection, e) from e


def disk_error(connection: Connection, error: apsw.Error) -> OSError:
    """What SQLite says about writing, as the operating system's error."""
    full = isinstance(error, apsw.FullError)
    number = errno.ENOSPC if full else connection.system_errno or errno.EIO
    return OSError(number, os.strerror(number))


def _runs_query(sql: str) -> bool:
    """Whether it may take long: plain words, since a regular expression costs more than CREATE."""
    lower = sql.lower()
    return (
        "select" in lower
        or "insert into" in lower
        or "replace into" in lower
        or lower.lstrip().startswith(("insert", "replace", "update", "delete"))
    )


def _authorize(
    action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
) -> int:
    if action in _FORBIDDEN or action in _TEMPORARY:
        return apsw.SQLITE_DENY
    if action == apsw.SQLITE_FUNCTION and (second or "").lower() == "load_extension":
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK
