"""How well a database tells a gold query from wrong ones (`signal@1`)."""

import msgspec


class SignalScore(msgspec.Struct, frozen=True, kw_only=True):
    """One question's signal: a row of signal.parquet."""

    corpus: str = ""
    question_id: str
    db_id: str = ""
    mutants: int
    """Mutants that compiled; fewer than 3 leave the score null."""
    killed: int
    presumed_equivalent: int = 0
    """Never told apart by at least 4 variants with a non-empty gold."""
    unknown: int = 0
    """Alive without such evidence; counted against."""
    signal_low: float | None
    """killed / mutants; None where the gold cannot be scored."""
    signal_high: float | None
    """killed / (mutants - presumed_equivalent)."""
    gold_rows: int = 0
    alive: tuple[str, ...] = ()
    """Operators of the mutants that got the gold's result, one entry a mutant."""
    alive_sql: tuple[str, ...] = ()
    """Those mutants' SQL, same order."""
    verdict: str = "ordered@1"
    seed: int = 0
    reason: str = ""
    """Why the score is null: `gold_error`, `few_mutants`, …; empty where it is not."""
