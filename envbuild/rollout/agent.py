"""An agent over the user's own databases: one engine that answers many questions.

agent = Agent(generate)
episode = agent.run("How many orders did Ann make?", "shop.sqlite")
print(episode.sql)
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from envbuild.episode.presets import load_preset
from envbuild.episode.prompts import Prompts, load_prompts
from envbuild.episode.text_episode import TextEpisode
from envbuild.episode.views import open_database
from envbuild.errors import StateError
from envbuild.records.episode import Episode, EpisodeSettings, Task, TextRequest
from envbuild.records.execution import Limits
from envbuild.rollout.unanswered import end_unanswered
from envbuild.sql.executor import DEFAULT_LIMITS

Generate = Callable[[list[str]], list[str]]
"""Prompt strings to completions, one each, in order. It may have a method `complete_all` that
takes the requests themselves, with token limits and stop texts, and may return an exception for
one that cannot be had; that one is preferred."""
OnAgentTurn = Callable[[int, TextRequest, str, str], None]
"""(position of the question, request, completion, observation), after each turn."""


class Agent:
    """Questions over SQLite files, answered in the episode protocol; files are never written."""

    def __init__(
        self,
        generate: Generate,
        *,
        settings: EpisodeSettings | None = None,
        prompts: Prompts | None = None,
        limits: Limits = DEFAULT_LIMITS,
        policy: str = "",
    ) -> None:
        """`settings` default to the published ones at evaluation: no submit gate."""
        self.generate = generate
        self.settings = settings or load_preset("default", evaluation=True)
        self.prompts = prompts or load_prompts()
        self.limits = limits
        self.policy = policy

    def run(
        self,
        question: str,
        database: str | Path,
        *,
        evidence: str = "",
        on_turn: OnAgentTurn | None = None,
    ) -> Episode:
        """The episode of one question: `sql`, `ended_by`, turns.

        Raises SourceError where `database` is no SQLite file.
        """
        return self.run_many([(question, database)], evidence=[evidence], on_turn=on_turn)[0]

    def run_many(
        self,
        asked: Sequence[tuple[str, str | Path]],
        *,
        evidence: Sequence[str] = (),
        on_turn: OnAgentTurn | None = None,
    ) -> list[Episode]:
        """One episode a (question, database), all turns of a round in one call of `generate`.

        Raises SourceError where a database is no SQLite file, StateError where `generate` returns
        another number of completions than it was given prompts.
        """
        notes = evidence or [""] * len(asked)
        episodes = [
            self._open(question, Path(database), note, place)
            for place, ((question, database), note) in enumerate(zip(asked, notes, strict=True))
        ]
        try:
            while open_now := [
                (place, request)
                for place, episode in enumerate(episodes)
                if (request := episode.next_request()) is not None
            ]:
                texts = self._generate([request for _, request in open_now])
                for (place, request), text in zip(open_now, texts, strict=True):
                    if isinstance(text, Exception):
                        end_unanswered(episodes[place], text)
                        continue
                    observation = episodes[place].feed(text)
                    if on_turn:
                        on_turn(place, request, text, observation)
            return [episode.record() for episode in episodes]
        finally:
            for episode in episodes:
                episode.close()

    def _open(self, question: str, database: Path, evidence: str, place: int) -> TextEpisode:
        return TextEpisode(
            Task(question=question, evidence=evidence, row_id=f"{database.stem}/{place}"),
            open_database(database, limits=self.limits),
            settings=self.settings,
            prompts=self.prompts,
            policy=self.policy,
        )

    def _generate(self, requests: list[TextRequest]) -> list[str | Exception]:
        complete_all = getattr(self.generate, "complete_all", None)
        if complete_all is not None:
            texts: list[str | Exception] = list(complete_all(requests))
        else:
            texts = list(self.generate([request.context for request in requests]))
        if len(texts) != len(requests):
            raise StateError(f"generate gave {len(texts)} completions for {len(requests)} prompts")
        return texts
