"""Where a sampled turn ends: at its first stop text, in ids as in text.

A stop text that is a token of its own is found by its id. One that is spelled in several tokens
is found in what they say, and the ids are cut where that is cut: what stands behind it, such as a
forged next message, is no part of the turn, of its mask or of the next context.
"""

import bisect
from collections.abc import Sequence

import msgspec

from envbuild.episode.chat import Tokenizer, cut_at_stop
from envbuild.records.episode import ChatFormat


class SampledTurn(msgspec.Struct, frozen=True):
    """One turn's ids up to its end, and what they say."""

    ids: tuple[int, ...]
    """The first of the sampled ids, the stop's own included where it stands in whole tokens."""
    text: str
    """What they say before the stop."""
    stopped: bool
    """A stop text ended the turn."""
    closed: bool = False
    """The ids end in the text that ends a message: nobody has to add it."""


class TurnCutter:
    """Cuts turns for one chat format and tokenizer."""

    def __init__(self, chat: ChatFormat, tokenizer: Tokenizer) -> None:
        self._chat = chat
        self._tokenizer = tokenizer
        encoded = [(stop, tuple(tokenizer.encode(stop))) for stop in chat.stop]
        self._by_id = {ids[0]: stop for stop, ids in encoded if len(ids) == 1}

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The stop texts that are one token each."""
        return tuple(self._by_id)

    def cut(self, ids: Sequence[int]) -> SampledTurn:
        """The turn that these sampled ids begin with."""
        end = next((at for at, token in enumerate(ids) if token in self._by_id), len(ids))
        spoken, stop = ids[:end], self._by_id.get(ids[end], "") if end < len(ids) else ""
        text = self._tokenizer.decode(spoken)
        if cut_at_stop(self._chat, text)[1]:
            return self._cut_spelled(spoken)
        return SampledTurn(
            tuple(ids[: end + 1]),
            text,
            stopped=bool(stop),
            closed=bool(stop) and stop == self._chat.message_end,
        )

    def _cut_spelled(self, ids: Sequence[int]) -> SampledTurn:
        """The turn up to a stop text in several tokens, which stays where it is whole tokens.

        It goes where it is no way to write that stop (there is one id for it), and where its last
        token says more: then a token that began before the stop goes with it.
        """

        def said(count: int) -> str:
            return self._tokenizer.decode(ids[:count])

        counts = range(len(ids) + 1)
        count = bisect.bisect_left(
            counts, True, key=lambda k: bool(cut_at_stop(self._chat, said(k))[1])
        )
        before, stop = cut_at_stop(self._chat, said(count))
        if said(count) == before + stop and stop not in self._by_id.values():
            closed = stop == self._chat.message_end
            return SampledTurn(tuple(ids[:count]), before, stopped=True, closed=closed)
        while count and not before.startswith(said(count)):
            count -= 1
        return SampledTurn(tuple(ids[:count]), said(count), stopped=True)
