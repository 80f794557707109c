"""What amplification made of a database: settings, counts, and the rows it added."""

import msgspec


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
