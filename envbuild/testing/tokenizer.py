"""A tokenizer without a vocabulary file: every byte is a token, every delimiter one more."""

import re
from collections.abc import Sequence

from envbuild.records.episode import ChatFormat

QWEN = ChatFormat()


class ByteTokenizer:
    """A `Tokenizer` for episodes: ids 0-255 are bytes, delimiters and `<think>` follow."""

    def __init__(self, chat: ChatFormat = QWEN, *, more: Sequence[str] = ()) -> None:
        delimiters = (chat.message_start, chat.message_end, chat.end_of_text)
        self.delimiters = (*delimiters, "<think>", "</think>", *more)
        self._ids = {text: 256 + place for place, text in enumerate(self.delimiters)}
        self._split = re.compile("(" + "|".join(map(re.escape, self.delimiters)) + ")")

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; a lone surrogate becomes a question mark."""
        ids: list[int] = []
        for part in self._split.split(text):
            if part in self._ids:
                ids.append(self._ids[part])
            else:
                ids += part.encode("utf-8", "replace")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        parts: list[str] = []
        run = bytearray()
        for token in ids:
            if token < 256:
                run.append(token)
                continue
            parts += (run.decode("utf-8", "replace"), self.delimiters[token - 256])
            run.clear()
        return "".join((*parts, run.decode("utf-8", "replace")))
