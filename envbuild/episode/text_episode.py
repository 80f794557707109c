"""One episode over text: the prompt string grows, each completion is the model's own text."""

from collections.abc import Callable
from typing import Any

from envbuild.episode.chat import cut_at_stop, render_observation
from envbuild.episode.database import EpisodeDatabase
from envbuild.episode.render import storable
from envbuild.episode.running import RunningEpisode
from envbuild.errors import StateError
from envbuild.records.episode import EndedBy, Task, TextRequest

CHARACTERS_A_TOKEN = 4
"""The estimate where nobody counts tokens."""


class TextEpisode(RunningEpisode):
    """`next_request()` says what to sample, `feed()` takes it, until there is no request.

    Tokens are counted by `count_tokens` where given, else as the server reports them to `feed`,
    else estimated from the characters.
    """

    def __init__(
        self,
        task: Task,
        database: EpisodeDatabase,
        *,
        count_tokens: Callable[[str], int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(task, database, **options)
        self.context = self.prompt
        """The prompt string and everything after it."""
        self._count = count_tokens or _estimate
        self._spent = 0
        self._prompt_tokens: int | None = None

    def next_request(self) -> TextRequest | None:
        """The next completion wanted; None when the episode is over."""
        if self.over:
            return None
        left = self.settings.episode_tokens - self._spent
        return TextRequest(
            context=self.context,
            max_new_tokens=min(self.machine.turn_tokens, left),
            stop=self.chat.stop,
            kind=self.machine.kind,
        )

    def feed(
        self,
        completion: str,
        *,
        completion_tokens: int | None = None,
        context_tokens: int | None = None,
        truncated: bool = False,
    ) -> str:
        """Takes what was sampled and returns the observation; empty when the episode is over.

        `completion` may end in a stop text or not; what stands behind one is dropped.
        `context_tokens` and `completion_tokens` are the server's own figures. `truncated` says that
        the token limit was hit. Raises StateError after the end.
        """
        if self.over:
            raise StateError("the episode is over: reset before another step")
        text, _ = cut_at_stop(self.chat, storable(completion))
        sampled = self._count(text) if completion_tokens is None else completion_tokens
        if context_tokens is not None:
            if self._prompt_tokens is None:
                self._prompt_tokens = context_tokens
            self._spent = context_tokens - self._prompt_tokens
        self._spent += sampled
        observation = self.machine.take(text, tokens=sampled, truncated=truncated)
        self.context += text
        if self.over:
            return ""
        shown = self.chat.message_end + render_observation(self.chat, observation)
        tokens = self._count(shown)
        if self._spent + tokens >= self.settings.episode_tokens:
            self.machine.stop(EndedBy.TOKEN_BUDGET)
            return ""
        self._spent += tokens
        self.context += shown
        return observation


def _estimate(text: str) -> int:
    return -(-len(text) // CHARACTERS_A_TOKEN)
