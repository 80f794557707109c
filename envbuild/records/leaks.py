"""What `leaks` finds: pairs of a training corpus and a benchmark, and what they come to."""

from typing import NamedTuple

import msgspec

LEAKS_FILE = "leaks.parquet"
"""In a corpus, after leaks: what a manifest, a card and the one rule for training read."""
LEAK_CODES = {
    "leaked_schema": "its database stands in a benchmark",
    "leaked_question": "a benchmark asks it, in the same words or nearly so",
    "leaked_sql": "its query is a benchmark's, but for literals",
}
"""Finding of a manifest's row -> what it means."""
SKELETON = "skeleton"
"""The kind that is only reported."""


def leak_code(kind: str) -> str:
    """The finding that a row of this kind of leak has; empty for `skeleton`."""
    return "" if kind == SKELETON else f"leaked_{kind}"


class Leak(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One pair that is one database, question or query: a row of leaks.parquet."""

    benchmark: str
    kind: str
    """`schema`, `question`, `sql`, or `skeleton`, which is no leak."""
    corpus: str
    """The training side's."""
    db_id: str
    question_id: str = ""
    """Empty for a schema: every question about the database is meant."""
    benchmark_db_id: str
    benchmark_question_id: str = ""
    score: float
    """Between 0 and 1; what of is said by the evidence."""
    evidence: str


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A leak with what both sides say."""

    leak: Leak
    training: str
    """The question or query; empty for a schema."""
    benchmark: str


class BenchmarkLeaks(msgspec.Struct, frozen=True, kw_only=True):
    """What of one benchmark stands in the training corpus."""

    benchmark: str
    databases: int
    questions: int
    schemas_compared: int
    """Training databases."""
    questions_compared: int
    """Training questions."""
    leaked_databases: int
    questions_of_leaked_databases: int
    leaked_questions: int
    """Of its questions, those that the training corpus asks."""
    leaked_queries: int
    leaked: int
    """Its questions touched in any of these three ways."""
    skeletons: int
    """Its queries of which only the skeleton stands in training."""
    examples: tuple[Example, ...]
    """Up to three of each kind, the highest scores first."""


class Measured(NamedTuple):
    """How well one threshold does on the planted leaks."""

    what: str
    threshold: str
    recall: str
    precision: str


MEASURED = (
    Measured("schemas", "0.5", "69 of 70", "80 of 81"),
    Measured("questions", "0.72 of words, 0.8 of letters", "190 of 200", "190 of 198"),
)
"""On the sets of tests/leaks, which were fixed before the thresholds."""
