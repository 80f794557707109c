"""How completions are sampled, and what a server returned."""

import msgspec


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters; the defaults are the published ones of a training rollout."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    """-1: no limit."""


EVALUATION_SAMPLING = Sampling(temperature=0.6, top_p=0.95, top_k=20)
"""What the published evaluation samples with."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One completion as the server gave it."""

    text: str
    """Without the stop text."""
    completion_tokens: int | None = None
    """The server's own count; None where it gives none."""
    context_tokens: int | None = None
    truncated: bool = False
    """The token limit was hit."""
