"""How well a database tells a gold from wrong queries, what a gold asks of rows, rows added."""

from collections.abc import Iterable

import msgspec

from envbuild.records.execution import Value


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


Site = tuple[int, str]
"""One column of one table occurrence: (position in `Frame.sources`, declared column name)."""


Extreme = tuple[Site, bool]
"""A column and whether its largest values come first."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison of a column with literals or with another column."""

    site: Site
    op: str
    """`=`, `!=`, `<`, `<=`, `>`, `>=`, `like`, `glob`, `in`, `between`, `null`; `not ` before."""
    values: tuple[Value, ...] = ()
    """The literals; empty where another column is compared."""
    form: str = ""
    """What is applied to the column first: `strftime:%Y`, `substr:1:4`, `lower`, `length`, …"""
    expression: str = "v"
    """All that is compared, casts and collations too, as SQL over the stored value `v`."""
    fold: str = ""
    """The aggregate the comparison is about: `sum`, `avg`, `min`, `max`; empty for a plain row."""
    other: Site | None = None
    """The column on the right side, where it is one."""


Clause = tuple[tuple[Condition, ...], ...]
"""Alternatives of which one must hold, each a conjunction."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of rows that a query (or a part of it) looks for."""

    sources: tuple[str, ...]
    """Base table of each occurrence, in declared spelling; CTEs and derived tables inlined."""
    same: tuple[tuple[Site, Site], ...] = ()
    """Pairs of columns that must be equal."""
    clauses: tuple[Clause, ...] = ()
    """All must hold."""
    optional: tuple[int, ...] = ()
    """Occurrences that may be absent: right sides of LEFT JOIN."""
    group: tuple[Site, ...] = ()
    """Columns whose equal values make a group or a partition."""
    siblings: int = 1
    """Rows a group needs, from HAVING COUNT(*) > n or a rank bound."""
    distinct: tuple[Site, ...] = ()
    """Columns in which siblings must differ, from COUNT(DISTINCT …) bounds."""
    limit: int = 0
    """The outermost LIMIT; 0 where there is none."""
    ordered: tuple[Extreme, ...] = ()
    """Columns that decide which rows a LIMIT or a row number keeps: ties there are chance."""
    extremes: tuple[Extreme, ...] = ()
    """Columns whose largest or smallest values show: ranks, MAX, MIN."""
    counted: str = ""
    """`asc` or `desc` where a COUNT decides a LIMIT or a rank, so fan-outs should not tie."""
    counted_over: tuple[int, ...] = ()
    """The occurrences of the (sub)query that counts."""
    repeats: tuple[Site, ...] = ()
    """Columns of a lone table counted with DISTINCT: the query takes it that they repeat."""
    shown: tuple[Site, ...] = ()
    """Columns of the outermost projection."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """All frames of one query: the whole one first, then parts that stand alone."""

    frames: tuple[Frame, ...] = ()
    joined: tuple[tuple[tuple[str, str], tuple[str, str]], ...] = ()
    """(table, column) pairs that the query compares, negated comparisons included."""
    literals: tuple[tuple[str, str, Value, str], ...] = ()
    """(table, column, literal, form): every literal a column is compared with."""


class AmplifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are added; the same settings and seed give the same rows."""

    rows_low: int = 30
    rows_high: int = 70
    """A table's target is drawn from [rows_low, rows_high]; scenario rows may pass it."""
    group: int = 20
    """Golds worked on at a time."""
    observed: bool = True
    """Keep what the rows show without the DDL saying so: no new NULL, no repeat in names."""
    orphans: bool = False
    """References that point at no row are added too, as often as the source has them."""
    guided: bool = False
    """Go on with batches that are kept only where they kill a surviving mutant."""
    seed: int = 0


class Gold(msgspec.Struct, frozen=True, kw_only=True):
    """One gold query that the rows are added for."""

    question_id: str
    sql: str


class TableGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """One table before and after."""

    corpus: str = ""
    db_id: str = ""
    table: str
    rows_before: int
    rows_added: int
    rows_refused: int
    """Draws that SQLite or an observed rule refused."""
    target: int


class AddedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One added row: a row of added_rows.parquet."""

    corpus: str = ""
    db_id: str
    variant: str = ""
    """Empty for the amplified database itself."""
    table: str
    index: int
    """Order of insertion within the database."""
    rowid: int
    """0 in a WITHOUT ROWID table."""
    columns: tuple[str, ...]
    cells: bytes
    """The values as MessagePack, typed, in `columns` order."""


class GoldState(msgspec.Struct, frozen=True, kw_only=True):
    """One gold before and after."""

    corpus: str = ""
    db_id: str = ""
    question_id: str
    rows_before: int
    """Rows of its result; -1 where it does not run."""
    rows_after: int
    mutants: int = 0
    """Compiled mutants; 0 where they were not made."""
    killed_before: int = 0
    killed: int = 0
    tie_sensitive: bool = False
    """Its result rests on the order of equal rows, under a LIMIT or inside a window."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """All of one database's amplification, without its bytes."""

    tables: tuple[TableGrowth, ...]
    golds: tuple[GoldState, ...]
    rows: tuple[AddedRow, ...]
    rejected_batches: int = 0
    """Batches rolled back: they emptied a gold, orphaned a row or killed nothing."""


class CorpusGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """What amplifying a corpus came to; the counts of its corpus.json."""

    name: str
    root: str
    complete: bool
    """False while other shards are missing: then there is no corpus yet."""
    resumed: bool = False
    """The folder was complete already, and nothing was added."""
    databases: int = 0
    not_amplified: int = 0
    """Databases copied as they were, because rows could not be added; each is in rejects."""
    tables: int = 0
    rows_before: int = 0
    rows_added: int = 0
    rows_a_table_before: float = 0.0
    """Median over all tables."""
    rows_a_table: float = 0.0
    orphans_added: int = 0
    """Foreign-key violations that the source did not have; anything but 0 is our bug."""
    golds: int = 0
    """Distinct gold queries, a database at a time."""
    golds_failing: int = 0
    """Golds that did not run before rows were added."""
    empty_before: int = 0
    empty: int = 0
    """Golds without a row, before and after."""
    tie_sensitive: int = 0
    mutants: int = 0
    """Wrong queries tried, where amplification was guided; 0 where it was not."""
    signal_before: float | None = None
    """Mean share of a gold's mutants told apart (`signal_low`); None where not measured."""
    signal: float | None = None
    rejected_batches: int = 0
