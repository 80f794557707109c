"""An agent over the user's own databases: one engine that answers many questions.

agent = Agent(generate)  # a callable from prompts, and their token limits, to completions
episode = agent.run("How many orders did Ann make?", "shop.sqlite")
print(episode.sql)
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, cast

from envbuild.env.chat import Tokenizer
from envbuild.env.client import record_generation_failure
from envbuild.env.episode import TextEpisode
from envbuild.env.prompts import Prompts, load_preset, load_prompts
from envbuild.env.views import open_database
from envbuild.errors import StateError
from envbuild.records.episode import Completion, Episode, EpisodeSettings, Task, TextRequest

Generate = Callable[..., list[str]]
"""Prompt strings to completions, one each, in order; see `Agent`."""


class Engine(Protocol):
    """What takes the requests themselves, with their token limits and stop texts."""

    def complete_all(
        self, requests: Sequence[TextRequest]
    ) -> Sequence[str | Completion | Exception]:
        """One each, in order: a `Completion` has its tokens counted, a text has them estimated, and
        an exception says why there is none."""


OnAgentTurn = Callable[[int, TextRequest, str, str], None]
"""(position of the question, request, completion, observation), after each turn."""


class Agent:
    """Questions over SQLite files, answered in the episode protocol; files are never written."""

    def __init__(
        self,
        generate: Generate | Engine,
        *,
        settings: EpisodeSettings | None = None,
        prompts: Prompts | None = None,
        policy: str = "",
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """`settings` default to the published ones at evaluation: no submit gate.

        A `generate` with an argument `max_new_tokens` gets each prompt's token limit there; of one
        that is an engine, `complete_all` is called.
        Completions past their limit are cut: counted by `tokenizer`, unless the engine counts them
        itself; without either an estimate bounds the episode (`TextEpisode`).
        """
        self.generate = generate
        self.tokenizer = tokenizer
        self.settings = settings or load_preset("default", evaluation=True)
        self.prompts = prompts or load_prompts()
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
        anything but a completion for each prompt.
        """
        episodes = [
            TextEpisode(
                Task(question=question, evidence=note, row_id=f"{Path(database).stem}/{place}"),
                open_database(Path(database)),
                settings=self.settings,
                prompts=self.prompts,
                policy=self.policy,
                tokenizer=self.tokenizer,
            )
            for place, ((question, database), note) in enumerate(
                zip(asked, evidence or [""] * len(asked), strict=True)
            )
        ]
        try:
            while open_now := [
                (place, request)
                for place, episode in enumerate(episodes)
                if (request := episode.next_request()) is not None
            ]:
                answers = self._generate([request for _, request in open_now])
                for (place, request), found in zip(open_now, answers, strict=True):
                    if isinstance(found, Exception):
                        record_generation_failure(episodes[place], found)
                        continue
                    observation = episodes[place].feed_completion(found)
                    if on_turn:
                        on_turn(place, request, found.text, observation)
            return [episode.record() for episode in episodes]
        finally:
            for episode in episodes:
                episode.close()

    def _generate(self, requests: list[TextRequest]) -> list[Completion | Exception]:
        complete_all = getattr(self.generate, "complete_all", None)
        returned: object
        if complete_all is not None:
            returned = complete_all(requests)
        else:
            generate = cast(Generate, self.generate)
            prompts = [request.context for request in requests]
            limits = {"max_new_tokens": [request.max_new_tokens for request in requests]}
            returned = generate(prompts, **(limits if _takes_limits(generate) else {}))
        if isinstance(returned, str) or not isinstance(returned, Iterable):
            raise StateError(
                f"generate gave a {type(returned).__name__}, not a list of completions: it takes "
                "a list of prompts and returns a list of texts, one a prompt"
            )
        answers = [Completion(text=one) if isinstance(one, str) else one for one in returned]
        if len(answers) != len(requests):
            raise StateError(
                f"generate gave {len(answers)} completions for {len(requests)} prompts"
            )
        if strange := [one for one in answers if not isinstance(one, Completion | Exception)]:
            raise StateError(f"generate gave a {type(strange[0]).__name__} as a completion")
        return answers


def _takes_limits(generate: Callable[..., object]) -> bool:
    try:
        return "max_new_tokens" in inspect.signature(generate).parameters
    except (TypeError, ValueError):  # built in, without a signature
        return False
