"""Tokens of a text where no ids are at hand: counted by a tokenizer or a callable, else estimated.

Text episodes keep the token limits that token episodes keep: what is past a limit is cut off, by
the best count there is.
"""

import bisect
from collections.abc import Callable
from typing import Protocol

from envbuild.episode.chat import Tokenizer

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
