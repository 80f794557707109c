"""What one question and a prediction for it came to on every state of a database."""

import msgspec

from envbuild.signal.score import FEWEST_MUTANTS, FEWEST_VARIANTS
from envbuild.signal.states import Policy


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One question, with one system's prediction or none, on every state of its database."""

    question_id: str
    db_id: str
    system: str
    """Whose prediction it is; empty where there is one system, or none."""
    mutants: int
    operators: tuple[str, ...]
    alive: dict[str, tuple[int, ...]]
    """State -> positions of the mutants with the gold's result; absent where the gold fails."""
    rows: dict[str, int]
    """State -> rows of the gold's result."""
    right: bool | None
    """On the full database; None without a prediction, or where it does not run."""
    equal: dict[str, bool]
    """State -> the prediction equals the gold; absent where it cannot be judged."""

    @property
    def presumed(self) -> set[int]:
        """Mutants that no state with a non-empty gold told apart, where there are enough."""
        evidence = [set(alive) for state, alive in self.alive.items() if self.rows[state]]
        if len(evidence) < FEWEST_VARIANTS:
            return set()
        return set.intersection(*evidence)

    def score(self, state: str) -> tuple[float, float] | None:
        """signal_low and signal_high on one state; None where there is no score."""
        if state not in self.alive or self.mutants < FEWEST_MUTANTS:
            return None
        killed = self.mutants - len(self.alive[state])
        judged = self.mutants - len(self.presumed)
        return killed / self.mutants, killed / judged if judged else 1.0

    def is_paid(self, policy: Policy) -> bool:
        """Equality on the visible state and on every hidden one that can be judged."""
        hidden = (self.equal[state] for state in policy.hidden if state in self.equal)
        return self.equal[policy.visible] and all(hidden)
