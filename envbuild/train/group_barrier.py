"""Groups for trainers that run each member as an asyncio task of its own; no trainer is imported.

Whoever comes last scores the whole group, all others wait for that. A group that cannot become
whole (a member failed, was cancelled, or is too late) is scored member by member, without the
consensus bonus, and each record says so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from envbuild.env.episode import TokenEpisode
from envbuild.records.episode import TokenRequest
from envbuild.train.trainer_env import ScoredEpisode, TrainerEnv

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


class GroupBarrier:
    """The groups of one event loop: each is `size` episodes of one row, scored by `env`."""

    def __init__(self, env: TrainerEnv, size: int, *, seconds: float = SIBLING_SECONDS) -> None:
        self.env, self.size, self.seconds = env, size, seconds
        self._groups: dict[str, _Group] = {}

    async def meet(self, group: str, place: int, playing: Awaitable[TokenEpisode]) -> ScoredEpisode:
        """Awaits member number `place` of `group`, and returns its score when all are here.

        A member that raises lets its siblings, now and later, go on without it.
        """
        here = self._groups.setdefault(group, _Group())
        here.begun += 1
        if here.begun == self.size:  # nobody else will ask for it
            del self._groups[group]
        try:
            episode = await playing
            if not here.settled.is_set():
                here.members[place] = episode
                await (self._score if len(here.members) == self.size else self._wait)(here)
        except BaseException:
            if len(here.members) < self.size:
                here.settled.set()
            raise
        if place in here.scored:
            return here.scored[place]
        (alone,) = await asyncio.to_thread(self.env.finish_alone, [episode])
        return alone

    async def _score(self, here: "_Group") -> None:
        order = sorted(here.members)
        try:
            episodes = [here.members[place] for place in order]
            scored = await asyncio.to_thread(self.env.finish_group, episodes)
            here.scored = dict(zip(order, scored, strict=True))
        finally:
            here.settled.set()

    async def _wait(self, here: "_Group") -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(here.settled.wait(), self.seconds)
        if len(here.members) == self.size:  # its last member scores it
            await here.settled.wait()
        else:
            here.settled.set()
            here.members.clear()


class _Group:
    def __init__(self) -> None:
        self.begun = 0
        self.members: dict[int, TokenEpisode] = {}
        self.scored: dict[int, ScoredEpisode] = {}
        self.settled = asyncio.Event()
