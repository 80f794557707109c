"""The one executor: gold, predicted and tool SQL all run here (CONTRACT 7).

Read-only for real: an allow-list authorizer, no second statement, VM steps before the wall clock.
Nearly every statement runs in this process, with values of up to 4 KiB, where each function call
ends within milliseconds. One that meets longer values, or functions whose single call no handler
can stop, is run again with all that its limits allow in a process that can be killed
(`running.worker`). Both give what the second way alone would give.
"""

import os
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import msgspec

from envbuild.errors import CorpusError
from envbuild.records.execution import Limits, Outcome, QueryResult
from envbuild.sql.connect import open_image, open_read_only
from envbuild.sql.execution.policy import Authorizer
from envbuild.sql.execution.run import (
    NeedsMode,
    Run,
    connect_virtual_tables,
    lossy_rows,
    refuse_text,
    text_as_blobs,
)
from envbuild.sql.execution.worker import WorkerSession
from envbuild.sql.names import fold_name

DEFAULT_LIMITS = Limits()
_CONNECTION_LIMITS = {
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    apsw.SQLITE_LIMIT_VDBE_OP: 1_000_000,
    apsw.SQLITE_LIMIT_FUNCTION_ARG: 127,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}
"""Fixed limits of every session; those on depth and on compound SELECTs are SQLite's own."""
_left_to_the_parent: list[apsw.Connection] = []
"""Connections inherited by a fork: closing them here could wait for a lock held over there."""


_forks = 0
"""How many forks lie between this process and the one that imported this module."""
_reopening = threading.Lock()
_LONGEST_CLOCK = 1e6
"""Seconds: what lies beyond, infinity too, is more than timers take."""


def _count_fork() -> None:
    global _forks, _reopening
    _forks += 1
    _reopening = threading.Lock()


os.register_at_fork(after_in_child=_count_fork)


