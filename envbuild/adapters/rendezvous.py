"""Where the members of a group meet when a trainer runs each as a task of its own.

Only asyncio, no trainer: whoever comes last scores the whole group, all others wait for that.
A group that cannot become whole (a member failed, or is too late) is scored member by member,
without the consensus bonus, and says so.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

M = TypeVar("M")
R = TypeVar("R")


class Rendezvous(Generic[M, R]):
    """Meeting place of many groups, for one event loop."""

    def __init__(
        self,
        *,
        size: int,
        together: Callable[[Sequence[M]], Sequence[R]],
        alone: Callable[[Sequence[M]], Sequence[R]],
        patience: float,
    ) -> None:
        """`together` scores a whole group of `size` in member order, `alone` what is left of one.

        Both may block: they run in a thread. `patience`: seconds until a member stops waiting.
        """
        self.size, self.together, self.alone, self.patience = size, together, alone, patience
        self._groups: dict[str, _Group[M, R]] = {}

    async def join(self, group: str, place: int, member: M) -> R:
        """The result of member number `place` of `group`, once all its siblings are here."""
        waiting = self._groups.setdefault(group, _Group())
        waiting.members[place] = member
        self._forget_complete(group, waiting)
        if not waiting.broken and len(waiting.members) == self.size:
            await self._settle(waiting)
            return waiting.results[place]
        if not waiting.broken:
            await self._wait(waiting)
        if place in waiting.results:
            return waiting.results[place]
        (result,) = await asyncio.to_thread(self.alone, [member])
        return result

    def leave(self, group: str) -> None:
        """A member failed: its siblings, now and later, go on without it."""
        waiting = self._groups.setdefault(group, _Group())
        waiting.broken = True
        waiting.lost += 1
        waiting.settled.set()
        self._forget_complete(group, waiting)

    async def _settle(self, waiting: "_Group[M, R]") -> None:
        order = sorted(waiting.members)
        try:
            results = await asyncio.to_thread(self.together, [waiting.members[at] for at in order])
            waiting.results = dict(zip(order, results, strict=True))
        finally:
            waiting.settled.set()

    async def _wait(self, waiting: "_Group[M, R]") -> None:
        try:
            await asyncio.wait_for(waiting.settled.wait(), self.patience)
        except TimeoutError:
            waiting.broken = True
            waiting.settled.set()

    def _forget_complete(self, group: str, waiting: "_Group[M, R]") -> None:
        if len(waiting.members) + waiting.lost >= self.size:
            self._groups.pop(group, None)


class _Group(Generic[M, R]):
    """One group's members so far and, at the end, their results."""

    def __init__(self) -> None:
        self.members: dict[int, M] = {}
        self.results: dict[int, R] = {}
        self.settled = asyncio.Event()
        self.broken = False
        self.lost = 0
