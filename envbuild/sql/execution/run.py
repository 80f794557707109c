"""One statement on one connection, within limits: what it came to, and why it stopped."""

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import apsw
import msgspec

from envbuild.records.execution import Limits, Outcome, QueryResult, Row, Rows, UndecodableText
from envbuild.sql.execution.policy import Authorizer
from envbuild.sql.tokens import iter_code


def refuse_text(sql: object, limits: Limits) -> str:
    """Why this is not the text of one statement; empty where it may be."""
    if not isinstance(sql, str):
        return "the SQL is not text"
    if "\0" in sql:
        return "the SQL holds a NUL character"
    if not sql.isascii() or len(sql) > limits.sql_bytes:
        try:
            size = len(sql.encode())
        except UnicodeEncodeError:
            return "the SQL holds a lone surrogate"
        if size > limits.sql_bytes:
            return f"the SQL is longer than {limits.sql_bytes} bytes"
    if ";" in sql.rstrip("; \t\n\f\r") and _statements(sql) > 1:
        return "more than one statement"
    return ""


def _statements(sql: str) -> int:
    """Statements between semicolons; found before anything runs."""
    count, inside = 0, False
    for token in iter_code(sql):
        if token.text == ";":
            inside = False
        elif not inside:
            count, inside = count + 1, True
    return count


# SQLite reads a statement to its end before it looks up a name: so a complaint of its parser means
# that the text is no statement, and every other one (`no such column`, a failure while running)
# that it is.
_SYNTAX = re.compile(
    r"""near\ ".*":\ syntax\ error
    | incomplete\ input
    | unrecognized\ token:
    | parser\ stack\ overflow | Recursion\ limit
    | (?:ORDER\ BY|LIMIT)\ clause\ should\ come\ (?:before|after)
    | a\ JOIN\ clause\ is\ required\ before
    | unknown\ (?:or\ unsupported\ )?join\ type
    | unsupported\ use\ of\ NULLS
    """,
    re.VERBOSE | re.DOTALL,
)


def is_syntax_error(message: str) -> bool:
    """True where SQLite's message says that the text itself is not SQL."""
    return _SYNTAX.match(message) is not None


_DESCRIPTORS = Path("/proc/self/fd")


def held_temporary_bytes() -> int:
    """Bytes in the nameless files that this process has open; 0 where there is no /proc.

    SQLite's temporary files are among them; it counts what a statement spilled only at its end.
    """
    total = 0
    with suppress(OSError), os.scandir(_DESCRIPTORS) as descriptors:
        for entry in descriptors:
            with suppress(OSError):  # closed meanwhile
                name = os.readlink(entry.path)  # noqa: PTH115 - a Path would cost more than this
                if name.startswith("/") and name.endswith(" (deleted)") and "/memfd:" not in name:
                    total += os.fstat(int(entry.name)).st_size
    return total


def text_as_blobs(sql: str, columns: int) -> str:
    """`sql`, its `columns` result columns each followed by its text flag, text as blobs.

    Python refuses text that is not UTF-8, so a query that meets some is run again in this form.
    MATERIALIZED keeps an ORDER BY inside in force. SQLite takes up to 2,000 columns, so `sql` may
    have 1,000 of them.
    """
    tokens = [token for token in iter_code(sql) if token.text != ";"]
    statement = sql[tokens[0].start : tokens[-1].end]
    names = ", ".join(f"c{n}" for n in range(columns))
    cells = ", ".join(
        f"CASE typeof(c{n}) WHEN 'text' THEN CAST(c{n} AS BLOB) ELSE c{n} END, "
        f"typeof(c{n}) = 'text'"
        for n in range(columns)
    )
    return f"WITH lossy({names}) AS MATERIALIZED (\n{statement}\n) SELECT {cells} FROM lossy"


def lossy_rows(wrapped: QueryResult, columns: tuple[str, ...], *, encoding: str) -> QueryResult:
    """The wrapped query's result as the query's own, undecodable text as UndecodableText."""
    rows: Rows = tuple(_decoded(row, encoding) for row in wrapped.rows)
    return msgspec.structs.replace(
        wrapped, rows=rows, lossy=True, columns=columns if wrapped.columns else ()
    )


def _decoded(row: Row, encoding: str) -> Row:
    return tuple(
        _text(cell, encoding) if was_text and isinstance(cell, bytes) else cell
        for cell, was_text in zip(row[::2], row[1::2], strict=True)
    )