class Session:
    """One database, opened once for reading, on which statement after statement may run.

    Usable from any thread (one run at a time), in a forked child, and after pickling: it then
    opens its file or image again. Nothing of a run stays behind, whatever its outcome.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        limits: Limits = DEFAULT_LIMITS,
        origin: Path | bytes | None = None,
        isolated: bool = False,
    ) -> None:
        """Over a connection that the session closes.

        `origin`: the file or image that it came from. Without one (a connection with conditions
        of its own, or one that is written to) everything runs in this process.
        `isolated`: run everything in a killable process, at about 0.1 ms a run.
        """
        self.limits = limits
        self.isolated = isolated
        self._origin = origin
        self._connection = connection
        self._begin()

    @classmethod
    def open_file(
        cls, path: Path, *, limits: Limits = DEFAULT_LIMITS, isolated: bool = False
    ) -> "Session":
        """A session over a SQLite file, which is never written.

        Raises CorpusError (`database_unreadable`) where there is none, or it is no database.
        """
        path = Path(path).absolute()
        return cls(_open(path), limits=limits, origin=path, isolated=isolated)

    @classmethod
    def open_image(
        cls, image: bytes, *, limits: Limits = DEFAULT_LIMITS, isolated: bool = False
    ) -> "Session":
        """A session over a serialized database, private to it."""
        return cls(_open(image), limits=limits, origin=image, isolated=isolated)

    @property
    def connection(self) -> apsw.Connection:
        """The connection of this process; free of handlers and authorizer between runs."""
        if self._forks != _forks:
            self._reopen()
        return self._connection

    def run(self, sql: str, limits: Limits | None = None) -> QueryResult:
        """What the statement came to; never raises for what the SQL does.

        `limits` replaces the session's own for this run.
        """
        limits = limits or self.limits
        if refusal := refuse_text(sql, limits):
            return QueryResult(outcome=Outcome.INVALID, error=refusal, parsed=False)
        if self._forks != _forks:
            self._reopen()  # before the lock, which another thread of the parent may have held
        with self._lock:
            if self._origin is not None:
                return self._run_anywhere(sql, limits)
            self._authorizer.own_tables = frozenset()  # others may write between two runs
            before = {key: self.connection.limit(key, v) for key, v in _CONNECTION_LIMITS.items()}
            try:
                return self._run_anywhere(sql, limits)
            finally:
                for key, value in before.items():
                    self._connection.limit(key, value)

    def close(self) -> None:
        """Releases the descriptor, and the worker where nobody else uses it; idempotent.

        A statement that another thread runs here meanwhile is broken off.
        """
        if self._worker is not None:
            self._worker.close()
        if self._forks == _forks:
            while not self._lock.acquire(timeout=0.05):
                self._connection.interrupt()  # again, until a statement was there to hear it
            try:
                self._connection.close()
            finally:
                self._lock.release()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        self._keep_what_is_gone()
        origin = self._origin or self.connection.serialize("main")
        return {"origin": origin, "limits": self.limits, "isolated": self.isolated}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(_open(state["origin"]), **state)  # type: ignore[misc]  # a new one, opened here

    def _run_anywhere(self, sql: str, limits: Limits) -> QueryResult:
        """Quickly here where that is enough; the clock runs through both ways."""
        deadline = time.monotonic() + min(_LONGEST_CLOCK, limits.seconds)
        if not self.isolated:
            try:
                return self.run_here(sql, limits, deadline=deadline, is_quick=True)
            except NeedsMode:
                pass
        if self._worker is None:
            return self.run_here(sql, limits, deadline=deadline, is_quick=False)
        self._keep_what_is_gone()
        return self._worker.run(sql, limits, seconds=deadline - time.monotonic())

    def run_here(self, sql: str, limits: Limits, *, deadline: float, is_quick: bool) -> QueryResult:
        """The run in this process. Raises NeedsMode where a quick run is not enough."""
        connection, authorizer = self._connection, self._authorizer

        def run() -> Run:
            return Run(connection, limits, authorizer, deadline=deadline, is_quick=is_quick)

        try:
            result = run().result(sql)
            if not result.error:
                return result
            if (authorizer.revealing and self._owns_refused(connection)) or (
                result.outcome is Outcome.DENIED and self._connects_virtual(connection)
            ):
                result = run().result(sql)
        except UnicodeDecodeError:
            return self._run_lossy(sql, run())
        if result.error and isinstance(self._origin, Path):
            return _without_path(result, self._origin)
        return result

    def _run_lossy(self, sql: str, run: Run) -> QueryResult:
        """The run of a statement whose result, or whose columns, have undecodable text."""
        connection = self.connection
        try:
            columns = _column_names(connection, sql)
        except UnicodeDecodeError:
            return QueryResult(outcome=Outcome.ERROR, error="a column's name is not valid text")
        wrapped = run.result(text_as_blobs(sql, len(columns)))
        return lossy_rows(wrapped, columns, encoding=_encoding(connection))

    def _owns_refused(self, connection: apsw.Connection) -> bool:
        """Was the built-in table that was refused really a table of the database's own?"""
        refused = self._authorizer.revealing
        if not refused or self._authorizer.own_tables:
            return False
        names = connection.execute("SELECT name FROM main.sqlite_schema", can_cache=False)
        own = frozenset(fold_name(str(name)) for (name,) in names)
        self._authorizer.own_tables = own
        return refused in own

    def _begin(self) -> None:
        self._connected = False
        self._authorizer = Authorizer()
        self._lock = threading.RLock()
        self._worker = WorkerSession(self._origin) if self._origin is not None else None
        if self._origin is not None:
            for key, value in _CONNECTION_LIMITS.items():
                self._connection.limit(key, value)
        self._forks = _forks

    def _keep_what_is_gone(self) -> None:
        """A file that was removed meanwhile, as a cache does, lives on as this session's image."""
        if isinstance(self._origin, Path) and not self._origin.exists():
            self._origin = image = self.connection.serialize("main")
            self._worker = WorkerSession(image)

    def _connects_virtual(self, connection: apsw.Connection) -> bool:
        """Were there virtual tables, unconnected until now?"""
        if self._connected:
            return False
        self._connected = self._origin is not None
        return connect_virtual_tables(connection)

    def _reopen(self) -> None:
        """In a forked child: the inherited connection is the parent's."""
        with _reopening:
            if self._forks == _forks:
                return
            if self._origin is not None:
                _left_to_the_parent.append(self._connection)
                self._connection = _open(self._origin)
            self._begin()


def _open(origin: Path | bytes) -> apsw.Connection:
    if isinstance(origin, bytes):
        return open_image(origin)
    try:
        connection = open_read_only(origin)
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1", can_cache=False).fetchall()
    except apsw.Error as e:
        reason = str(e).replace(str(origin), origin.name)
        raise CorpusError("database_unreadable", f"{origin.name}: {reason}") from e
    return connection


def _column_names(connection: apsw.Connection, sql: str) -> tuple[str, ...]:
    """The columns of a statement that has just run; preparing it is enough."""
    found: list[tuple[str, ...]] = []

    def note(cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
        found.append(tuple(column[0] for column in cursor.get_description()))
        return False

    cursor = connection.cursor()
    cursor.exec_trace = note
    try:
        cursor.execute(sql, can_cache=False)
    except apsw.ExecTraceAbort:
        pass
    finally:
        cursor.close(True)
    return next((columns for columns in found if columns), ())


def _encoding(connection: apsw.Connection) -> str:
    """The codec of text cells taken as blobs."""
    ((encoding,),) = connection.execute("PRAGMA encoding", can_cache=False).fetchall()
    return str(encoding).replace("UTF-16le", "UTF-16-LE").replace("UTF-16be", "UTF-16-BE")


def _without_path(result: QueryResult, path: Path) -> QueryResult:
    if str(path) not in result.error:
        return result
    return msgspec.structs.replace(result, error=result.error.replace(str(path), "the database"))
