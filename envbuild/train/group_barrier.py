"""A barrier for the members of a group, for trainers that run each member as a task of its own.

Only asyncio, no trainer: whoever comes last scores the whole group, all others wait for that. A
group that cannot become whole (a member failed, was cancelled, or is too late) is scored member by
member, without the consensus bonus, and each record says so.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

M = TypeVar("M")
R = TypeVar("R")

MAX_BROKEN = 1024
"""Broken groups remembered for members who are still to come; the oldest are forgotten first."""


class GroupBarrier(Generic[M, R]):
    """The barriers of many groups, for one event loop."""

    def __init__(
        self,
        *,
        size: int,
        together: Callable[[Sequence[M]], Sequence[R]],
        alone: Callable[[Sequence[M]], Sequence[R]],
        timeout_s: float,
    ) -> None:
        """`together` scores a whole group of `size` in member order, `alone` what is left of one.

        Both may block: they run in a thread. A member waits `timeout_s` seconds for its siblings.
        """
        self.size, self.together, self.alone, self.timeout_s = size, together, alone, timeout_s
        self._groups: dict[str, _Group[M, R]] = {}
        self._broken: dict[str, None] = {}

    async def join(self, group: str, place: int, member: M) -> R:
        """The result of member number `place` of `group`, once all its siblings are here."""
        if group not in self._broken:
            waiting = self._groups.setdefault(group, _Group())
            waiting.members[place] = member
            try:
                if len(waiting.members) == self.size:
                    del self._groups[group]
                    await self._score(waiting)
                else:
                    await self._wait(group, waiting)
            except asyncio.CancelledError:
                self.leave(group)
                raise
            if place in waiting.results:
                return waiting.results[place]
        (result,) = await asyncio.to_thread(self.alone, [member])
        return result

    def leave(self, group: str) -> None:
        """A member failed: its siblings, now and later, go on without it."""
        self._broken[group] = None
        if len(self._broken) > MAX_BROKEN:
            del self._broken[next(iter(self._broken))]
        if waiting := self._groups.pop(group, None):
            waiting.settled.set()

    async def _score(self, waiting: "_Group[M, R]") -> None:
        order = sorted(waiting.members)
        try:
            results = await asyncio.to_thread(self.together, [waiting.members[at] for at in order])
            waiting.results = dict(zip(order, results, strict=True))
        finally:
            waiting.settled.set()

    async def _wait(self, group: str, waiting: "_Group[M, R]") -> None:
        try:
            await asyncio.wait_for(waiting.settled.wait(), self.timeout_s)
        except TimeoutError:
            if self._groups.get(group) is waiting:  # otherwise its last member is scoring it
                self.leave(group)
            else:
                await waiting.settled.wait()


class _Group(Generic[M, R]):
    """One group's members so far and, at the end, their results."""

    def __init__(self) -> None:
        self.members: dict[int, M] = {}
        self.results: dict[int, R] = {}
        self.settled = asyncio.Event()
