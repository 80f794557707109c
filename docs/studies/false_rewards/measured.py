"""What one question and a prediction for it came to on every state of a database."""

import msgspec

from envbuild.signal.score import MIN_MUTANTS, presumed_equivalents
from false_rewards.states import Policy, independent_states

INDEPENDENT = independent_states()


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

    def presumed(self, state: str) -> frozenset[int]:
        """Mutants alive on a state that are presumed equivalent.

        Evidence are the other independent states on which the gold has rows, as in a preflight.
        Cuts are none, but what one of them tells apart is not equivalent.
        """
        others = {
            one: alive for one, alive in self.alive.items() if one != state and self.rows[one]
        }
        evidence = [alive for one, alive in others.items() if one in INDEPENDENT]
        presumed = presumed_equivalents(self.alive[state], evidence)
        return presumed.intersection(*others.values())

    @property
    def fillings(self) -> int:
        """Independent states on which the gold has rows."""
        return sum(bool(self.rows.get(state)) for state in INDEPENDENT)

    def score(self, state: str) -> tuple[float, float] | None:
        """signal_low and signal_high on one state; None where there is no score.

        Without the evidence for an upper end both are the lower one.
        """
        if state not in self.alive or self.mutants < MIN_MUTANTS:
            return None
        killed = self.mutants - len(self.alive[state])
        judged = self.mutants - len(self.presumed(state))
        return killed / self.mutants, killed / judged if judged else 1.0

    def is_paid(self, policy: Policy) -> bool:
        """Equality on the visible state and on every hidden one that can be judged."""
        hidden = (self.equal[state] for state in policy.hidden if state in self.equal)
        return self.equal[policy.visible] and all(hidden)
