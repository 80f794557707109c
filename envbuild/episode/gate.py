"""The submit gate: early in training an answer must have run before it may be submitted."""

from envbuild.engine.seeds import derived_random
from envbuild.records.episode import EpisodeSettings
from envbuild.sql.text.tokens import iter_code


def gate_probability(step: int | None, settings: EpisodeSettings) -> float:
    """How likely an episode of this training step is gated: 1.0 at step 0, 0.0 from `gate_steps`.

    Without a step, and at evaluation, never.
    """
    if step is None or settings.evaluation or settings.gate_steps <= 0:
        return 0.0
    return min(1.0, max(0.0, 1.0 - step / settings.gate_steps))


def draw_gate(probability: float, *, seed: int, row_id: str, candidate: int) -> bool:
    """Whether this episode is gated: drawn once, the same on every machine."""
    return derived_random(seed, f"{row_id}/{candidate}", "submit_gate").random() < probability


def normalised(sql: str) -> tuple[str, ...]:
    """The query's tokens: equal for two texts that differ in blanks, comments and a trailing `;`.

    Blanks inside a literal or a quoted name are part of it and count.
    """
    tokens = [sql[token.start : token.end] for token in iter_code(sql)]
    while tokens and tokens[-1] == ";":
        tokens.pop()
    return tuple(tokens)
