"""What an evaluation says of one question, and of many."""

import msgspec


class QuestionVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One answer judged: a row of evaluation.parquet. Keyed by question id, never by position."""

    question_id: str
    corpus: str = ""
    db_id: str = ""
    split: str = ""
    policy: str = ""
    """Model, system or scripted policy that answered."""
    candidate: int = 0
    """0-based, where a question was answered several times."""
    episode_id: str = ""
    """Empty for predictions files."""
    question: str = ""
    difficulty: str = ""
    bucket: str = ""
    tables: int = 0
    """Tables in the view the policy saw."""
    schema: str = "full"
    """`full` or `withheld`."""
    gold_sql: str = ""
    predicted_sql: str = ""
    official: str
    """A `Verdict` under official@1 (or the benchmark's own rule, see `official_name`)."""
    strict: str
    """A `Verdict` under strict@1."""
    official_name: str = "official@1"
    equal_under: tuple[str, ...] = ()
    """Every rule that calls the two results equal, where the rules were compared."""
    official_correct: bool | None = None
    """None = unscored: the gold cannot be run to its end, or the server failed the episode."""
    strict_correct: bool | None = None
    hidden: str = ""
    """`hidden@1`: `equal` where the official rule, EX's own, says so on the database and on every
    hidden variant, else the first `Verdict` that is not; empty: no variant scores the question."""
    reason: str = ""
    """One sentence where the answer is not equal."""
    predicted_rows: int = 0
    gold_rows: int = 0
    predicted_columns: int = 0
    gold_columns: int = 0
    outcome: str = ""
    """An `Outcome` of the predicted SQL; empty without a prediction."""
    ended_by: str = ""
    gold_tables: int = 0
    """Tables the gold reads; 0 where it is not known."""
    gold_tables_shown: int = 0
    """Of those, how many the view holds."""

    @property
    def key(self) -> tuple[str, str]:
        """The question, whatever its phrasing and however often it was answered."""
        return self.corpus, self.question_id


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A share with its Wilson 95 % interval, whose unit is the question.

    Several answers to one question count as one where they agree
    (`statistics.clustered_interval`).
    """

    correct: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float | None:
        """correct / total; None where nothing was scored."""
        return self.correct / self.total if self.total else None


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """EX over one group of questions; the unscored stand beside it, never inside."""

    name: str
    """`all`, a bucket, a difficulty, a size …"""
    by: str = ""
    """What it is a group of: `schema`, `bucket`, `difficulty`, `size`; empty for `all`."""
    official: Share
    strict: Share
    unscored: int
    hidden: Share | None = None
    """hidden@1 over the questions that have a scored variant."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How a policy acted, over episodes."""

    episodes: int
    submit_rate: float
    """Share that ended by submit_sql."""
    executable_sql: float
    """Share of run_query SQL and of answers, submitted or of the final turn, that executes."""
    mean_turns: float
    mean_tool_calls: float
    truncated: float
    """Share of episodes with a completion that hit its token limit."""
    fallback_rate: float
    """Share whose answer is the last working query, whatever ended the exploration."""
    wasted_calls: float
    """Share of tool calls that repeat an identical call of the same episode."""
    ended_by: dict[str, int]
    opened_all_gold_tables: float | None = None
    """Share of episodes that opened every gold table; None where gold tables are not known."""
    intervals: dict[str, tuple[float, float]] = {}
    """Field -> 95 % interval of its share, whose unit is the question."""


class LiteralUse(msgspec.Struct, frozen=True, kw_only=True):
    """One string literal that the gold answer depends on: a row of the literal ledger."""

    episode_id: str
    question_id: str
    literal: str
    """The text, unquoted."""
    stated: bool
    """It stands in the question or evidence, as words of its own (`exploration.stands_in`)."""
    looked_up: bool
    """It stood in a tool result before the answer."""
    used: bool
    """The answer holds it."""
    correct: bool | None
    """The answer is right (official@1)."""


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One database size of the distractor ladder."""

    name: str
    """`gold`, `+32` or `full`."""
    tables: float
    """Mean tables shown."""
    official: Share
    strict: Share
    unscored: int
    coverage: float | None
    """Share of episodes that opened every gold table; what stands in brackets."""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one evaluation found; evaluation.json, and what the page shows."""

    name: str
    policy: str = ""
    questions: int
    said: str = ""
    """What was read and how, in one sentence."""
    official_name: str
    scores: tuple[Score, ...]
    """The first is `all`; then by schema, bucket, difficulty and size."""
    reasons: dict[str, int] = {}
    """Verdict -> answers, under the official rule."""
    behaviour: Behaviour | None = None
    literals: dict[str, float | int | None] = {}
    """The literal ledger's shares (`exploration.summarize_ledger`)."""
    ladder: tuple[Rung, ...] = ()
    rules: dict[str, int] = {}
    """Verdict rule -> answers it calls equal, over what is scored."""
    disagreements: dict[str, dict[str, int]] = {}
    """Verdict rule -> another rule -> answers that the first calls equal and the other does not."""
    versions: dict[str, str] = {}
    """`envbuild` and `sqlite`: what ran the queries."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One pair of policies over the questions that both were scored on."""

    first: str
    second: str
    questions: int
    """Scored in both; the unit of every test here."""
    left_out: int
    """Questions that only one side has, or that one side could not score."""
    first_score: float
    second_score: float
    delta: float
    """second - first."""
    only_first: int
    only_second: int
    """Discordant questions; with several runs a side, those whose means differ."""
    test: str
    """`mcnemar_exact`, or `sign_flip` where a side has several runs."""
    p: float
    holm: float
    """Adjusted over every comparison made here."""
    benjamini_hochberg: float
    low: float
    high: float
    """Paired bootstrap 95 % interval of delta, questions resampled."""
    clustered_low: float
    clustered_high: float
    """The same with whole databases resampled."""
    detectable: float | None
    """Smallest true delta found with power 0.8 at this n and this disagreement; None where the two
    agree on every question, which tells nothing of how they would differ."""
