"""One episode over text: the prompt string grows, each completion is the model's own text."""

from collections.abc import Callable
from typing import Any, NamedTuple

from envbuild.episode.chat import Tokenizer, cut_at_stop, render_observation
from envbuild.episode.counting import (
    MAX_CHARACTERS_PER_TOKEN,
    CallCounter,
    IdCounter,
    TokenCounter,
    estimate_tokens,
)
from envbuild.episode.database import EpisodeDatabase
from envbuild.episode.render import storable
from envbuild.episode.running import RunningEpisode
from envbuild.errors import StateError
from envbuild.records.episode import EndedBy, Task, TextRequest


class TextEpisode(RunningEpisode):
    """`next_request()` says what to sample, `feed()` takes it, until there is no request.

    The limits on tokens hold as in a token episode: a completion past its request's
    `max_new_tokens` is cut there, and the turn marked `truncated`. Tokens are those that the server
    reports to `feed`; without its figures `tokenizer` or `count_tokens` counts them; without these
    they are estimated at four characters a token: that bounds an episode in any case, and cuts only
    what no tokenizer could fit (16 characters a token).
    """

    def __init__(
        self,
        task: Task,
        database: EpisodeDatabase,
        *,
        tokenizer: Tokenizer | None = None,
        count_tokens: Callable[[str], int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(task, database, **options)
        self.context = self.prompt
        """The prompt string and everything after it."""
        self._counter: TokenCounter = (
            CallCounter(count_tokens or estimate_tokens)
            if tokenizer is None or count_tokens is not None
            else IdCounter(tokenizer)
        )
        self._counted = tokenizer is not None or count_tokens is not None
        self._spent = 0
        self._prompt_tokens: int | None = None

    def next_request(self) -> TextRequest | None:
        """The next completion wanted; None when the episode is over."""
        if self.over:
            return None
        return TextRequest(
            context=self.context,
            max_new_tokens=self._most_tokens(),
            stop=self.chat.stop,
            kind=self.machine.kind,
            episode_id=self.episode_id,
            turn=len(self.machine.turns),
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

        `completion` may end in a stop text or not; what stands behind one, or past the request's
        limit, is dropped. `context_tokens` and `completion_tokens` are the server's own figures.
        `truncated` says that the token limit was hit. Raises StateError after the end.
        """
        if self.over:
            raise StateError("the episode is over: reset before another step")
        text, stop = cut_at_stop(self.chat, storable(completion))
        sampled = self._sampled(text, stop, self._most_tokens(), completion_tokens)
        truncated = truncated or sampled.cut
        text = sampled.text
        if context_tokens is not None:
            if self._prompt_tokens is None:
                self._prompt_tokens = context_tokens
            self._spent = context_tokens - self._prompt_tokens
        self._spent += sampled.tokens
        observation = self.machine.take(text, tokens=sampled.tokens, truncated=truncated)
        self.context += text
        if self.over:
            return ""
        rendered = render_observation(self.chat, observation)
        shown = self.chat.message_end + rendered
        tokens = self._counter.count(rendered if sampled.closed else shown)
        if self._spent + tokens >= self.settings.episode_tokens:
            self.machine.stop(EndedBy.TOKEN_BUDGET)
            return ""
        self._spent += tokens
        self.context += shown
        return observation

    def _most_tokens(self) -> int:
        return min(self.machine.turn_tokens, self.settings.episode_tokens - self._spent)

    def _sampled(self, text: str, stop: str, most: int, reported: int | None) -> "_Sampled":
        """What was sampled of a turn, by the same rules that a token episode has for ids."""
        counter = self._counter
        if reported is not None:
            if reported <= most:
                return _Sampled(text, reported)
            kept = (
                counter.cut(text, most) if self._counted else text[: len(text) * most // reported]
            )
            return _Sampled(kept, most, cut=True)
        tokens = counter.count(text)
        if not self._counted:
            kept = text[: most * MAX_CHARACTERS_PER_TOKEN]
            return _Sampled(kept, min(tokens, most), cut=len(kept) < len(text))
        if tokens >= most:
            return _Sampled(counter.cut(text, most) if tokens > most else text, most, cut=True)
        closed = stop == self.chat.message_end
        return _Sampled(text, tokens + (counter.count(stop) if stop else 0), closed=closed)


class _Sampled(NamedTuple):
    """A completion within its limit."""

    text: str
    tokens: int
    cut: bool = False
    """It reached its limit before it ended."""
    closed: bool = False
    """The end of the message is among its tokens."""
