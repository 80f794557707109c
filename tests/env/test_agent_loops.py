"""An agent over a server where an event loop runs already, as in a notebook."""

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from envbuild.env.agent import Agent
from envbuild.env.client import ServerGenerate
from envbuild.records.episode import EndedBy
from envbuild.testing.server import PolicyServer
from tests.small_manifest import QUESTIONS


def in_a_cell(work: Any) -> Any:
    """Called as a notebook's cell calls it: plainly, from inside a running loop."""

    async def cell() -> Any:
        return work()

    return asyncio.run(cell())


def test_an_agent_runs_in_a_running_loop_as_outside(manifest: Path) -> None:
    database = manifest.parent / "music.sqlite"
    asked = [(question.question, database) for question in QUESTIONS]
    with PolicyServer(manifest) as base_url:
        agent = Agent(ServerGenerate(base_url, "oracle"))
        outside = agent.run_many(asked)
        assert [e.sql for e in outside] == [question.gold for question in QUESTIONS]
        inside = in_a_cell(lambda: agent.run_many(asked))
        assert [e.turns for e in inside] == [e.turns for e in outside]
        once = in_a_cell(lambda: agent.run(QUESTIONS[0].question, database))
        assert once.ended_by is EndedBy.SUBMIT_SQL


class StuckServer(PolicyServer):
    """Answers when nobody waits any more."""

    def __init__(self, manifest: Path) -> None:
        super().__init__(manifest)
        self.go_on = threading.Event()

    def answer(self, payload: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        self.go_on.wait()
        return super().answer(payload)


def test_an_interrupt_waits_for_no_answer(manifest: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        server = StuckServer(manifest)
        with server as base_url:
            agent = Agent(ServerGenerate(base_url, "oracle"))
            with pytest.raises(KeyboardInterrupt):
                in_a_cell(lambda: agent.run("How many?", manifest.parent / "music.sqlite"))
            server.go_on.set()
    finally:
        signal.signal(signal.SIGALRM, before)
