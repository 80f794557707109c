"""Statements in a process that can be killed: for what no handler inside SQLite can stop.

A worker is a child process that opens databases and runs one statement at a time; it answers over
a pipe. One that does not answer in time is killed, and the next statement gets a new one. At most
two live at once in a process, shared by all its sessions; the last session to close ends them.
A killed parent leaves none behind: a worker ends with its input, and an alarm of its own ends one
that is stuck.
"""

import atexit
import itertools
import os
import selectors
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

import envbuild
from envbuild.errors import OperatorError
from envbuild.records.execution import Limits, Outcome, QueryResult
from envbuild.sql.running.wire import Answer, Request, read_frame, write_frame

WORKERS = 2
"""Workers alive at once in one process."""
GRACE = 0.5
"""Seconds past the limit after which a worker is killed, or half the limit if that is less."""
_START_SECONDS = 30.0
_keys = itertools.count()
_answers = msgspec.msgpack.Decoder(Answer)


class WorkerSession:
    """One database, on which a worker runs statements; the worker starts with the first one."""

    def __init__(self, origin: Path | bytes) -> None:
        self.origin = origin
        self.key = next(_keys)
        self._pool: _Pool | None = None

    def run(self, sql: str, limits: Limits, *, seconds: float | None = None) -> QueryResult:
        """What the statement came to; `seconds` is what is left of its wall clock.

        Raises OperatorError where no worker can be started on this machine.
        """
        seconds = limits.seconds if seconds is None else max(0.0, seconds)
        pool = self._pool = _pool()
        pool.tenants.add(self.key)
        patience = seconds + min(GRACE, limits.seconds / 2)
        request = Request(key=self.key, sql=sql, limits=limits, seconds=seconds)
        worker = pool.borrow()
        try:
            answer = worker.ask(request, patience)
            if answer.unknown:
                image = self.origin if isinstance(self.origin, bytes) else None
                path = "" if image is not None else str(self.origin)
                request = msgspec.structs.replace(request, path=path, image=image)
                answer = worker.ask(request, patience)
        except _GoneError:
            worker.kill()
            return QueryResult(outcome=Outcome.TIMEOUT, error="the query ran out of time")
        finally:
            pool.give_back(worker)
        return answer.result()

    def close(self) -> None:
        """Ends the workers where no other session uses them; idempotent."""
        if self._pool is not None and self._pool.pid == os.getpid():
            self._pool.leave(self.key)
        self._pool = None

    def __del__(self) -> None:
        self.close()


class _GoneError(Exception):
    """The worker died or did not answer in time."""


class _Worker:
    """One child process and the two pipes to it."""

    def __init__(self) -> None:
        root = str(Path(envbuild.__file__).parent.parent)
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.child = subprocess.Popen(
            [sys.executable, "-m", "envbuild.sql.running.worker_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is the parent's to answer
        )
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.input, self.output = self.child.stdin, self.child.stdout
        try:
            self._receive(_START_SECONDS)  # it says that it is ready
        except _GoneError:
            self.kill()
            raise OperatorError(
                f"the SQL worker does not start: does `{sys.executable} -m "
                "envbuild.sql.running.worker_main` run here?"
            ) from None

    def ask(self, request: Request, seconds: float) -> Answer:
        """The worker's answer. Raises _GoneError where none comes within `seconds`."""
        try:
            write_frame(self.input, msgspec.msgpack.encode(request))
        except OSError:
            raise _GoneError from None
        return self._receive(seconds)

    def _receive(self, seconds: float) -> Answer:
        with selectors.DefaultSelector() as selector:
            selector.register(self.output, selectors.EVENT_READ)
            deadline = time.monotonic() + seconds
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise _GoneError
        frame = read_frame(self.output)
        if frame is None:
            raise _GoneError
        return _answers.decode(frame)

    @property
    def alive(self) -> bool:
        return self.child.poll() is None

    def kill(self) -> None:
        """Ends the process and collects it; no descriptor is left."""
        self.child.kill()
        self.child.wait()
        self.input.close()
        self.output.close()


class _Pool:
    """The workers of one process, and who uses them."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.tenants: set[int] = set()
        self.idle: list[_Worker] = []
        self.free = threading.Semaphore(WORKERS)
        self.lock = threading.Lock()

    def borrow(self) -> _Worker:
        self.free.acquire()
        with self.lock:
            if self.idle:
                return self.idle.pop()
        try:
            return _Worker()
        except BaseException:
            self.free.release()
            raise

    def give_back(self, worker: _Worker) -> None:
        with self.lock:
            if self.tenants and worker.alive:
                self.idle.append(worker)
            elif worker.alive:
                worker.kill()
        self.free.release()

    def leave(self, key: int) -> None:
        self.tenants.discard(key)
        if not self.tenants:
            self.end()

    def end(self) -> None:
        """Ends the idle workers."""
        with self.lock:
            while self.idle:
                self.idle.pop().kill()


_current: _Pool | None = None
_starting = threading.Lock()


def _pool() -> _Pool:
    """This process's pool; a forked child has one of its own."""
    global _current
    with _starting:
        if _current is None or _current.pid != os.getpid():
            _current = _Pool()
            atexit.register(_current.end)
        return _current
