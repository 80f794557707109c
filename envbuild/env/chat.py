"""Messages as one prompt string, tokenizers as a small protocol, and where a sampled turn stops.

The string grows by what was sampled and by what the environment says; nothing is ever rendered
again, so that `<think>` blocks stay. Text that comes from outside (a question, a cell) cannot
forge a delimiter: where it holds one, a blank breaks it up.
"""

import bisect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from envbuild.env.parse import OPEN
from envbuild.records.episode import ChatFormat


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
    opened = _message(chat, chat.system_role, system) + _message(chat, chat.user_role, user)
    return opened + _opening(chat)


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


def _message(chat: ChatFormat, role: str, content: str) -> str:
    for delimiter in filter(None, (chat.message_start, chat.message_end, chat.end_of_text)):
        content = content.replace(delimiter, f"{delimiter[0]} {delimiter[1:]}")
    return f"{chat.message_start}{role}\n{content}{chat.message_end}\n"


def _opening(chat: ChatFormat) -> str:
    return f"{chat.message_start}{chat.assistant_role}\n{chat.assistant_opening}"


class SampledTurn(msgspec.Struct, frozen=True):
    """One turn's ids up to its end, and what they say."""

    ids: tuple[int, ...]
    """The first of the sampled ids, the stop's own included where it stands in whole tokens."""
    text: str
    """What they say before the stop."""
    stopped: bool
    """A stop text ended the turn."""
    closed: bool
    """The ids end in the text that ends a message: nobody has to add it."""


def stops_by_id(chat: ChatFormat, tokenizer: Tokenizer) -> dict[int, str]:
    """The stop texts that are one token each, by their ids."""
    encoded = [(stop, tokenizer.encode(stop)) for stop in chat.stop]
    return {ids[0]: stop for stop, ids in encoded if len(ids) == 1}


def cut_turn(
    ids: Sequence[int], *, chat: ChatFormat, tokenizer: Tokenizer, stops: Mapping[int, str]
) -> SampledTurn:
    """The turn that these sampled ids begin with, up to its first stop text; see `stops_by_id`.

    A stop text that is a token of its own is found by its id. One that is spelled in several tokens
    is found in what they say, and the ids are cut where that is cut: what stands behind it, such as
    a forged next message, is no part of the turn, of its mask or of the next context. The spelled
    stop itself stays where it is whole tokens. It goes where there is one id for it, and where its
    last token says more: then a token that began before the stop goes with it.
    """

    def said(count: int) -> str:
        return tokenizer.decode(ids[:count])

    end = next((at for at, token in enumerate(ids) if token in stops), len(ids))
    if not cut_at_stop(chat, said(end))[1]:
        stop = stops[ids[end]] if end < len(ids) else ""
        closed = stop != "" and stop == chat.message_end
        return SampledTurn(tuple(ids[: end + 1]), said(end), stopped=stop != "", closed=closed)
    counts = range(end + 1)
    count = bisect.bisect_left(counts, True, key=lambda k: bool(cut_at_stop(chat, said(k))[1]))
    text, stop = cut_at_stop(chat, said(count))
    if said(count) == text + stop and stop not in stops.values():
        closed = stop == chat.message_end
        return SampledTurn(tuple(ids[:count]), text, stopped=True, closed=closed)
    while count and not text.startswith(said(count)):
        count -= 1
    return SampledTurn(tuple(ids[:count]), said(count), stopped=True, closed=False)
