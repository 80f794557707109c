"""Processes on this machine: spawned, supervised one by one, replaced when they die.

Not `ProcessPoolExecutor` or loky, whose pools are lost as a whole when one worker dies, and not
pebble, whose spawned workers import the caller's main module again, unguarded scripts included.
"""

import collections
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from envbuild.errors import WorkerError

S = TypeVar("S")
R = TypeVar("R")

QUEUED = 2
"""Shards a worker holds: one it works on, one that waits, so that it never starves."""
AHEAD = 4
"""Shards a worker may be ahead of the result that is due; bounds the results kept here."""
ATTEMPTS = 2


def run_local(
    function: Callable[[S], R],
    shards: Iterable[S],
    *,
    workers: int,
    on_crash: Callable[[S, str], R] | None,
) -> Iterator[R]:
    """The results in shard order; with one worker everything runs in this process."""
    if workers == 1:
        yield from map(function, shards)
        return
    pool = _Pool(function, shards, workers, on_crash)
    try:
        yield from pool.results()
    finally:
        for worker in pool.workers:
            worker.stop()


class _Worker:
    """One child process and the shards it holds, oldest first."""

    def __init__(self, function: bytes) -> None:
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        self.held: collections.deque[int] = collections.deque()
        self.child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        self.connection.send_bytes(function)

    def stop(self) -> None:
        self.connection.close()
        self.child.kill()
        self.child.wait()


_CHILD = "import sys; from envbuild.engine.local import serve; serve(int(sys.argv[1]))"


class _Pool:
    """Hands out shards, collects results, replaces the dead."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        shards: Iterable[Any],
        workers: int,
        on_crash: Callable[[Any, str], Any] | None,
    ) -> None:
        self.function = pickle.dumps(function)
        self.shards = enumerate(shards)
        self.size = workers
        self.on_crash = on_crash
        self.workers: list[_Worker] = []
        self.running: dict[int, bytes] = {}
        """Shards handed out, pickled with their index."""
        self.again: collections.deque[int] = collections.deque()
        """Shards whose worker died before they were done."""
        self.crashes: collections.Counter[int] = collections.Counter()
        self.done: dict[int, Any] = {}
        self.due = 0
        self.exhausted = False

    def results(self) -> Iterator[Any]:
        while True:
            while self.due in self.done:
                result = self.done.pop(self.due)
                self.due += 1
                yield result
            self._hand_out()
            if self.exhausted and not self.running and not self.done:
                return
            if self.due not in self.done:
                self._collect()

    def _hand_out(self) -> None:
        while True:
            worker = min(self.workers, key=lambda w: len(w.held), default=None)
            if (worker is None or worker.held) and len(self.workers) < self.size:
                worker = None  # a new one, if there is work for it
            elif worker is None or len(worker.held) >= QUEUED:
                return
            index = self._next_index()
            if index is None:
                return
            if worker is None:
                worker = _Worker(self.function)
                self.workers.append(worker)
            worker.held.append(index)
            try:
                worker.connection.send_bytes(self.running[index])
            except OSError:  # it died meanwhile; _collect will see that
                return

    def _next_index(self) -> int | None:
        if self.again:
            return self.again.popleft()
        if self.exhausted or len(self.running) + len(self.done) >= AHEAD * self.size:
            return None
        try:
            index, shard = next(self.shards)
        except StopIteration:
            self.exhausted = True
            return None
        self.running[index] = pickle.dumps((index, shard), protocol=5)
        return index

    def _collect(self) -> None:
        ready = wait([worker.connection for worker in self.workers])
        for worker in [w for w in self.workers if w.connection in ready]:
            try:
                index, failed, value = pickle.loads(worker.connection.recv_bytes())
            except (EOFError, OSError):
                self._bury(worker)
                continue
            worker.held.remove(index)
            del self.running[index]
            if failed:
                raise value
            self.done[index] = value

    def _bury(self, worker: _Worker) -> None:
        """Its first shard is the one it died on; the others go to the next worker."""
        self.workers.remove(worker)
        worker.connection.close()
        reason = _reason(worker.child.wait())
        if not worker.held:
            raise WorkerError(f"a worker process could not start: {reason}")
        guilty, *innocent = worker.held
        self.again.extendleft(reversed(innocent))
        self.crashes[guilty] += 1
        if self.crashes[guilty] < ATTEMPTS:
            self.again.appendleft(guilty)
            return
        _, shard = pickle.loads(self.running.pop(guilty))
        if self.on_crash is None:
            raise WorkerError(f"a worker process died twice on the same shard: {reason}")
        self.done[guilty] = self.on_crash(shard, reason)


def _reason(code: int) -> str:
    if code == -9:
        return "killed by signal 9 (often the out-of-memory killer: try fewer --workers)"
    return f"killed by signal {-code}" if code < 0 else f"exit status {code}"


def serve(descriptor: int) -> None:
    """A worker's life: shard after shard, until the parent closes its end, even mid-shard."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    connection = Connection(descriptor)
    arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, arrived), daemon=True).start()
    function = pickle.loads(arrived.get())
    while True:
        index, shard = pickle.loads(arrived.get())
        try:
            answer = pickle.dumps((index, False, function(shard)), protocol=5)
        except Exception as e:  # noqa: BLE001 - it is raised again in the parent
            answer = pickle.dumps((index, True, portable_error(e)))
        connection.send_bytes(answer)


def _receive(connection: Connection, arrived: "queue.SimpleQueue[bytes]") -> None:
    try:
        while True:
            arrived.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)  # the parent is gone: nobody wants the result


def portable_error(error: Exception) -> Exception:
    """The error itself where it survives pickling, with the worker's traceback as a note."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        copy: Any = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - some exceptions cannot be rebuilt from their arguments
        return RuntimeError("".join(traceback.format_exception(error)))
    return copy if isinstance(copy, Exception) else RuntimeError(str(error))
