"""What preflight finds and reports: rows per table first, then gold health and findings."""

from enum import StrEnum

import msgspec

from envbuild.records.signal import SignalSummary, SignalThresholds


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """It ruins a reward; exit 1."""
    WARNING = "warning"
    """Exit 1 under --strict."""
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding about a corpus, database, table or question: a row of findings.parquet."""

    corpus: str
    code: str
    """The name of the check that found it, e.g. `fk_orphans`, `empty_gold`."""
    severity: Severity
    db_id: str = ""
    table: str = ""
    question_id: str = ""
    count: int = 1
    """How many cases this row stands for (orphan rows, refused rows, …)."""
    message: str = ""
    """One sentence, no path."""
    example: str = ""
    """The smallest thing that shows it: a value, a statement, a query."""


BIN_EDGES: tuple[int, ...] = (
    *(0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000),
    *(20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000),
)
"""First row count of each histogram bin; the last bin is open. Near even on a log axis."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a corpus has too few rows for its rewards to mean anything; a TOML file may replace any.

    At 2 rows a table about half of the wrong queries get the gold's result, at 20 about 7 %, at 68
    about 5 %.
    """

    median_error: float = 5.0
    """A median of rows per table below this is an error."""
    median_warning: float = 20.0
    share_empty_error: float = 0.5
    """A share of tables without rows above this is an error."""
    share_empty_warning: float = 0.1
    share_at_most_2_error: float = 0.5
    """A share of tables with at most 2 rows above this is an error."""
    share_at_most_2_warning: float = 0.25
    signal: SignalThresholds = SignalThresholds()
    """The `[signal]` table of the file."""


class PublishedMedian(msgspec.Struct, frozen=True, kw_only=True):
    """A published median of rows per table, shown beside the measured ones."""

    corpus: str
    low: float
    high: float

    def render(self) -> str:
        """`2`, or `68-69` where the source gives a range."""
        return f"{self.low:g}" if self.low == self.high else f"{self.low:g}-{self.high:g}"


PUBLISHED_MEDIANS = (
    PublishedMedian(corpus="SynSQL", low=2, high=2),
    PublishedMedian(corpus="SQaLe", low=68, high=69),
    PublishedMedian(corpus="BIRD train", low=927, high=927),
)


class RowStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Rows per table over one corpus; empty tables count, views and virtual tables do not."""

    databases: int
    tables: int
    rows: int
    median: float
    p10: float
    p90: float
    mean: float
    share_empty: float
    """Share of tables without a row."""
    share_at_most_2: float
    histogram: tuple[int, ...]
    """Tables in each bin of `BIN_EDGES`."""
    verdict: Severity | None = None
    """The worst threshold crossed; None where the corpus is fine."""
    reasons: tuple[str, ...] = ()
    """One sentence for each threshold crossed."""


class GoldHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a corpus's gold queries; each distinct (database, gold) runs once."""

    questions: int = 0
    """Rows of questions, all phrasings."""
    golds: int = 0
    """Distinct gold queries; the other figures count these."""
    ok: int = 0
    """Ran to their end."""
    error: int = 0
    timeout: int = 0
    denied: int = 0
    truncated: int = 0
    empty: int = 0
    """Ran, and returned no row."""
    trivial: int = 0
    """Ran, and returned one trivial cell (NULL, 0, 1 or an empty text)."""
    undetermined: int = 0
    """Ran, but ties, scan order, clock, chance or bare columns decide the result."""
    sound: int = 0
    """Ran, and are none of these three."""


class FindingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of one code in one corpus."""

    code: str
    severity: Severity
    """The worst among them."""
    meaning: str
    """What the code says, in one sentence."""
    findings: int
    """Rows of findings.parquet."""
    count: int
    """Cases those rows stand for."""
    databases: int
    examples: tuple[Finding, ...] = ()
    """The first few, in sorted order."""


class DatabaseHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One database's figures, for the list of the worst."""

    db_id: str
    tables: int
    rows: int
    median: float
    """Rows per table."""
    golds: int = 0
    golds_hurt: int = 0
    """Golds that fail, are empty, trivial or undetermined."""
    errors: int = 0
    """Findings of that severity."""
    warnings: int = 0


class SignalPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One database's signal beside its rows: a point of the plot."""

    db_id: str
    median_rows: float
    """Rows per table."""
    signal: float
    """Mean signal_high of its scored questions."""
    scored: int


class CorpusReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything preflight says about one corpus."""

    corpus: str
    rows: RowStatistics
    gold: GoldHealth
    findings: tuple[FindingSummary, ...]
    """In the order of the checks."""
    worst: tuple[DatabaseHealth, ...]
    signal: SignalSummary | None = None
    """None where it was not measured."""
    signal_points: tuple[SignalPoint, ...] = ()
    """At most 500 databases of the sample, in db_id order."""

    def count(self, severity: Severity) -> int:
        """Findings of this severity."""
        return sum(s.findings for s in self.findings if s.severity is severity)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One preflight run over one or several corpora."""

    corpora: tuple[CorpusReport, ...]
    thresholds: Thresholds
    published: tuple[PublishedMedian, ...] = PUBLISHED_MEDIANS
    bin_edges: tuple[int, ...] = BIN_EDGES
    versions: dict[str, str]
    """`envbuild` and `sqlite`: what ran the queries."""

    @property
    def errors(self) -> int:
        """Error findings in all."""
        return sum(corpus.count(Severity.ERROR) for corpus in self.corpora)

    @property
    def warnings(self) -> int:
        """Warning findings in all."""
        return sum(corpus.count(Severity.WARNING) for corpus in self.corpora)
