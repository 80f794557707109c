"""Async work for callers that are not: in a script, and where a loop runs already (notebooks)."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

R = TypeVar("R")


def run_to_end(work: Coroutine[Any, Any, R]) -> R:
    """What `work` returns; what it raises is raised here.

    A thread has one event loop at a time: where one runs in this thread, the work gets a thread of
    its own, and this one waits. An interrupt ends the work too.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []

    async def noted() -> R:
        begun.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(asyncio.run, noted())
        try:
            return running.result()
        except KeyboardInterrupt:
            for loop, task in begun:
                with suppress(RuntimeError):  # it has ended by now
                    loop.call_soon_threadsafe(task.cancel if task else loop.stop)
            raise