def _text(cell: bytes, encoding: str) -> str:
    try:
        return cell.decode(encoding)
    except UnicodeDecodeError:
        return UndecodableText(cell, encoding)


SHORT_VALUE = 4096
"""Bytes a value may have in a quick run; every function call then ends within milliseconds."""
CHUNK_CELLS = 16_384
"""Cells fetched between two looks at the size: at most 100 MB of short values."""
_LAZY_STEPS = 10_000
"""VM instructions between two looks at the limits: costs up to 2 % of a long scan."""
_LONG_VALUE_STEPS = 250
"""The same where values may be long: an instruction may then move a megabyte."""
_SLOW_CALLS = 64
"""Calls of slow functions that a statement may hold in a quick run: 2 ms each at the worst."""
_PREPARE_STEPS = 10_000_000
_SECONDS_A_SCAN = 0.1
"""Time between two looks at the temporary files: half a millisecond each."""
_encode = msgspec.msgpack.Encoder().encode

_LENGTH = apsw.SQLITE_LIMIT_LENGTH
_LONGEST = 2**31 - 1
"""What SQLite takes as a limit; its own is lower."""
_OUT_OF_SPACE = "the query ran out of temporary space"


class NeedsWorker(Exception):  # noqa: N818 - no failure: the statement belongs elsewhere
    """A quick run is not enough for the statement; nothing has been decided about it."""


