"""Statements in a process that can be killed: for what no handler inside SQLite can stop."""

import atexit
import io
import itertools
import os
import selectors
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import msgspec

import envbuild
from envbuild.errors import OperatorError
from envbuild.records.execution import Limits, Outcome, QueryResult
from envbuild.sql.verdicts import decode_rows, encode_rows

# What passes between a process and its SQL worker: length-prefixed MessagePack frames.


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One statement to run."""

    key: int
    """The database, as the asking session numbers it."""
    sql: str
    limits: Limits
    seconds: float
    """What is left of the wall clock."""
    path: str = ""
    """Given, with or instead of `image`, where the worker does not know the key."""
    image: bytes | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: a `QueryResult`, its rows encoded."""

    outcome: Outcome | None = None
    """None for the greeting and for an unknown key."""
    columns: tuple[str, ...] = ()
    rows: bytes = b""
    error: str = ""
    lossy: bool = False
    parsed: bool = True
    unknown: bool = False
    """The worker has not opened this database: ask again with its path or image."""

    @classmethod
    def of(cls, result: QueryResult) -> "Answer":
        """The answer that carries this result."""
        return cls(
            outcome=result.outcome,
            columns=result.columns,
            rows=encode_rows(result.rows),
            error=result.error,
            lossy=result.lossy,
            parsed=result.parsed,
        )

    def result(self) -> QueryResult:
        """The result that it carries."""
        assert self.outcome is not None  # a worker that knows the database answers with an outcome
        return QueryResult(
            outcome=self.outcome,
            columns=self.columns,
            rows=decode_rows(self.rows) if self.rows else (),
            error=self.error,
            lossy=self.lossy,
            parsed=self.parsed,
        )


def write_frame(stream: IO[bytes], body: bytes) -> None:
    """Writes one frame, whole, also to a stream without a buffer."""
    left = memoryview(len(body).to_bytes(4) + body)
    while left:
        left = left[stream.write(left) :]
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame; None at the end of the stream, also within a frame."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    size = int.from_bytes(head)
    body = stream.read(size)
    return body if len(body) == size else None


# Statements in a process that can be killed: for what no handler inside SQLite can stop.
#
# A worker is a child process that opens databases and runs one statement at a time; it answers
# over a pipe. One that does not answer in time, or whose answer is not waited for to its end
# (Ctrl-C, an alarm), is killed, and the next statement gets a new one. At most two live at once
# in a process, shared by all its sessions; the last session to close ends them. A forked child
# starts its own. A killed parent leaves none behind: a worker ends with its input, and an alarm
# of its own ends one that is stuck.


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

    def run(self, sql: str, limits: Limits, *, seconds: float) -> QueryResult:
        """What the statement came to; `seconds` is what is left of its wall clock.

        Raises OperatorError where no worker can be started on this machine.
        """
        seconds = max(0.0, seconds)
        patience = seconds + min(GRACE, limits.seconds / 2)
        request = Request(key=self.key, sql=sql, limits=limits, seconds=seconds)
        try:
            return _pool.run(self, request, patience).result()
        except _GoneError:
            return QueryResult(outcome=Outcome.TIMEOUT, error="the query ran out of time")

    def close(self) -> None:
        """Ends the workers where no other session uses them; idempotent."""
        _pool.leave(self.key)

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
            [sys.executable, "-m", "envbuild.sql.execution.worker_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            bufsize=0,  # a forked child that lets go of the pipe must not write what it inherited
            start_new_session=True,  # Ctrl-C is the parent's to answer
        )
        assert isinstance(self.child.stdin, io.FileIO)
        assert isinstance(self.child.stdout, io.FileIO)
        self.input, self.output = self.child.stdin, io.BufferedReader(self.child.stdout)
        try:
            self._receive(_START_SECONDS)  # it says that it is ready
        except _GoneError:
            self.kill()
            raise OperatorError(
                f"the SQL worker does not start: does `{sys.executable} -m "
                "envbuild.sql.execution.worker_main` run here?"
            ) from None
        except BaseException:
            self.kill()
            raise

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


class _Place:
    """Where one worker is kept between two statements."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worker: _Worker | None = None

    def ask(self, session: WorkerSession, request: Request, patience: float) -> Answer:
        """The worker's answer; a new worker where none is here.

        The place is empty meanwhile: a worker whose answer is not taken never gets back into it.
        """
        worker, self.worker = self.worker, None
        if worker is None or not worker.alive:
            worker = _Worker()
        try:
            answer = worker.ask(request, patience)
            if answer.unknown:
                answer = worker.ask(_with_origin(request, session.origin), patience)
        except BaseException:
            worker.kill()
            raise
        self.worker = worker
        return answer

    def clear(self) -> None:
        """Ends the worker, unless it is at work."""
        if self.lock.acquire(blocking=False):
            try:
                worker, self.worker = self.worker, None
                if worker is not None:
                    worker.kill()
            finally:
                self.lock.release()


class _Pool:
    """The workers of one process, and who uses them."""

    def __init__(self) -> None:
        self.tenants: set[int] = set()
        """Keys of the sessions that have run a statement and are not closed."""
        self.places = [_Place() for _ in range(WORKERS)]

    def run(self, session: WorkerSession, request: Request, patience: float) -> Answer:
        self.tenants.add(session.key)
        free = (place for place in self.places if not place.lock.locked())
        place = next(free, self.places[session.key % WORKERS])
        try:
            # `with` alone is safe here: a signal may raise between an acquire() and its `try`
            with place.lock:
                return place.ask(session, request, patience)
        finally:
            if not self.tenants:  # the session was closed meanwhile
                self.end()

    def leave(self, key: int) -> None:
        self.tenants.discard(key)
        if not self.tenants:
            self.end()

    def end(self) -> None:
        """Ends the workers that wait for a statement."""
        for place in self.places:
            place.clear()


def _with_origin(request: Request, origin: Path | bytes) -> Request:
    if isinstance(origin, bytes):
        return msgspec.structs.replace(request, image=origin)
    return msgspec.structs.replace(request, path=str(origin))


_pool = _Pool()


def _begin_anew() -> None:
    """In a forked child: the workers are the parent's, and a thread of it may hold their locks."""
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(lambda: _pool.end())
