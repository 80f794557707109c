"""Statements in a process that can be killed: for what no handler inside SQLite can stop.

A worker is a child process that opens databases and runs one statement at a time; it answers
over a pipe. One that does not answer in time, or whose answer is not waited for to its end
(Ctrl-C, an alarm), is killed, and the next statement gets a new one. At most two live at once
in a process, shared by all its sessions; the last session to close ends them. A forked child
starts its own. A killed parent leaves none behind: a worker ends with its pipe, and an alarm
of its own ends one that is stuck.
"""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import apsw

import envbuild
from envbuild.errors import CorpusError, OperatorError
from envbuild.records.execution import Limits, Outcome, QueryResult

if TYPE_CHECKING:
    from envbuild.sql.execution.session import Session

WORKERS = 2
"""Workers alive at once in one process."""
GRACE = 0.5
"""Seconds past the limit after which a worker is killed, or half the limit if that is less."""
KEPT_DATABASES = 16
"""Databases that a worker holds open."""
MEMORY_BYTES = 256 * 1024 * 1024
"""SQLite's own memory in a worker, over all open databases; past it a query fails."""
ALARM_SECONDS = 5
"""Seconds past a statement's clock at which a worker ends itself: its parent is then gone."""
_START_SECONDS = 30.0
_PROGRAM = "import sys; from envbuild.sql.execution.worker import serve; serve(int(sys.argv[1]))"


class _Request(NamedTuple):
    """One statement to run."""

    key: int
    """The database, as the asking session numbers it."""
    origin: Path | bytes | None
    """Its file or image; given once the worker has answered that it does not know the key."""
    sql: str
    limits: Limits
    seconds: float


def run(sql: str, limits: Limits, *, key: int, origin: Path | bytes, seconds: float) -> QueryResult:
    """What the statement came to on the database that the session numbers `key`.

    `seconds` is what is left of its wall clock. Raises OperatorError where no worker can be started
    on this machine.
    """
    seconds = max(0.0, seconds)
    request = _Request(key, None, sql, limits, seconds)
    try:
        return _pool.run(request, origin, seconds + min(GRACE, limits.seconds / 2))
    except _GoneError:
        return QueryResult(outcome=Outcome.TIMEOUT, error="the query ran out of time")


def leave(key: int) -> None:
    """A session has no more statements: ends the workers where no other one uses them."""
    if key in _pool.users:
        _pool.users.discard(key)
        if not _pool.users:
            _pool.end()


class _GoneError(Exception):
    """The worker died or did not answer in time."""


class _Worker:
    """One child process and the pipe to it."""

    def __init__(self) -> None:
        root = str(Path(envbuild.__file__).parent.parent)
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.pipe, theirs = Pipe()
        with theirs:
            self.child = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the parent's to answer
            )
        try:
            self._receive(_START_SECONDS)  # it says that it is ready
        except _GoneError:
            self.kill()
            raise OperatorError(
                f"the SQL worker does not start: does `{sys.executable} -c 'import "
                "envbuild.sql.execution.worker'` run here?"
            ) from None
        except BaseException:
            self.kill()
            raise

    def ask(self, request: _Request, seconds: float) -> QueryResult | None:
        """The worker's answer. Raises _GoneError where none comes within `seconds`."""
        try:
            self.pipe.send(request)
        except OSError:
            raise _GoneError from None
        return self._receive(seconds)

    def _receive(self, seconds: float) -> QueryResult | None:
        try:
            if not self.pipe.poll(seconds):
                raise _GoneError
            answer: QueryResult | None = self.pipe.recv()
        except (EOFError, OSError):
            raise _GoneError from None
        return answer

    def kill(self) -> None:
        """Ends the process and collects it; no descriptor is left."""
        self.child.kill()
        self.child.wait()
        self.pipe.close()


class _Place:
    """Where one worker is kept between two statements."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worker: _Worker | None = None


class _Pool:
    """The workers of one process, and who uses them."""

    def __init__(self) -> None:
        self.users: set[int] = set()
        """Keys of the sessions that have run a statement and are not closed."""
        self.places = [_Place() for _ in range(WORKERS)]

    def run(self, request: _Request, origin: Path | bytes, patience: float) -> QueryResult:
        self.users.add(request.key)
        free = (place for place in self.places if not place.lock.locked())
        place = next(free, self.places[request.key % WORKERS])
        try:
            # `with` alone is safe here: a signal may raise between an acquire() and its `try`
            with place.lock:
                # empty meanwhile: a worker whose answer is not taken never gets back into it
                worker, place.worker = place.worker, None
                if worker is None or worker.child.poll() is not None:
                    worker = _Worker()
                try:
                    answer = worker.ask(request, patience)
                    if answer is None:
                        answer = worker.ask(request._replace(origin=origin), patience)
                    if answer is None:
                        raise _GoneError
                except BaseException:
                    worker.kill()
                    raise
                place.worker = worker
                return answer
        finally:
            if not self.users:  # the session was closed meanwhile
                self.end()

    def end(self) -> None:
        """Ends the workers that wait for a statement."""
        for place in self.places:
            if place.lock.acquire(blocking=False):
                try:
                    worker, place.worker = place.worker, None
                    if worker is not None:
                        worker.kill()
                finally:
                    place.lock.release()


_pool = _Pool()


def _begin_anew() -> None:
    """In a forked child: the workers are the parent's, and a thread of it may hold their locks."""
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(lambda: _pool.end())


def serve(descriptor: int) -> None:
    """The worker's side: runs what comes through the pipe until its other end is closed."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    apsw.hard_heap_limit(MEMORY_BYTES)
    databases: OrderedDict[int, Session] = OrderedDict()
    with Connection(descriptor) as pipe, suppress(EOFError, OSError):
        pipe.send(None)
        while True:
            pipe.send(_answer(pipe.recv(), databases))


def _answer(request: _Request, databases: "OrderedDict[int, Session]") -> QueryResult | None:
    """The statement's result; None where the database is not open here and its origin not given."""
    from envbuild.sql.execution.session import Session  # it imports this module

    session = databases.get(request.key)
    if session is None:
        if request.origin is None:
            return None
        try:
            if isinstance(request.origin, bytes):
                session = Session.open_image(request.origin)
            else:
                session = Session.open_file(request.origin)
        except CorpusError as e:
            return QueryResult(outcome=Outcome.ERROR, error=e.detail)
        databases[request.key] = session
        if len(databases) > KEPT_DATABASES:
            databases.popitem(last=False)[1].close()
    databases.move_to_end(request.key)
    signal.setitimer(signal.ITIMER_REAL, request.seconds + ALARM_SECONDS)
    try:
        deadline = time.monotonic() + request.seconds
        return session.run_here(request.sql, request.limits, deadline=deadline, is_quick=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
