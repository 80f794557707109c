"""NeMo Gym: a resources server whose tools are the episode's (nemo-gym 0.4, Python 3.12).

NeMo's agents call tools natively: each call is one turn of the episode, and its last message
is its final answer. A session sees one episode, never its group.
"""

import asyncio
from typing import Any

import msgspec

from envbuild.env.episode import TextEpisode
from envbuild.env.final import final_sql
from envbuild.env.parse import parse_completion
from envbuild.env.tools import tool_schemas
from envbuild.errors import MissingDependencyError
from envbuild.train.trainer_env import (
    EpisodeSpec,
    TrainerEnv,
    candidate_number,
    shared_trainer_env,
)

try:
    from fastapi import FastAPI, Request
    from fastapi.responses import PlainTextResponse
    from nemo_gym.base_resources_server import (
        BaseResourcesServerConfig,
        BaseSeedSessionRequest,
        BaseSeedSessionResponse,
        BaseVerifyRequest,
        BaseVerifyResponse,
        SimpleResourcesServer,
    )
    from nemo_gym.server_utils import SESSION_ID_KEY
    from pydantic import ConfigDict
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the NeMo Gym server", str(e.name), "pip install '.[nemo-gym]' in a checkout on Python 3.12"
    ) from e

ROLLOUT_INDEX = "_ng_rollout_index"
"""The field in which NeMo's rollout collection numbers the repeats of a row."""
OVER = "The episode is over: the answer is recorded."


class EpisodeServerConfig(BaseResourcesServerConfig):  # type: ignore[misc]  # not installed where types are checked
    """Where the manifest is."""

    manifest: str = ""
    """Manifest folder; empty: $ENVBUILD_MANIFEST."""
    rerun_golds: bool = False
    """Judge by golds run here, each once, not by those in the manifest."""


class EpisodeSeedRequest(BaseSeedSessionRequest):  # type: ignore[misc]  # as above
    """A row of the export."""

    model_config = ConfigDict(extra="allow")
    env_json: str


class EpisodeVerifyRequest(BaseVerifyRequest):  # type: ignore[misc]  # as above
    """A row of the export with the agent's response."""

    model_config = ConfigDict(extra="allow")
    env_json: str


class EpisodeVerifyResponse(BaseVerifyResponse):  # type: ignore[misc]  # as above
    """The reward and its parts."""

    model_config = ConfigDict(extra="allow")
    breakdown: dict[str, Any]
    ended_by: str
    scored: bool
    """False: the gold cannot be scored, and the reward of 0.0 says nothing."""
    group_seen: bool = False


MAX_SESSIONS = 4096
"""Episodes open at once."""


class EpisodeResourcesServer(SimpleResourcesServer):  # type: ignore[misc]  # as above
    """One episode a session."""

    config: EpisodeServerConfig

    def model_post_init(self, context: Any) -> None:
        """Keeps the sessions' episodes."""
        super().model_post_init(context)
        self._episodes: dict[str, TextEpisode] = {}

    def setup_webserver(self) -> FastAPI:
        """NeMo's routes and one a tool."""
        app = super().setup_webserver()
        for schema in tool_schemas(most_rows=100):
            name = schema["function"]["name"]
            app.post(f"/{name}", response_class=PlainTextResponse)(self._route(name))
        return app

    async def seed_session(
        self, request: Request, body: EpisodeSeedRequest
    ) -> BaseSeedSessionResponse:
        """Opens the row's episode for this session."""
        given = (body.model_extra or {}).get(ROLLOUT_INDEX)
        session = request.session[SESSION_ID_KEY]
        if (left := self._episodes.pop(session, None)) is not None:
            left.close()
        if len(self._episodes) >= MAX_SESSIONS:  # the oldest was given up by its agent
            self._episodes.pop(next(iter(self._episodes))).close()
        self._episodes[session] = await asyncio.to_thread(
            self._trainer_env().start_text,
            EpisodeSpec.from_json(body.env_json),
            candidate=candidate_number(given),
        )
        return BaseSeedSessionResponse()

    async def verify(self, request: Request, body: EpisodeVerifyRequest) -> EpisodeVerifyResponse:
        """Takes the last message as the answer where none was submitted; scores the episode."""
        episode = self._episodes.pop(request.session[SESSION_ID_KEY])
        try:
            if not episode.over:
                await asyncio.to_thread(_answer, episode, _last_message(body.response))
            (scored,) = await asyncio.to_thread(self._trainer_env().finish_alone, [episode])
        finally:
            episode.close()
        reward = scored.breakdown.reward
        return EpisodeVerifyResponse(
            **body.model_dump(),
            reward=reward or 0.0,
            scored=reward is not None,
            breakdown=msgspec.to_builtins(scored.breakdown),
            ended_by=str(scored.episode.ended_by),
        )

    def _trainer_env(self) -> TrainerEnv:
        return shared_trainer_env(self.config.manifest or None, rerun_golds=self.config.rerun_golds)

    def _route(self, name: str) -> Any:
        async def call(request: Request) -> str:
            episode = self._episodes[request.session[SESSION_ID_KEY]]
            if episode.over or episode.kind == "final":
                return OVER if episode.over else "Exploration is over: answer with your SQL."
            arguments = await request.json()
            completion = msgspec.json.encode({"tool": name, "args": arguments}).decode()
            return await asyncio.to_thread(episode.feed, completion) or OVER

        return call


def _answer(episode: TextEpisode, message: str) -> None:
    """Ends an episode with the agent's last message: its SQL is submitted; without any the
    message is repeated until the turns are used up."""
    sql = final_sql(parse_completion(message))
    if sql and episode.kind == "tool":
        episode.feed(msgspec.json.encode({"tool": "submit_sql", "args": {"sql": sql}}).decode())
    while not episode.over:
        episode.feed(message)


def _last_message(response: Any) -> str:
    """The text of the last message of a Responses-API answer."""
    for output in reversed(response.output):
        if output.type == "message":
            return "".join(part.text for part in output.content if part.type == "output_text")
    return ""
