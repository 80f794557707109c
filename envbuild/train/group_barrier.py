"""Groups for trainers that run each member as an asyncio task of its own; no trainer is imported.

Whoever comes last scores the whole group, all others wait for that. A group that cannot become
whole (a member failed, was cancelled, or is too late) is scored member by member, without the
consensus bonus, and each record says so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from envbuild.env.episode import TokenEpisode
from envbuild.records.episode import TokenRequest
from envbuild.train.trainer_env import ScoredEpisode, TrainerEnv

M = TypeVar("M")
R = TypeVar("R")

MAX_BROKEN = 1024
"""Broken groups remembered for members who are still to come; the oldest are forgotten first."""
SIBLING_SECONDS = 1800.0
"""How long a member waits for its group before it is scored alone."""

Sample = Callable[[TokenRequest], Awaitable[tuple[Sequence[int], Sequence[float | None] | None]]]
"""A trainer's own generation: the sampled ids and their log-probabilities, where it has them."""


async def play(start: Callable[[], TokenEpisode], sample: Sample) -> TokenEpisode:
    """Starts an episode and plays it to its end; its SQL runs in threads."""
    episode = await asyncio.to_thread(start)
    while (request := episode.next_request()) is not None:
        ids, logprobs = await sample(request)
        await asyncio.to_thread(episode.feed, ids, logprobs)
    return episode


def episode_barrier(env: TrainerEnv, size: int) -> "GroupBarrier[TokenEpisode, ScoredEpisode]":
    """A barrier whose groups are `size` episodes of one row, scored by `env`."""
    return GroupBarrier(
        size=size, together=env.finish_group, alone=env.finish_alone, timeout_s=SIBLING_SECONDS
    )


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

    async def meet(self, group: str, place: int, member: Awaitable[M]) -> R:
        """Awaits member number `place` of `group`, and returns its result when all are here.

        A member that raises lets its siblings, now and later, go on without it.
        """
        try:
            arrived = await member
            if group not in self._broken:
                waiting = self._groups.setdefault(group, _Group())
                waiting.members[place] = arrived
                if len(waiting.members) == self.size:
                    del self._groups[group]
                    await self._score(waiting)
                else:
                    await self._wait(group, waiting)
                if place in waiting.results:
                    return waiting.results[place]
        except BaseException:
            self._leave(group)
            raise
        (result,) = await asyncio.to_thread(self.alone, [arrived])
        return result

    def _leave(self, group: str) -> None:
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
                self._leave(group)
            else:
                await waiting.settled.wait()


class _Group(Generic[M, R]):
    """One group's members so far and, at the end, their results."""

    def __init__(self) -> None:
        self.members: dict[int, M] = {}
        self.results: dict[int, R] = {}
        self.settled = asyncio.Event()
