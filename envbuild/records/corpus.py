"""What readers yield, and the corpus folder's Parquet rows (CONTRACT 2)."""

import msgspec

EVALUATION_SPLITS = ("dev", "mini_dev", "test", "val", "validation")
"""Splits, in lower case, whose questions measure a model and never train it."""


def is_evaluation_split(split: str) -> bool:
    """True for a split of EVALUATION_SPLITS, however its name is capitalised."""
    return split.lower() in EVALUATION_SPLITS


class DatabaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One database as its source holds it: DDL and row payload, or a ready SQLite file."""

    db_id: str
    """The source's own name, whatever it holds; unique within a corpus."""
    split: str = ""
    ddl: str = ""
    """CREATE statements as published; empty for a ready file."""
    payload: str | bytes = ""
    """JSON text `{table: [row, …]}`; empty means no rows."""
    sqlite_file: str = ""
    """Absolute path of a ready SQLite file to copy or link; empty for a payload."""
    dialect: str = ""
    """The SQL dialect the source states; empty when it does not."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question with its gold SQL: a row of questions.parquet."""

    corpus: str = ""
    question_id: str
    db_id: str
    split: str = ""
    question: str
    style: str = ""
    """Phrasing, where a corpus has several."""
    evidence: str = ""
    gold_sql: str
    difficulty: str = ""
    stored_result: str | None = None
    """The corpus's own stored result, JSON text; None where it has none."""
    relevant_tables: tuple[str, ...] = ()
    """Tables the corpus itself calls relevant; empty where it does not say."""


class Reject(msgspec.Struct, frozen=True, kw_only=True):
    """One thing not taken, and why: a row of rejects.parquet."""

    corpus: str = ""
    db_id: str = ""
    question_id: str = ""
    kind: str
    """`row`, `cell`, `statement`, `database` or `question`."""
    table: str = ""
    index: int = -1
    """Position within the table's payload, the DDL or the source; -1 where there is none."""
    reason: str
    """A code, e.g. `ragged_row`, `payload_parse_error`, `UNIQUE`."""
    detail: str = ""


class DatabaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One database of a corpus folder: a row of databases.parquet."""

    corpus: str
    db_id: str
    split: str
    sqlite_file: str
    """Relative to the corpus folder."""
    sha256: str
    bytes: int
    tables: int
    columns: int
    rows: int
    foreign_keys: int
    fk_violations: int
    rows_offered: int
    rows_stored: int
    rows_refused: int
    ddl_statements: int
    ddl_refused: int


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a corpus folder: a row of tables.parquet."""

    corpus: str
    db_id: str
    table: str
    columns: int
    rows: int
    rows_offered: int
    rows_stored: int
    rows_refused: int
    primary_key: tuple[str, ...] = ()
    foreign_keys: int = 0
    fk_violations: int = 0
    undecodable_cells: int = 0
