"""The one executor: gold, predicted and tool SQL all run here (CONTRACT 7).

Read-only for real: an allow-list authorizer, no second statement, VM steps before the wall clock.
Nearly every statement runs in this process, with values of up to 4 KiB, where each function call
ends within milliseconds. One that meets longer values, or functions whose single call no handler
can stop, is run again with all that its limits allow in a process that can be killed
(`execution.worker`). Both give what the second way alone would give.
"""

import itertools
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import msgspec

from envbuild.errors import CorpusError
from envbuild.io.packs import local_file
from envbuild.records.execution import Limits, Outcome, QueryResult
from envbuild.sql.connect import open_image, open_read_only, quote_name
from envbuild.sql.execution import worker
from envbuild.sql.execution.policy import Authorizer
from envbuild.sql.execution.run import NeedsWorker, Run, lossy_rows, refuse_text, text_as_blobs
from envbuild.sql.forks import leave_to_the_parent, renew_in_children
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
_LONGEST_CLOCK = 1e6
"""Seconds: what lies beyond, infinity too, is more than timers take."""
_keys = itertools.count()


class Session:
    """One database, opened once for reading, on which statement after statement may run.

    Usable from any thread (one run at a time), in a forked child, and after pickling: it then
    opens its file or image again. Nothing of a run stays behind, whatever its outcome.
    """

    _key = -1
    """What the workers know the database by."""

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        limits: Limits = DEFAULT_LIMITS,
        origin: Path | bytes | None = None,
    ) -> None:
        """Over a connection that the session closes.

        `origin`: the file or image that it came from. Without one (a connection with conditions
        of its own, or one that is written to) everything runs in this process.
        """
        self.limits = limits
        self._origin = origin
        self._begin(connection)
        renew_in_children(self)

    @classmethod
    def open_file(cls, path: Path, *, limits: Limits = DEFAULT_LIMITS) -> "Session":
        """A session over a SQLite file, which is never written.

        Raises CorpusError (`database_unreadable`) where there is none, or it is no database.
        """
        path = local_file(Path(path)).absolute()
        return cls(_open(path), limits=limits, origin=path)

    @classmethod
    def open_image(cls, image: bytes, *, limits: Limits = DEFAULT_LIMITS) -> "Session":
        """A session over a serialized database, private to it."""
        return cls(_open(image), limits=limits, origin=image)

    @property
    def connection(self) -> apsw.Connection:
        """The connection of this process; free of handlers and authorizer between runs."""
        if self._is_inherited:
            with self._lock:
                if self._is_inherited and self._origin is not None:
                    self._begin(_open(self._origin))
        return self._connection

    def run(self, sql: str, limits: Limits | None = None) -> QueryResult:
        """What the statement came to; never raises for what the SQL does.

        `limits` replaces the session's own for this run.
        """
        limits = limits or self.limits
        if refusal := refuse_text(sql, limits):
            return QueryResult(outcome=Outcome.INVALID, error=refusal, parsed=False)
        connection = self.connection
        with self._lock:
            if self._origin is not None:
                return self._run_anywhere(sql, limits)
            self._forget_tables()  # others may write between two runs
            before = {key: connection.limit(key, v) for key, v in _CONNECTION_LIMITS.items()}
            try:
                return self._run_anywhere(sql, limits)
            finally:
                for key, value in before.items():
                    connection.limit(key, value)

    def close(self) -> None:
        """Releases the descriptor, and the worker where nobody else uses it; idempotent.

        A statement that another thread runs here meanwhile is broken off.
        """
        worker.leave(self._key)
        if not self._is_inherited:
            while not self._lock.acquire(timeout=0.05):
                self._connection.interrupt()  # again, until a statement was there to hear it
            try:
                self._connection.close()
            finally:
                self._lock.release()

    def __del__(self) -> None:
        worker.leave(self._key)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        self._keep_what_is_gone()
        origin = self._origin or self.connection.serialize("main")
        return {"origin": origin, "limits": self.limits}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(_open(state["origin"]), **state)  # type: ignore[misc]  # a new one, opened here

    def renew_locks(self) -> None:
        """For a forked child: the connection is the parent's, whose threads may hold the lock."""
        self._lock = threading.RLock()
        if self._origin is not None:
            self._is_inherited = True
            leave_to_the_parent(self._connection)

    def _begin(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._authorizer = Authorizer()
        self._forget_tables()
        if self._origin is not None:
            for key, value in _CONNECTION_LIMITS.items():
                connection.limit(key, value)
        self._lock = threading.RLock()
        self._key = next(_keys)
        self._is_inherited = False

    def _run_anywhere(self, sql: str, limits: Limits) -> QueryResult:
        """Quickly here where that is enough; the clock runs through both ways."""
        deadline = time.monotonic() + min(_LONGEST_CLOCK, limits.seconds)
        try:
            return self.run_here(sql, limits, deadline=deadline, is_quick=True)
        except NeedsWorker:
            if self._origin is None:
                return self.run_here(sql, limits, deadline=deadline, is_quick=False)
        self._keep_what_is_gone()
        return worker.run(
            sql, limits, key=self._key, origin=self._origin, seconds=deadline - time.monotonic()
        )

    def run_here(self, sql: str, limits: Limits, *, deadline: float, is_quick: bool) -> QueryResult:
        """The run in this process. Raises NeedsWorker where a quick run is not enough."""
        run = Run(self._connection, limits, self._authorizer, deadline=deadline, is_quick=is_quick)
        try:
            result = run.result(sql)
            if result.outcome is Outcome.DENIED and self._learns_tables():
                result = run.result(sql)
        except UnicodeDecodeError:
            if not run.columns:
                error = "a column's name is not valid text"
                return QueryResult(outcome=Outcome.ERROR, error=error)
            columns = run.columns
            wrapped = run.result(text_as_blobs(sql, len(columns)))
            result = lossy_rows(wrapped, columns, encoding=self._encoding())
        if isinstance(self._origin, Path) and str(self._origin) in result.error:
            error = result.error.replace(str(self._origin), "the database")
            result = msgspec.structs.replace(result, error=error)
        return result

    def _encoding(self) -> str:
        """The codec of text cells taken as blobs."""
        rows = self._connection.execute("PRAGMA encoding", can_cache=False).fetchall()
        return str(rows[0][0]).replace("16le", "16-LE").replace("16be", "16-BE")

    def _forget_tables(self) -> None:
        self._knows_tables = False
        self._authorizer.own_tables = frozenset()

    def _learns_tables(self) -> bool:
        """Was the refused statement the first one, so that it should be tried again?

        A table of the database's own may be called as a built-in one is. And an R-Tree prepares its
        writes when it is connected, by the first statement that names it: connected here, it does
        so before the authorizer looks.
        """
        if self._knows_tables:
            return False
        self._knows_tables = True
        entries = self._connection.execute(
            "SELECT name, ifnull(sql LIKE 'CREATE VIRTUAL TABLE%', 0) FROM main.sqlite_schema",
            can_cache=False,
        ).fetchall()
        self._authorizer.own_tables = frozenset(fold_name(str(name)) for name, _ in entries)
        for name in (quote_name(str(name)) for name, is_virtual in entries if is_virtual):
            with suppress(apsw.Error):
                self._connection.execute(f"SELECT 1 FROM {name} LIMIT 0", can_cache=False)
        return True

    def _keep_what_is_gone(self) -> None:
        """A file that was removed meanwhile, as a cache does, lives on as this session's image."""
        if isinstance(self._origin, Path) and not self._origin.exists():
            self._origin = self.connection.serialize("main")
            worker.leave(self._key)
            self._key = next(_keys)


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
