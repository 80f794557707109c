"""How well a database tells a gold query from wrong ones (`signal@1`)."""

from collections.abc import Iterable

import msgspec


class SignalScore(msgspec.Struct, frozen=True, kw_only=True):
    """One question's signal: a row of signal.parquet."""

    corpus: str = ""
    question_id: str
    db_id: str = ""
    mutants: int
    """Mutants that compiled and are not provably equivalent; fewer than 3 leave the score null."""
    killed: int
    presumed_equivalent: int = 0
    """Never told apart by at least 4 variants with a non-empty gold."""
    unknown: int = 0
    """Alive, told apart by no variant, and fewer than four variants could: counted against."""
    signal_low: float | None
    """killed / mutants; None where the gold cannot be scored."""
    signal_high: float | None
    """killed / (mutants - presumed_equivalent): the score that findings, thresholds and the
    manifest's `signal` column use; equal to signal_low where no variants were looked at."""
    gold_rows: int = 0
    alive: tuple[str, ...] = ()
    """Operators of the mutants that got the gold's result and are not presumed equivalent, one
    entry a mutant."""
    alive_sql: tuple[str, ...] = ()
    """Those mutants' SQL, same order."""
    operators: tuple[str, ...] = ()
    """Operators of all mutants that are not presumed equivalent, one entry a mutant."""
    variants: int = 0
    """Variants of the database, with a non-empty gold, behind `presumed_equivalent`."""
    verdict: str = "ordered@1"
    seed: int = 0
    """What the mutants were drawn by; derived from the gold's text and the schema alone."""
    reason: str = ""
    """Why the score is null: `gold_error`, `few_mutants`, …; empty where it is not."""


class AliveOperator(msgspec.Struct, frozen=True, kw_only=True):
    """How many mutants of one operator a corpus does not tell from their golds."""

    operator: str
    alive: int
    """Alive and not presumed equivalent."""
    mutants: int
    """Of that operator, over all scored questions."""


class SignalExample(msgspec.Struct, frozen=True, kw_only=True):
    """One question whose wrong queries would be paid like its gold."""

    question_id: str
    db_id: str
    question: str
    gold_sql: str
    gold_rows: int
    wrong_sql: tuple[str, ...]
    """Up to four mutants with the gold's own result: each would get the full reward."""


class SignalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A corpus's signal: what preflight shows right under rows per table."""

    corpus: str = ""
    questions: int
    """Questions of the corpus, every phrasing."""
    sampled: int
    """Questions looked at, phrasings of one id counted once."""
    scored: int
    """Of those, with a score."""
    unscored: dict[str, int] = {}
    """Reason -> questions without a score (`gold_error`, `few_mutants`, ...)."""
    empty_golds: int = 0
    """Scored questions whose gold returns no row."""
    mean_low: float | None = None
    mean_high: float | None = None
    """Means of signal_low and signal_high over the scored questions; None where there is none."""
    median: float | None = None
    """Median of signal_high."""
    share_below_half: float | None = None
    """Share of scored questions with signal_high < 0.5."""
    variants: int = 0
    """Most variants behind a question's presumed equivalents; 0 = none were looked at."""
    top_alive: tuple[AliveOperator, ...] = ()
    """The three operators whose mutants most often get the gold's result."""
    example: SignalExample | None = None
    verdict: str = "ordered@1"
    wanted: int | None = None
    """Golds the sample was asked for; None = every question."""
    version: str = ""
    """Of the mutants' definition; empty in files from before it was recorded."""
    seed: int = 0
    """The run seed that drew the sample."""


class SignalThresholds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a score becomes a finding; all compare signal_high.

    On real predictions, questions that score below 0.3 paid 71-88 % of the wrong ones, questions
    above 0.8 paid 15-23 %. All corpora cut to 2 rows a table fail these means, all full ones pass.
    """

    question_error: float = 0.3
    """`no_signal`: a question's score below this is an error."""
    question_warning: float = 0.6
    """`weak_signal`: below this a warning."""
    mean_error: float = 0.6
    """`corpus_signal`: a mean below this is an error."""
    mean_warning: float = 0.75
    share_error: float = 0.30
    """`corpus_signal`: a share of questions below 0.5 above this is an error."""
    share_warning: float = 0.15


class CorpusSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A corpus's scores and what they come to."""

    summary: SignalSummary
    scores: Iterable[SignalScore]
    """One a question looked at, by question_id; on the disk where there are many."""
