"""How many real wrong predictions a database would pay, and what it would refuse."""

import msgspec

from envbuild.records.signal import AliveOperator


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One question with its gold and, where there is one, a prediction."""

    question_id: str
    db_id: str
    gold_sql: str
    predicted_sql: str | None = None
    system: str = ""
    """Whose prediction it is, where there are several systems."""


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One way to fill databases and pay for equality on them: a row of the table."""

    policy: str
    """`2 rows`, `2 rows, naive`, `2, amplified` (rows added), `2 + 1 variant, guided` (equality
    asked on one hidden variant too, whose rows were guided by mutants), `full`, …"""
    variants: int = 0
    """Hidden variants that must be equal too."""
    wrong: int
    """Predictions that run on the full database and are wrong there."""
    paid: int
    """Of those, how many would get the full reward."""
    right: int
    """Predictions equal to their gold on the full database."""
    refused: int
    """Of those, how many would not get the full reward."""
    wrong_on_empty: int
    """Wrong predictions whose gold has no rows on the visible database."""
    paid_on_empty: int
    questions: int
    """Questions with a signal score on the visible database."""
    signal_low: float | None
    signal_high: float | None
    """Means over the questions; the upper end leaves out mutants that are presumed equivalent."""
    share_below_half: float | None
    empty_golds: float | None
    """Share of questions whose gold has no rows on the visible database."""


class ScoreBin(msgspec.Struct, frozen=True, kw_only=True):
    """Wrong predictions whose question's score lies in one band, and how many are paid."""

    low: float
    high: float
    wrong: int
    paid: int


class PaidByScore(msgspec.Struct, frozen=True, kw_only=True):
    """Wrong predictions paid, by the score of their question on the same filling."""

    bins: tuple[ScoreBin, ...]
    spearman: float | None
    """Of the score against being paid (0 or 1); None where either never varies."""


class SystemRow(msgspec.Struct, frozen=True, kw_only=True):
    """One system's predictions at 2 rows, and with one guided hidden variant."""

    system: str
    wrong: int
    right: int
    paid: int
    """Wrong ones paid at 2 rows."""
    paid_with_variant: int | None
    refused_with_variant: int | None
    """None where no variants were grown."""


class FalseRewards(msgspec.Struct, frozen=True, kw_only=True):
    """The whole study of one benchmark."""

    name: str
    databases: int
    questions: int
    predictions: int
    rows: tuple[PolicyRow, ...]
    """Of all systems together; the signal is the questions', each counted once."""
    systems: tuple[SystemRow, ...]
    sparse: PaidByScore
    """At 2 rows."""
    every_cut: PaidByScore
    """At every cut along keys: a prediction counts once for each."""
    by_database: float | None
    """Spearman over (database, cut): mean score against the share of wrong predictions paid."""
    cells: int
    """(database, cut) pairs with enough wrong predictions to have a share."""
    top_alive: tuple[AliveOperator, ...]
    """At full data; with equivalent ones where there are too few fillings to presume any."""
    verdict: str
    """What pays: the reward's."""
    signal_verdict: str
    fillings: int
    """Most independent fillings behind a question's presumed equivalents: the full database and
    those with rows grown, never cuts."""
    fillings_needed: int
    """Fewer leave the signal without an upper end: it is the lower one."""

    @property
    def has_upper_end(self) -> bool:
        """Whether the signal is an interval."""
        return self.fillings >= self.fillings_needed
