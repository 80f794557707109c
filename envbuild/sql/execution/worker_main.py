"""The worker's side: reads requests from standard input, answers on standard output, until EOF.

Started by `sql.running.worker` as `python -m envbuild.sql.execution.worker_main`.
"""

import os
import signal
import sys
import time
from collections import OrderedDict
from pathlib import Path

import apsw
import msgspec

from envbuild.errors import CorpusError
from envbuild.records.execution import Outcome
from envbuild.sql.execution.session import Session
from envbuild.sql.execution.worker import Answer, Request, read_frame, write_frame

KEPT_DATABASES = 16
MEMORY_BYTES = 256 * 1024 * 1024
"""SQLite's own memory in this process, over all open databases; past it a query fails."""
ALARM_SECONDS = 5
"""Seconds past a statement's clock at which the process ends itself: its parent is then gone."""


def main() -> None:
    """Serves until the input ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    sys.stdout = sys.stderr  # nothing but frames may reach the pipe
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    apsw.hard_heap_limit(MEMORY_BYTES)
    decoder = msgspec.msgpack.Decoder(Request)
    databases: OrderedDict[int, Session] = OrderedDict()
    write_frame(answers, msgspec.msgpack.encode(Answer()))
    while (frame := read_frame(requests)) is not None:
        request = decoder.decode(frame)
        write_frame(answers, msgspec.msgpack.encode(_answer(request, databases)))


def _answer(request: Request, databases: OrderedDict[int, Session]) -> Answer:
    session = databases.get(request.key)
    if session is None:
        if not request.path and request.image is None:
            return Answer(unknown=True)
        try:
            session = _open(request)
        except CorpusError as e:
            return Answer(outcome=Outcome.ERROR, error=e.detail)
        databases[request.key] = session
        if len(databases) > KEPT_DATABASES:
            databases.popitem(last=False)[1].close()
    databases.move_to_end(request.key)
    signal.setitimer(signal.ITIMER_REAL, request.seconds + ALARM_SECONDS)
    try:
        deadline = time.monotonic() + request.seconds
        result = session.run_here(request.sql, request.limits, deadline=deadline, is_quick=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return Answer.of(result)


def _open(request: Request) -> Session:
    if request.image is not None:
        return Session.open_image(request.image)
    return Session.open_file(Path(request.path))


if __name__ == "__main__":
    main()
