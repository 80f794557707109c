"""Messages as one prompt string, tokenizers, where a turn stops, and tokens counted."""

import bisect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from envbuild.env.parse import OPEN
from envbuild.records.episode import ChatFormat

# Messages as one prompt string, and a tokenizer as a small protocol.
#
# The string grows by what was sampled and by what the environment says; nothing is ever rendered
# again, so that `<think>` blocks stay. Text that comes from outside (a question, a cell) cannot
# forge a delimiter: where it holds one, a blank breaks it up.


class Tokenizer(Protocol):
    """What token episodes need: text to ids and back, delimiters as single ids, nothing added."""

    def encode(self, text: str) -> Sequence[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class HubTokenizer:
    """A Hugging Face tokenizer as a `Tokenizer`; no import of transformers is needed here."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without any token that the tokenizer would add by itself."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, delimiters and `<think>` included."""
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text


def render_prompt(chat: ChatFormat, *, system: str, user: str) -> str:
    """The episode's first context: system and user message, and the assistant's opened."""
    return (
        _message(chat, chat.system_role, system)
        + _message(chat, chat.user_role, user)
        + _opening(chat)
    )


def render_observation(chat: ChatFormat, observation: str) -> str:
    """What follows a closed completion: the observation as a user message, the next turn opened."""
    return "\n" + _message(chat, chat.user_role, observation) + _opening(chat)


def opens_thinking(chat: ChatFormat) -> bool:
    """Whether an assistant's message starts inside its `<think>` block."""
    return chat.assistant_opening.strip().endswith(OPEN)


def cut_at_stop(chat: ChatFormat, completion: str) -> tuple[str, str]:
    """The completion up to its first stop text, and that stop text (empty where none was written).

    What a policy writes behind the end of its own message is no part of its turn.
    """
    found = [(at, stop) for stop in chat.stop if (at := completion.find(stop)) >= 0]
    if not found:
        return completion, ""
    at, stop = min(found)
    return completion[:at], stop


def without_delimiters(chat: ChatFormat, text: str) -> str:
    """`text` with a blank in each delimiter it holds, so that it cannot end or open a message."""
    for delimiter in (chat.message_start, chat.message_end, chat.end_of_text):
        if delimiter and delimiter in text:
            text = text.replace(delimiter, f"{delimiter[0]} {delimiter[1:]}")
    return text


def _message(chat: ChatFormat, role: str, content: str) -> str:
    safe = without_delimiters(chat, content)
    return f"{chat.message_start}{role}\n{safe}{chat.message_end}\n"


def _opening(chat: ChatFormat) -> str:
    return f"{chat.message_start}{chat.assistant_role}\n{chat.assistant_opening}"


# Where a sampled turn ends: at its first stop text, in ids as in text.
#
# A stop text that is a token of its own is found by its id. One that is spelled in several tokens
# is found in what they say, and the ids are cut where that is cut: what stands behind it, such as
# a forged next message, is no part of the turn, of its mask or of the next context.


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


# Tokens of a text where no ids are at hand: counted by a tokenizer or a callable, else estimated.
#
# Text episodes keep the token limits that token episodes keep: what is past a limit is cut off,
# by the best count there is.


CHARACTERS_A_TOKEN = 4
"""The estimate where nobody counts tokens."""
MAX_CHARACTERS_PER_TOKEN = 16
"""More than any tokenizer packs into the tokens of prose or SQL: an estimate cuts nothing shorter,
or it would take the call from the end of a long thought."""


class TokenCounter(Protocol):
    """What a text episode asks about a text."""

    def count(self, text: str) -> int: ...

    def cut(self, text: str, tokens: int) -> str: ...


class IdCounter:
    """By a tokenizer: a text is cut between the ids it has, as a token episode cuts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def count(self, text: str) -> int:
        """The ids of `text`."""
        return len(self._tokenizer.encode(text))

    def cut(self, text: str, tokens: int) -> str:
        """The text of the first `tokens` ids."""
        return self._tokenizer.decode(self._tokenizer.encode(text)[:tokens])


class CallCounter:
    """By a callable from a text to its number of tokens."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count

    def count(self, text: str) -> int:
        """The callable's own figure."""
        return self._count(text)

    def cut(self, text: str, tokens: int) -> str:
        """The longest beginning that has at most `tokens`, where more text never has fewer."""
        lengths = range(len(text) + 1)
        longer = bisect.bisect_right(lengths, tokens, key=lambda k: self._count(text[:k]))
        return text[: max(0, longer - 1)]


def estimate_tokens(text: str) -> int:
    """One token for every four characters, rounded up."""
    return -(-len(text) // CHARACTERS_A_TOKEN)
