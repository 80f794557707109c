"""What readers yield, a corpus folder's Parquet rows (CONTRACT 2), and a database's schema."""

import re

import msgspec


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column."""

    name: str
    type: str
    """Declared type as written; may be empty."""
    not_null: bool = False
    primary_key: int = 0
    """1-based position in the primary key; 0 outside it."""
    generated: bool = False
    """Computed by SQLite, so never loaded."""
    default: str | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One ordinary table."""

    name: str
    """Declared spelling."""
    columns: tuple[Column, ...]
    sql: str
    """Its CREATE TABLE statement as written."""
    without_rowid: bool = False
    strict: bool = False

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the primary key's columns, in key order."""
        keyed = sorted((c.primary_key, c.name) for c in self.columns if c.primary_key)
        return tuple(name for _, name in keyed)


class ForeignKey(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One declared foreign key whose parent exists: an edge, composite keys as one."""

    child: str
    child_columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    """Resolved to the parent's primary key where the DDL names none."""

    def render(self) -> str:
        """`child.col -> parent.col`; composite columns in parentheses."""
        return render_key(self.child, self.child_columns, self.parent, self.parent_columns)


class MissingParent(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A declared foreign key that points at no table or at columns that cannot be resolved."""

    child: str
    child_columns: tuple[str, ...]
    parent: str


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """Tables in declared order, the edges among them, and what does not resolve."""

    tables: tuple[Table, ...]
    foreign_keys: tuple[ForeignKey, ...]
    """Sorted."""
    missing_parents: tuple[MissingParent, ...] = ()
    views: tuple[str, ...] = ()
    view_sql: tuple[str, ...] = ()
    """The CREATE VIEW statements, in the order of `views`; empty where they were not read."""

    @property
    def table_names(self) -> tuple[str, ...]:
        """Table names in declared order and spelling."""
        return tuple(table.name for table in self.tables)


class SampledSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The tables one question is asked over (CONTRACT 5)."""

    tables: tuple[str, ...]
    """In shown order."""
    gold_tables: tuple[str, ...]
    distractors: tuple[str, ...]
    """Sorted; tables less gold_tables."""
    target_size: int
    seed: int


def render_key(
    child: str, child_columns: tuple[str, ...], parent: str, parent_columns: tuple[str, ...]
) -> str:
    """`child.col -> parent.col`; a table alone where no columns are given."""

    def side(table: str, columns: tuple[str, ...]) -> str:
        names = ", ".join(columns)
        if len(columns) > 1:
            return f"{table}.({names})"
        return f"{table}.{names}" if columns else table

    return f"{side(child, child_columns)} -> {side(parent, parent_columns)}"


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


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 row`, `2,000 rows`; `plural` where an s does not make it."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def percent(value: float | None) -> str:
    """A share with one decimal, the same in terminal and page; `-` where there is none."""
    return "-" if value is None else f"{value:.1%}"


def interval(low: float, high: float) -> str:
    """`41.0-52.3%`: the ends of an interval of shares."""
    return f"{100 * low:.1f}-{high:.1%}"


def printable(text: str) -> str:
    """`text` with its control characters escaped, for a terminal that would obey them."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))
