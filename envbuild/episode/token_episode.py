"""One episode over token ids: the ids as sampled are the record, and nothing is rendered again."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from envbuild.episode.chat import Tokenizer, render_observation
from envbuild.episode.database import EpisodeDatabase
from envbuild.episode.running import RunningEpisode
from envbuild.episode.stops import TurnCutter
from envbuild.errors import StateError
from envbuild.records.episode import EndedBy, Episode, Task, TokenRequest


class TokenEpisode(RunningEpisode):
    """`next_request()` says what to sample, `feed()` takes the ids, until there is no request.

    `response_ids` is everything after the prompt, `response_mask` 1 for sampled ids and 0 for the
    environment's, `response_logprobs` as long as these, or empty where a turn came without. A
    sampled id whose log-probability is None or not finite has mask 0, since no ratio can be taken
    for it; `unknown_logprobs` counts them.
    """

    def __init__(
        self, task: Task, database: EpisodeDatabase, *, tokenizer: Tokenizer, **options: Any
    ) -> None:
        super().__init__(task, database, **options)
        self.tokenizer = tokenizer
        self.prompt_ids: tuple[int, ...] = tuple(tokenizer.encode(self.prompt))
        self.response_ids: list[int] = []
        self.response_mask: list[int] = []
        self.response_logprobs: list[float] = []
        self.unknown_logprobs = 0
        self._has_logprobs = True
        self._cutter = TurnCutter(self.chat, tokenizer)
        self.stop_ids = self._cutter.stop_ids
        """The stop texts that are one token each."""

    def next_request(self) -> TokenRequest | None:
        """The next completion wanted; None when the episode is over."""
        if self.over:
            return None
        return TokenRequest(
            context=(*self.prompt_ids, *self.response_ids),
            max_new_tokens=self._most_tokens(),
            stop=self.chat.stop,
            stop_ids=self.stop_ids,
            kind=self.machine.kind,
        )

    def feed(self, ids: Sequence[int], logprobs: Sequence[float | None] | None = None) -> str:
        """Takes the sampled ids and returns the observation; empty when the episode is over.

        Both may be any sequence of numbers, an array too. `ids` may end in a stop text or not; what
        stands behind one, or past the request's limit, is dropped from the ids as from the text.
        Raises StateError after the end, or where logprobs and ids differ in number.
        """
        if self.over:
            raise StateError("the episode is over: reset before another step")
        if logprobs is not None and len(logprobs) != len(ids):
            raise StateError(f"{len(logprobs)} log-probabilities for {len(ids)} tokens")
        most = self._most_tokens()
        turn = self._cutter.cut([int(token) for token in ids[:most]])
        kept = len(turn.ids)
        self._append_sampled(turn.ids, None if logprobs is None else logprobs[:kept])
        truncated = kept == most and not turn.stopped
        observation = self.machine.take(turn.text, tokens=kept, truncated=truncated)
        if self.over:
            return ""
        shown = render_observation(self.chat, observation)
        added = self.tokenizer.encode(shown if turn.closed else self.chat.message_end + shown)
        if len(self.response_ids) + len(added) >= self.settings.episode_tokens:
            self.machine.stop(EndedBy.TOKEN_BUDGET)
            return ""
        self._append(added, [0] * len(added), [0.0] * len(added))
        return observation

    def record(self) -> Episode:
        """The finished episode with its ids. Raises StateError before its end."""
        return msgspec.structs.replace(
            super().record(),
            prompt_ids=self.prompt_ids,
            response_ids=tuple(self.response_ids),
            response_mask=tuple(self.response_mask),
            response_logprobs=tuple(self.response_logprobs) if self._has_logprobs else (),
            unknown_logprobs=self.unknown_logprobs,
        )

    def _most_tokens(self) -> int:
        left = self.settings.episode_tokens - len(self.response_ids)
        return min(self.machine.turn_tokens, left)

    def _append_sampled(self, ids: Sequence[int], logprobs: Sequence[float | None] | None) -> None:
        if logprobs is None:
            self._has_logprobs = False
            self._append(ids, [1] * len(ids), [0.0] * len(ids))
            return
        given = [math.nan if logprob is None else float(logprob) for logprob in logprobs]
        known = [math.isfinite(logprob) for logprob in given]
        self.unknown_logprobs += known.count(False)
        pairs = zip(given, known, strict=True)
        self._append(ids, [int(k) for k in known], [p if k else 0.0 for p, k in pairs])

    def _append(self, ids: Sequence[int], mask: Sequence[int], logprobs: Sequence[float]) -> None:
        self.response_ids += ids
        self.response_mask += mask
        self.response_logprobs += logprobs
