"""Messages as one prompt string, and a tokenizer as a small protocol.

The string grows by what was sampled and by what the environment says; nothing is ever rendered
again, so that `<think>` blocks stay. Text that comes from outside (a question, a cell) cannot
forge a delimiter: where it holds one, a blank breaks it up.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from envbuild.episode.parse import OPEN
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
