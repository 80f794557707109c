"""The question pool's rows (CONTRACT 6)."""

import msgspec


class ManifestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One frozen training input: a row of manifest.parquet. Strings are never null."""

    row_id: str
    corpus: str
    corpus_revision: str = ""
    split: str = ""
    question_id: str
    db_id: str
    question: str
    style: str = ""
    evidence: str = ""
    gold_sql: str
    masked_length: int
    """Unicode characters of the masked gold SQL."""
    bucket: str
    difficulty: str = ""
    gold_tables: tuple[str, ...]
    literals: tuple[str, ...]
    """The gold SQL's literals as written, in order."""
    signal: float | None = None
    """Share of mutants that the database tells apart; None = not measured."""
    signal_mutants: int = 0
    variants: tuple[str, ...] = ()
    """Ids of the hidden variants."""
    tables: tuple[str, ...]
    """The sampled view, in shown order."""
    distractors: tuple[str, ...]
    target_size: int
    seed: int
    sqlite_file: str
    """Relative to the manifest folder, or absolute."""
    database_sha256: str
    gold_id: str
    gold_digest: str
    gold_rows: int
    gold_columns: int
    gold_ordered: bool
    """The outermost query has ORDER BY."""
    findings: tuple[str, ...] = ()
    """Codes of preflight's findings about this question."""


class GoldResult(msgspec.Struct, frozen=True, kw_only=True):
    """One gold result, computed once: a row of gold.parquet, keyed by (gold_id, variant)."""

    gold_id: str
    variant: str = ""
    """Empty for the visible database."""
    outcome: str
    """An `Outcome` value; only `ok` can be scored."""
    columns: tuple[str, ...]
    ordered: bool
    digest: str
    """`sql.results.digest_rows` of the rows; empty unless ok."""
    result: bytes
    """`sql.results.encode_rows` of the rows (MessagePack): typed, blobs included."""
