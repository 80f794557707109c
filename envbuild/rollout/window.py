"""What a server says when a request does not fit its context window.

The status is 400 (413 from some gateways) and the figures stand in the sentence, which each server
words in its own way: read off vLLM, SGLang and llama.cpp.
"""

import re

import msgspec

_STATUSES = frozenset((400, 413))
_WINDOW = re.compile(
    r"(?:maximum context length (?:is|of)|context length \(|available context size \("
    r"|max_model_len=)\s*(\d{1,9})"
)
_PROMPT = re.compile(
    r"\b(\d{1,9}) (?:tokens )?(?:in the (?:prompt|messages|input)|from the input|input tokens)"
    r"|(?:prompt is|input \(|request \()\s*(\d{1,9}) tokens"
)


class Overflow(msgspec.Struct, frozen=True, kw_only=True):
    """A request that did not fit."""

    window: int
    """Tokens that prompt and completion may have together."""
    prompt: int | None
    """The prompt's tokens (at least); None where the server does not say."""

    def shorter(self, limit: int) -> int:
        """A token limit below `limit` that may fit; 0 where the prompt leaves no room."""
        if self.prompt is not None:
            room = self.window - self.prompt
        elif limit >= self.window:
            room = self.window - 1
        else:
            room = limit // 2
        return max(0, min(room, limit - 1))


def read_overflow(status: int, text: str) -> Overflow | None:
    """The overflow that an answer reports; None where it says something else."""
    window = _WINDOW.search(text) if status in _STATUSES else None
    if window is None:
        return None
    prompt = _PROMPT.search(text)
    tokens = int(prompt[1] or prompt[2]) if prompt else None
    return Overflow(window=int(window[1]), prompt=tokens)
