"""verifiers (0.4, `verifiers.v1`): a taskset over an export, and a harness that runs in-process.

The harness drives the episode and sends every model call through verifiers' own endpoint, so the
trace is verifiers' record. An agent sees one episode, never its group.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from envbuild.env.episode import TextEpisode
from envbuild.errors import MissingDependencyError
from envbuild.io.parquet import open_parquet
from envbuild.train.trainer_env import (
    EpisodeSpec,
    candidate_number,
    metrics,
    shared_trainer_env,
)

try:
    import httpx
    import verifiers.v1 as vf
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the verifiers adapter", str(e.name), "pip install '.[verifiers]' in a checkout"
    ) from e

__all__ = ["EpisodeHarness", "EpisodeTaskset"]

RESULT = "envbuild"
"""Where a trace's `info` holds the episode's outcome."""


class EpisodeRow(vf.TaskData):  # type: ignore[misc]  # verifiers is absent where types are checked
    """One exported row."""

    env_json: str
    manifest: str = ""
    rerun_golds: bool = False


class EpisodeTask(vf.Task[EpisodeRow]):  # type: ignore[misc]  # as above
    """One question; the harness has already scored it."""

    @vf.reward  # type: ignore[untyped-decorator]  # as above
    async def earned(self, trace: Any) -> float:
        """The episode's reward; 0.0 where the gold cannot be scored, which `scored` tells."""
        return float(trace.info[RESULT]["reward"] or 0.0)

    @vf.metric  # type: ignore[untyped-decorator]  # as above
    async def episode(self, trace: Any) -> dict[str, float]:
        """Parts of the reward and of the episode, as numbers."""
        parts: dict[str, float] = trace.info[RESULT]["metrics"]
        return parts


class EpisodeTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]  # as above
    """Where the data are."""

    export: str = ""
    """Folder of `envbuild export MANIFEST --to verifiers`."""
    manifest: str = ""
    """Manifest folder; empty: $ENVBUILD_MANIFEST."""
    rerun_golds: bool = False
    """Judge by golds run here, each once, not by those in the manifest."""
    split: str = "train"


class EpisodeTaskset(vf.Taskset[EpisodeTask, EpisodeTasksetConfig]):  # type: ignore[misc]  # as above
    """The exported rows, in schedule order."""

    def load(self) -> Iterator[EpisodeTask]:
        """Streams the export."""
        file = open_parquet(Path(self.config.export, f"{self.config.split}.parquet"))
        for batch in file.iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                asked = EpisodeRow(
                    name=row["name"],
                    prompt=row["prompt"],
                    env_json=row["env_json"],
                    manifest=self.config.manifest,
                    rerun_golds=self.config.rerun_golds,
                )
                yield EpisodeTask(asked, self.config.task)


class EpisodeHarnessConfig(vf.HarnessConfig):  # type: ignore[misc]  # as above
    """The harness needs no program, so nothing is configured.

    verifiers imports a plug-in by one undotted name: pipelines/trainers/verifiers has the module.
    """

    id: str = "envbuild_verifiers"


class EpisodeHarness(vf.Harness[EpisodeHarnessConfig]):  # type: ignore[misc]  # as above
    """Plays an episode in this process; every completion comes from verifiers' endpoint."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: EpisodeRow,
        **_: Any,
    ) -> Any:
        """Plays the task's episode to its end and leaves the outcome in `trace.info`."""
        env = shared_trainer_env(data.manifest or None, rerun_golds=data.rerun_golds)
        spec = EpisodeSpec.from_json(data.env_json)
        episode = await asyncio.to_thread(env.start_text, spec, candidate=candidate_number(None))
        try:
            await _converse(episode, model=ctx.model, endpoint=endpoint, secret=secret)
            (scored,) = await asyncio.to_thread(env.finish_alone, [episode])
        finally:
            episode.close()
        trace.info[RESULT] = {
            **msgspec.to_builtins(scored.breakdown),
            "ended_by": str(scored.episode.ended_by),
            "sql": scored.episode.sql,
            "group_seen": scored.group_seen,
            "metrics": metrics(scored),
        }
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


async def _converse(episode: TextEpisode, *, model: str, endpoint: str, secret: str) -> None:
    """Chat messages to and fro until the episode asks for nothing more.

    A server that splits thinking off (`reasoning_content`) gets it back in the next request, and
    the episode's record has it in its place.
    """
    messages: list[dict[str, Any]] = list(episode.messages)
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(timeout=None, headers=headers) as client:
        while (request := episode.next_request()) is not None:
            answer = await client.post(
                f"{endpoint.rstrip('/')}/chat/completions",
                json={
                    "model": model,
                    "messages": messages,
                    "max_tokens": request.max_new_tokens,
                    "stop": list(request.stop),
                },
            )
            answer.raise_for_status()
            choice = answer.json()["choices"][0]
            message = choice["message"]
            thought, content = message.get("reasoning_content"), message.get("content") or ""
            completion = f"<think>\n{thought}\n</think>\n\n{content}" if thought else content
            observation = await asyncio.to_thread(
                episode.feed, completion, truncated=choice.get("finish_reason") == "length"
            )
            messages.append({"role": "assistant", "content": content})
            if thought:
                messages[-1]["reasoning_content"] = thought
            messages.append({"role": "user", "content": observation})
