"""Many episodes at once against one server: bounded, resumed, each kept once it is finished."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import product
from typing import Protocol

import msgspec

from envbuild.engine.seeds import derive_seed, shuffled
from envbuild.environment import Environment
from envbuild.episode.text_episode import TextEpisode
from envbuild.errors import UsageError
from envbuild.io.episodes import EpisodeJournal
from envbuild.manifest.read import select_rows
from envbuild.records.episode import Completion, Episode, TextRequest
from envbuild.rollout.client import CompletionError, ServerUnreachableError, sampling_seed
from envbuild.rollout.unanswered import end_unanswered

OnTurn = Callable[[str, TextRequest, str, str], None]
"""(episode id, request, completion, observation), after each turn."""


class Completions(Protocol):
    """Where completions come from."""

    async def complete(self, request: TextRequest, *, seed: int) -> Completion: ...


async def run_rollouts(
    env: Environment,
    row_ids: Sequence[str],
    completions: Completions,
    journal: EpisodeJournal,
    *,
    episodes: int,
    concurrency: int,
    step: int | None = None,
    policy: str = "",
    on_turn: OnTurn | None = None,
) -> AsyncIterator[Episode]:
    """Yields each episode once it is in the journal, in the order they finish.

    `episodes` candidates a row; those that the journal holds already are skipped. At most
    `concurrency` are open at once, so memory does not hang on how many there are in all. What
    is the operator's fault (`ServerUnreachableError`) stops everything and is raised here.
    """
    waiting = iter(
        (row, candidate)
        for row, candidate in product(row_ids, range(episodes))
        if f"{row}/{candidate}" not in journal.finished
    )
    finished: asyncio.Queue[Episode | None] = asyncio.Queue()

    async def work() -> None:
        try:
            for row, candidate in waiting:
                episode = await run_episode(
                    env,
                    row,
                    completions,
                    candidate=candidate,
                    step=step,
                    policy=policy,
                    on_turn=on_turn,
                )
                await asyncio.to_thread(journal.add, episode)
                await finished.put(episode)
        finally:
            finished.put_nowait(None)

    workers = [asyncio.create_task(work()) for _ in range(max(1, concurrency))]
    try:
        for _ in workers:
            while (episode := await finished.get()) is not None:
                yield episode
            _raise_first(workers, kept=len(journal.finished))
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def run_episode(
    env: Environment,
    row_id: str,
    completions: Completions,
    *,
    candidate: int = 0,
    step: int | None = None,
    policy: str = "",
    on_turn: OnTurn | None = None,
) -> Episode:
    """One episode from its first request to its record; SQL runs outside the event loop."""
    began = time.monotonic()
    episode = await asyncio.to_thread(
        env.new_episode, row_id, candidate=candidate, step=step, policy=policy
    )
    try:
        await _play(env, episode, completions, on_turn)
        return msgspec.structs.replace(episode.record(), seconds=time.monotonic() - began)
    finally:
        episode.close()


async def _play(
    env: Environment,
    episode: TextEpisode,
    completions: Completions,
    on_turn: OnTurn | None,
) -> None:
    while (request := episode.next_request()) is not None:
        try:
            found = await completions.complete(request, seed=sampling_seed(env.seed, request))
        except CompletionError as e:
            end_unanswered(episode, e)
            return
        observation = await asyncio.to_thread(
            episode.feed,
            found.text,
            completion_tokens=found.completion_tokens,
            context_tokens=found.context_tokens,
            truncated=found.truncated,
        )
        if on_turn:
            on_turn(episode.episode_id, request, found.text, observation)


def _raise_first(workers: Sequence["asyncio.Task[None]"], *, kept: int) -> None:
    """Raises what a finished worker raised."""
    for worker in workers:
        if worker.done() and not worker.cancelled() and (error := worker.exception()):
            if kept and isinstance(error, ServerUnreachableError):
                goes_on = "finished episodes are kept: the same command goes on from them"
                raise ServerUnreachableError(f"{error}; {goes_on}") from error
            raise error


def choose_rows(
    env: Environment, *, rows: int | None = None, named: Sequence[str] = (), where: str = ""
) -> list[str]:
    """The rows to roll out: those named, else `rows` drawn by the environment's seed, else all.

    `where` draws among the rows that it selects, see `select_rows`.

    Raises UnknownNameError for a row that the manifest does not hold, UsageError without any.
    """
    if named:
        return [env.row(name).row_id for name in named]
    ids = select_rows(env.manifest, where)
    if not ids:
        raise UsageError("the manifest holds no rows: there is nothing to roll out")
    if rows is None or rows >= len(ids):
        return ids
    return sorted(shuffled(ids, seed=derive_seed(env.seed, "", "rollout/rows"))[:rows])
