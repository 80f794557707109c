"""Many episodes at once against one server, resumed; their rewards, and a page to read them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import groupby, product
from pathlib import Path
from typing import Any, Protocol

import msgspec

from envbuild.engine.seeds import derive_seed, shuffled
from envbuild.env.client import (
    CompletionError,
    ServerUnreachableError,
    record_generation_failure,
    sampling_seed,
)
from envbuild.env.environment import Environment
from envbuild.env.reward import with_consensus
from envbuild.errors import CorpusFolderError, UsageError
from envbuild.io.episodes import EpisodeJournal, read_configuration
from envbuild.io.pages import embed_json
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.manifest.read import select_rows
from envbuild.records.episode import (
    Completion,
    Episode,
    EpisodeSettings,
    RewardBreakdown,
    TextRequest,
)
from envbuild.records.manifest import ManifestRow
from envbuild.sql.connect import VERSIONS

# Rewards of an episodes folder: each episode on its own, then its group's consensus.


REWARDS_FILE = "rewards.parquet"
FORMAT = "envbuild.rewards/1"


def score_groups(env: Environment, episodes: Iterable[Episode]) -> Iterator[RewardBreakdown]:
    """One breakdown an episode, sorted by episode_id; a group is the episodes of one row.

    Raises UnknownNameError for an episode whose row the manifest does not hold.
    """
    ordered = sorted(episodes, key=lambda episode: (episode.row_id, episode.candidate))
    for _, group in groupby(ordered, key=lambda episode: episode.row_id):
        alone = [env.score(episode) for episode in group]
        yield from with_consensus(alone, env.reward_settings)


def write_rewards(folder: Path, breakdowns: Iterable[RewardBreakdown]) -> int:
    """Writes rewards.parquet into `folder`; returns how many rows."""
    schema = arrow_schema(RewardBreakdown)
    metadata = {"format": FORMAT, **VERSIONS}
    return write_records(folder / REWARDS_FILE, breakdowns, schema, metadata=metadata)


def recorded_settings(folder: Path) -> EpisodeSettings | None:
    """What the folder's episodes were played under; None where their rollout does not say.

    Raises CorpusFolderError where it says what cannot be.
    """
    said = (read_configuration(folder) or {}).get("settings")
    if said is None:
        return None
    try:
        return msgspec.convert(said, EpisodeSettings)
    except msgspec.ValidationError as e:
        raise CorpusFolderError(f"the settings that {folder} records are none: {e}") from None


_EPISODE = ("episode_id", "policy", "ended_by", "gated", "error", "prompt", "sql")
_TURN = ("kind", "completion", "observation", "completion_tokens", "truncated")
_ROW = ("question", "evidence", "gold_sql", "bucket", "db_id", "tables")
"""What the page shows of each record."""


def render_episodes(
    name: str,
    episodes: Iterable[Episode],
    *,
    rows: Mapping[str, ManifestRow],
    rewards: Mapping[str, RewardBreakdown],
) -> str:
    """One self-contained HTML page to read episodes turn by turn: no network, no other file.

    `rows` by row_id and `rewards` by episode_id may lack some.
    """
    shown = []
    for episode in episodes:
        row, reward = rows.get(episode.row_id), rewards.get(episode.episode_id)
        turns = [
            _fields(turn, _TURN)
            | {"calls": len(turn.calls), "failed": sum(call.failed for call in turn.calls)}
            for turn in episode.turns
        ]
        told = _fields(episode, _EPISODE) | (_fields(row, _ROW) if row else {})
        shown.append(
            told | {"turns": turns, "reward": reward, "tier": reward.tier if reward else ""}
        )
    template = files("envbuild.env").joinpath("page.html").read_text(encoding="utf-8")
    return template.replace("@DOCUMENT@", embed_json({"name": name, "episodes": shown}))


def _fields(record: msgspec.Struct, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


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
            finished.put_nowait(episode)

    workers = [asyncio.create_task(work()) for _ in range(max(1, concurrency))]
    all_done = asyncio.gather(*workers)  # at the first error, too
    all_done.add_done_callback(lambda _: finished.put_nowait(None))
    try:
        while (episode := await finished.get()) is not None:
            yield episode
        await all_done
    except ServerUnreachableError as e:
        if journal.finished:
            goes_on = "finished episodes are kept: the same command goes on from them"
            raise ServerUnreachableError(f"{e}; {goes_on}") from e
        raise
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, all_done, return_exceptions=True)


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
        while (request := episode.next_request()) is not None:
            try:
                found = await completions.complete(request, seed=sampling_seed(env.seed, request))
            except CompletionError as e:
                record_generation_failure(episode, e)
                continue
            observation = await asyncio.to_thread(episode.feed_completion, found)
            if on_turn:
                on_turn(episode.episode_id, request, found.text, observation)
        return msgspec.structs.replace(episode.record(), seconds=time.monotonic() - began)
    finally:
        episode.close()


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