class Run:
    """One statement's use of its limits, on a connection that nobody else uses meanwhile.

    A quick run takes values up to 4 KiB, so that each function call ends within milliseconds, and
    functions that can be stopped; a full run takes everything that the limits allow.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        limits: Limits,
        authorizer: Authorizer,
        *,
        deadline: float,
        is_quick: bool,
    ) -> None:
        """`deadline`: the `time.monotonic()` at which the wall clock is spent."""
        self.connection = connection
        self.limits = limits
        self.is_quick = is_quick
        self.authorizer = authorizer
        self.deadline = deadline
        self.columns: tuple[str, ...] = ()
        """The statement's, once it is prepared."""
        self.steps_a_check = _LONG_VALUE_STEPS
        if is_quick:  # SQLite's callback comes with jumps only: between two, every call may run
            self.steps_a_check = int(min(_LAZY_STEPS, max(1_000, limits.seconds * 500)))

    def result(self, sql: str) -> QueryResult:
        """The statement's outcome. Raises NeedsWorker, and UnicodeDecodeError for undecodable text.

        The connection is left as it was found: no handler, authorizer or limit stays behind.
        """
        connection = self.connection
        self.authorizer.reset()
        self.columns, self.statements, self.spent = (), 0, ""
        self.steps_left, self.is_watched = _PREPARE_STEPS, False
        before, length = connection.authorizer, connection.limit(_LENGTH)
        longest = min(self.limits.value_bytes, SHORT_VALUE if self.is_quick else _LONGEST)
        cursor = connection.cursor()
        cursor.exec_trace = self._starts
        try:
            connection.limit(_LENGTH, longest)
            connection.authorizer = self.authorizer.check
            connection.set_progress_handler(self._look, self.steps_a_check)
            found = self._fetch(cursor.execute(sql, can_cache=False))
            if self.is_watched:
                cursor.close(True)
                # SQLite's own count of what was spilled, the same on every machine, at the end
                spilled = connection.status(apsw.SQLITE_DBSTATUS_TEMPBUF_SPILL)[0]
                if spilled > self.limits.temporary_bytes:
                    return QueryResult(outcome=Outcome.TIMEOUT, error=_OUT_OF_SPACE)
            return found
        except apsw.Error as e:
            return self._failed(e)
        except MemoryError:
            return QueryResult(outcome=Outcome.TIMEOUT, error="the query ran out of memory")
        except RecursionError:
            return QueryResult(outcome=Outcome.ERROR, error="the statement is nested too deeply")
        finally:
            try:  # one inside the other: a signal may raise here too
                connection.authorizer = before
                connection.limit(_LENGTH, length)
            finally:
                connection.set_progress_handler(None)
                cursor.close(True)

    def _starts(self, cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        """APSW's callback between preparing a statement and running it: False gives it up."""
        if not cursor.has_vdbe:
            return True  # a comment or a stray semicolon
        self.statements += 1
        description = cursor.get_description()
        if self.statements > 1 or not description or not cursor.is_readonly:
            return False
        self.columns = tuple([name for name, _ in description])
        self.steps_left = self.limits.vm_steps
        asked = self.authorizer
        if self.is_quick and (asked.unstoppable or asked.slow_calls > _SLOW_CALLS):
            raise NeedsWorker
        asked.running = True
        return True

    def _look(self) -> bool:
        """SQLite's callback every `steps_a_check` instructions: True interrupts."""
        self.steps_left -= self.steps_a_check
        now = time.monotonic()
        if not self.is_watched:  # what ends before the first look can have used next to nothing
            self.is_watched = True
            self.next_scan = now + _SECONDS_A_SCAN
            self.files_before: int | None = None
            self.memory_before = apsw.memory_used()
            self.connection.status(apsw.SQLITE_DBSTATUS_TEMPBUF_SPILL, True)
        if self.steps_left <= 0:
            self.spent = "the query ran out of its step budget"
        elif now > self.deadline:
            self.spent = "the query ran out of time"
        elif not self.is_quick and self._has_filled_memory():
            self.spent = "the query ran out of memory"
        elif now > self.next_scan:
            self.next_scan = now + _SECONDS_A_SCAN
            if self._has_filled_files():
                self.spent = _OUT_OF_SPACE
        return bool(self.spent)

    def _has_filled_memory(self) -> bool:
        used = apsw.memory_used() - self.memory_before
        return used > self.limits.temporary_bytes and _is_alone()

    def _has_filled_files(self) -> bool:
        """A bomb must not fill the disk until SQLite counts, at its end, what it spilled.

        Raises NeedsWorker where the files may be another thread's.
        """
        held = held_temporary_bytes()
        if self.files_before is None:
            self.files_before = held
        if held - self.files_before <= self.limits.temporary_bytes:
            return False
        if self.is_quick and not _is_alone():
            raise NeedsWorker
        return _is_alone()

    def _fetch(self, source: Iterator[Row]) -> QueryResult:
        """All rows, or the first ones within the caps on rows and on their bytes."""
        if not self.columns:
            error = "there is no statement"
            return QueryResult(outcome=Outcome.INVALID, error=error, parsed=False)
        most, left = self.limits.rows, self.limits.result_bytes
        chunk = max(1, CHUNK_CELLS // len(self.columns)) if self.is_quick else 1
        rows: list[Row] = []
        while found := list(islice(source, min(chunk, most + 1 - len(rows)))):
            size = len(_encode(found)) - (1 if len(found) < 16 else 3)  # less the list's own head
            if size > left:
                found = list(_rows_within(found, left))
            rows += found
            left -= size
            if left < 0 or len(rows) > most:
                return QueryResult(
                    outcome=Outcome.TRUNCATED,
                    columns=self.columns,
                    rows=tuple(rows[:most]),
                    error="the result has more than the rows that are shown",
                )
        return QueryResult(outcome=Outcome.OK, columns=self.columns, rows=tuple(rows))

    def _failed(self, error: apsw.Error) -> QueryResult:
        if self.spent and isinstance(error, apsw.InterruptError):
            return QueryResult(outcome=Outcome.TIMEOUT, error=self.spent)
        if self.statements > 1:
            return QueryResult(
                outcome=Outcome.INVALID, error="more than one statement", parsed=False
            )
        if isinstance(error, apsw.AuthError | apsw.ExecTraceAbort) or self.authorizer.denied:
            return QueryResult(outcome=Outcome.DENIED, error="only reading the tables is allowed")
        if isinstance(error, apsw.TooBigError) and self.is_quick:
            raise NeedsWorker from None
        if isinstance(error, apsw.NoMemError):
            return QueryResult(outcome=Outcome.TIMEOUT, error="the query ran out of memory")
        message = str(error)
        return QueryResult(
            outcome=Outcome.ERROR, error=message, parsed=not is_syntax_error(message)
        )


def _is_alone() -> bool:
    """Is what the process uses this statement's? SQLite and the system count for the process.

    So it is in a worker; elsewhere another thread may have opened an image, or sort meanwhile.
    """
    return threading.active_count() == 1


def _rows_within(rows: list[Row], size: int) -> Iterator[Row]:
    """The first rows, as long as they fit into `size` bytes together."""
    for row in rows:
        size -= len(_encode(row))
        if size < 0:
            return
        yield row
