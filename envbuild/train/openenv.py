"""OpenEnv: the environment as an HTTP and WebSocket server (openenv 0.10).

A client resets with `row_id`, or `split` and `index`, sends completions and reads observations;
the reward comes with the last one. A session sees one episode, never its group.
"""

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from envbuild.env.episode import TextEpisode
from envbuild.errors import MissingDependencyError, OutputError, StateError
from envbuild.train.trainer_env import NAME, EpisodeSpec, TrainerEnv, candidate_number

try:
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State
    from pydantic import Field
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the OpenEnv server", str(e.name), "pip install '.[openenv]' in a checkout"
    ) from e


class Completion(Action):  # type: ignore[misc]  # openenv is absent where types are checked
    """A completion as sampled, its `<think>` block included."""

    text: str


class Shown(Observation):  # type: ignore[misc]  # as above
    """What the policy is shown: the opening messages after a reset, then one observation a step."""

    messages: list[dict[str, str]] = Field(default_factory=list)
    """After a reset: the system and the user message."""
    text: str = ""
    """After a step: the observation; empty when the episode is over."""
    kind: str = "tool"
    """What the next completion is for: `tool` or `final`."""
    max_new_tokens: int = 0
    """How long the next completion may be."""
    ended_by: str = ""
    breakdown: dict[str, Any] = Field(default_factory=dict)
    """The reward's parts, after the last step."""
    group_seen: bool = False
    """The consensus bonus needs the whole group, which a session never sees."""


class EpisodeState(State):  # type: ignore[misc]  # as above
    """Where a session is."""

    row_id: str = ""


class EpisodeEnvironment(Environment):  # type: ignore[misc]  # as above
    """One session: one episode at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env: TrainerEnv) -> None:
        super().__init__()
        self.env = env
        self.episode: TextEpisode | None = None
        self._state = EpisodeState()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        *,
        row_id: str = "",
        split: str = "train",
        index: int = 0,
        candidate: int | None = None,
        step: int | None = None,
        preset: str = "default",
        **_: Any,
    ) -> Shown:
        """Opens an episode on a row, named or picked from a split.

        `step` is the training step that sets the submit gate; without one it is open. `candidate`
        is the episode's number within its group: the same number draws the same gate.
        """
        self.close()
        row_id = row_id or self.get_task(split, index)["id"]
        spec = EpisodeSpec(
            row_id=row_id,
            manifest_sha256=self.env.manifest_sha256,
            scheduled=step is not None,
            schedule_step=step or 0,
            preset=preset,
        )
        episode = self.env.start_text(spec, candidate=candidate_number(candidate))
        self.episode = episode
        self._state = EpisodeState(episode_id=episode_id, step_count=0, row_id=row_id)
        request = episode.next_request()
        return Shown(
            messages=episode.messages, max_new_tokens=request.max_new_tokens if request else 0
        )

    def step(self, action: Completion, timeout_s: float | None = None, **_: Any) -> Shown:
        """Takes a completion."""
        if self.episode is None:
            raise StateError("reset comes before step")
        text = self.episode.feed(action.text)
        self._state.step_count += 1
        request = self.episode.next_request()
        if request is not None:
            return Shown(
                text=text, kind=request.kind, max_new_tokens=request.max_new_tokens, reward=0.0
            )
        (scored,) = self.env.finish_alone([self.episode])
        self.episode = None
        return Shown(
            done=True,
            reward=scored.breakdown.reward,
            kind="final",
            ended_by=str(scored.episode.ended_by),
            breakdown=msgspec.to_builtins(scored.breakdown),
        )

    @property
    def state(self) -> EpisodeState:
        """Where the session is."""
        return self._state

    def close(self) -> None:
        """Closes an episode that was left."""
        if self.episode is not None:
            self.episode.close()
            self.episode = None

    def list_splits(self) -> list[str]:
        """The manifest's halves that hold rows."""
        return [split for split, ids in self.env.splits.items() if ids]

    def num_tasks(self, split: str) -> int:
        """Rows of a split."""
        return len(self.env.splits.get(split, ()))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """One row: its id, question and database, nothing about the answer."""
        row_id = self.env.splits.get(split, [])[index]
        row = self.env.manifest.row(row_id)
        return {"id": row_id, "index": index, "question": row.question, "db_id": row.db_id}

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """The first hundred rows of a split; `num_tasks` tells how many there are."""
        return [self.get_task(split, index) for index in range(min(100, self.num_tasks(split)))]


def make_app(manifest: Path, *, sessions: int = 256, rerun_golds: bool = False) -> Any:
    """The FastAPI application; every session has an environment of its own."""
    env = TrainerEnv(manifest, rerun_golds=rerun_golds)
    return create_fastapi_app(
        lambda: EpisodeEnvironment(env),
        Completion,
        Shown,
        max_concurrent_envs=sessions,
        env_name=NAME,
        state_cls=EpisodeState,
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes any free one.

    Raises OutputError where the port cannot be had.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as e:
        raise OutputError(
            f"cannot listen on {host}, port {port}: {e}; --port 0 takes a free one"
        ) from e


def run_server(app: Any, listening: socket.socket) -> None:
    """Serves the application until it is interrupted."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
