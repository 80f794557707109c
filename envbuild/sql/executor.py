"""The one executor: gold, predicted and tool SQL all run here (CONTRACT 7).

Read-only for real: an allow-list authorizer, no second statement, VM steps before the wall clock.
"""

import time
from pathlib import Path

import apsw

from envbuild.records.execution import Limits, Outcome, QueryResult
from envbuild.sql.connect import open_image, open_read_only

DEFAULT_LIMITS = Limits()
STEPS_A_CHECK = 10_000
"""VM instructions between two looks at the limits."""
_ALLOWED = frozenset(
    (apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE)
)
_FORBIDDEN_FUNCTIONS = frozenset(("load_extension", "fts3_tokenizer"))


def authorize_reading(
    action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
) -> int:
    """SQLite's authorizer callback: reading the main database, and nothing else."""
    if action not in _ALLOWED or (
        action == apsw.SQLITE_FUNCTION and (second or "").lower() in _FORBIDDEN_FUNCTIONS
    ):
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK


class Session:
    """One database, opened once for reading, on which statement after statement may run."""

    def __init__(self, connection: apsw.Connection, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.connection = connection
        self.limits = limits

    @classmethod
    def open_file(cls, path: Path, *, limits: Limits = DEFAULT_LIMITS) -> "Session":
        """A session over a SQLite file, which is never written."""
        return cls(open_read_only(path), limits=limits)

    @classmethod
    def open_image(cls, image: bytes, *, limits: Limits = DEFAULT_LIMITS) -> "Session":
        """A session over a serialized database, private to it."""
        return cls(open_image(image), limits=limits)

    def run(self, sql: str, *, limits: Limits | None = None) -> QueryResult:
        """What the statement came to; never raises for what the SQL does.

        `limits` replaces the session's own for this run.
        """
        limits = limits or self.limits
        if refusal := _refuse_text(sql, limits):
            return QueryResult(outcome=Outcome.INVALID, error=refusal)
        run = _Run(limits)
        connection = self.connection
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, limits.value_bytes)
        connection.limit(apsw.SQLITE_LIMIT_SQL_LENGTH, limits.sql_bytes)
        connection.authorizer = authorize_reading
        connection.set_progress_handler(run.spent, STEPS_A_CHECK)
        cursor = connection.cursor()
        cursor.exec_trace = run.one_statement
        try:
            return run.fetch(cursor, sql)
        except apsw.Error as e:
            return run.failed(e)
        except RecursionError:
            return QueryResult(outcome=Outcome.ERROR, error="the statement is nested too deeply")
        finally:
            connection.set_progress_handler(None)
            cursor.close(True)

    def close(self) -> None:
        """Releases the descriptor; a second call does nothing."""
        self.connection.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Run:
    """One statement's use of its limits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.checks_left = max(1, limits.vm_steps // STEPS_A_CHECK)
        self.deadline = time.monotonic() + limits.seconds
        self.statements = 0
        self.out_of_time = False

    def spent(self) -> bool:
        """SQLite's progress callback: True interrupts the statement."""
        self.checks_left -= 1
        self.out_of_time = self.checks_left <= 0 or time.monotonic() > self.deadline
        return self.out_of_time

    def one_statement(self, cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        """APSW's trace callback before each statement: False refuses a second one."""
        self.statements += 1
        return self.statements == 1

    def fetch(self, cursor: apsw.Cursor, sql: str) -> QueryResult:
        rows: list[tuple[object, ...]] = []
        size = 0
        outcome = Outcome.OK
        columns: tuple[str, ...] = ()
        for row in cursor.execute(sql, can_cache=False):
            if not rows:
                columns = tuple(column[0] for column in cursor.get_description())
            size += sum(len(v) if isinstance(v, str | bytes) else 8 for v in row)
            if len(rows) >= self.limits.rows or size > self.limits.result_bytes:
                outcome = Outcome.TRUNCATED
                break
            rows.append(row)
        if not self.statements:
            return QueryResult(outcome=Outcome.INVALID, error="there is no statement")
        return QueryResult(outcome=outcome, columns=columns, rows=tuple(rows))  # type: ignore[arg-type]

    def failed(self, error: apsw.Error) -> QueryResult:
        if self.statements > 1:
            return QueryResult(outcome=Outcome.INVALID, error="more than one statement")
        if self.out_of_time and isinstance(error, apsw.InterruptError):
            return QueryResult(outcome=Outcome.TIMEOUT, error="the query ran out of its budget")
        if isinstance(error, apsw.AuthError):
            return QueryResult(outcome=Outcome.DENIED, error="only reading is allowed")
        return QueryResult(outcome=Outcome.ERROR, error=str(error))


def _refuse_text(sql: object, limits: Limits) -> str:
    if not isinstance(sql, str):
        return "the SQL is not text"
    if "\0" in sql:
        return "the SQL holds a NUL character"
    try:
        size = len(sql.encode())
    except UnicodeEncodeError:
        return "the SQL holds a lone surrogate"
    return f"the SQL is longer than {limits.sql_bytes} bytes" if size > limits.sql_bytes else ""
