"""A database's tables in memory, beside the SQLite connection that new rows are inserted into."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from envbuild.generate.columns import BUILT_IN_COLLATIONS, ColumnPlan
from envbuild.materialize.values import affinity_of
from envbuild.records.corpus import Schema, Table
from envbuild.records.execution import Value
from envbuild.sql.connect import ROW_REFUSALS, Connection, iter_rows, quote_name
from envbuild.sql.execution.run import text_as_blobs

Cells = list[Value]


@dataclass(slots=True)
class Key:
    """Columns whose values may not repeat together."""

    positions: tuple[int, ...]
    taken: dict[tuple[Value, ...], int] = field(default_factory=dict)
    """Key values to the row that holds them; NULLs never clash, as in SQLite."""

    def of(self, cells: Cells) -> tuple[Value, ...]:
        """The key's values in a row."""
        return tuple([cells[position] for position in self.positions])


@dataclass(slots=True)
class Link:
    """A reference to another table, declared or only shown by how golds join."""

    positions: tuple[int, ...]
    parent: "TableRows"
    parent_positions: tuple[int, ...]
    declared: bool = True
    orphans: Sequence[tuple[Value, ...]] = ()
    """Values of the reference that no row of the parent has, from the database as it came."""


@dataclass(slots=True)
class TableRows:
    """One table: plans, keys, links and rows (original ones first, then added ones)."""

    table: Table
    names: list[str]
    """Loadable columns, declared order; generated ones are left to SQLite."""
    at: dict[str, int]
    """Lower-case column name to position."""
    collations: list[str] = field(default_factory=list)
    """Of each column; BINARY for one that SQLite does not bring along."""
    plans: list[ColumnPlan] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    void: set[int] = field(default_factory=set)
    """Columns of references to a table that does not exist: NULL in every new row."""
    closed: bool = False
    """True where no new row is possible: such a reference may not be NULL."""
    rows: list[Cells] = field(default_factory=list)
    rowids: list[int] = field(default_factory=list)
    """Of added rows only, in the order they were added; 0 in a WITHOUT ROWID table."""
    original: int = 0
    """Rows read from the database before anything was added."""
    total: int = 0
    """Rows the database held before anything was added."""
    serial: int | None = None
    """Position of the INTEGER PRIMARY KEY column."""
    counter: int | None = None
    """Position of a one-column key of integers (a serial or not): new rows count on from it."""
    next_serial: int = 1
    insert_sql: str = ""
    refused: int = 0
    state: int = 0
    """A number that no other content of this table has had."""
    indexes: dict[int, dict[Value, list[int]]] = field(default_factory=dict)
    """Column position to value to rows; built when first asked for."""

    @property
    def keyed(self) -> set[int]:
        """Positions of the primary key's columns."""
        return {self.at[name.lower()] for name in self.table.primary_key if name.lower() in self.at}

    def having(self, position: int, value: Value) -> Sequence[int]:
        """The rows that hold `value` in a column."""
        index = self.indexes.get(position)
        if index is None:
            index = self.indexes[position] = {}
            for number, row in enumerate(self.rows):
                index.setdefault(row[position], []).append(number)
        return index.get(value, ())

    def holding(self, cells: dict[int, Value]) -> list[int]:
        """The rows that hold all of `cells`, of which there is one or more."""
        first = next(iter(cells.items()))
        rows = self.rows
        return [n for n in self.having(*first) if all(rows[n][p] == v for p, v in cells.items())]

    def holder(self, cells: dict[int, Value]) -> int | None:
        """The row that has a key of `cells`, if they hold a whole one."""
        for key in self.keys:
            if all(position in cells for position in key.positions):
                row = key.taken.get(tuple([cells[position] for position in key.positions]))
                if row is not None:
                    return row
        return None

    def clash(self, cells: Cells) -> Key | None:
        """The key that a new row would break."""
        for key in self.keys:
            wanted = key.of(cells)
            if wanted in key.taken and None not in wanted:
                return key
        return None

    def append(self, cells: Cells) -> int:
        """Takes in a row that the database holds; returns its number."""
        number = len(self.rows)
        self.rows.append(cells)
        for key in self.keys:
            values = key.of(cells)
            if None not in values:
                key.taken[values] = number
        for position, index in self.indexes.items():
            index.setdefault(cells[position], []).append(number)
        if self.counter is not None:
            value = cells[self.counter]
            if isinstance(value, int) and value >= self.next_serial:
                self.next_serial = value + 1
        return number

    def cut(self, length: int) -> None:
        """Forgets every row from `length` on, newest first."""
        while len(self.rows) > length:
            cells = self.rows.pop()
            self.rowids.pop()
            for key in self.keys:
                key.taken.pop(key.of(cells), None)
            for position, index in self.indexes.items():
                index[cells[position]].pop()


@dataclass(slots=True, kw_only=True)
class Workspace:
    """All tables of one database and the private connection their new rows go into."""

    connection: Connection
    schema: Schema
    tables: dict[str, TableRows]
    """By lower-case name, in declared order."""
    ranks: dict[str, int] = field(default_factory=dict)
    """By lower-case name, in this order: parents before children."""
    states: "count[int]" = field(default_factory=lambda: count(1))
    """Numbers for the tables' contents."""

    def insert(self, table: TableRows, cells: Cells) -> int | None:
        """The number of the new row, which clashes with none; None where SQLite refuses it."""
        try:
            self.connection.execute(table.insert_sql, cells)
        except ROW_REFUSALS:
            table.refused += 1
            return None
        rowid = 0 if table.table.without_rowid else self.connection.last_insert_rowid()
        if table.serial is not None:
            cells[table.serial] = rowid
        table.state = next(self.states)
        table.rowids.append(rowid)
        return table.append(cells)

    def add(self, change: Callable[[], object], keep: Callable[[], bool]) -> bool:
        """Adds the rows that `change` makes; takes them back where `keep` then says no."""
        before = [(table, len(table.rows), table.state) for table in self.tables.values()]
        self.connection.execute("SAVEPOINT added")
        change()
        kept = keep()
        if not kept:
            self.connection.execute("ROLLBACK TO added")
            for table, rows, state in before:
                table.cut(rows)
                table.state = state
        self.connection.execute("RELEASE added")
        return kept


MAX_ROWS_READ = 5000
"""Rows of a table that are looked at; a larger table is sampled evenly by rowid."""


def open_workspace(connection: Connection, schema: Schema) -> Workspace:
    """Every table of the schema, with the connection that new rows go into."""
    tables = {table.name.lower(): _open_table(connection, table) for table in schema.tables}
    return Workspace(connection=connection, schema=schema, tables=tables)


def _open_table(connection: Connection, table: Table) -> TableRows:
    columns = [column for column in table.columns if not column.generated]
    names = [column.name for column in columns]
    rows = TableRows(table=table, names=names, at={name.lower(): i for i, name in enumerate(names)})
    listed = ", ".join(quote_name(name) for name in names)
    target = quote_name(table.name)
    rows.insert_sql = f"INSERT INTO {target} ({listed}) VALUES ({', '.join('?' * len(names))})"
    for name in names:
        collation = str(connection.column_metadata("main", table.name, name)[1]).upper()
        rows.collations.append(collation if collation in BUILT_IN_COLLATIONS else "BINARY")
    keys, indexed = _unique_keys(connection, table, rows.at)
    key = table.primary_key
    if len(key) == 1 and key[0].lower() in rows.at:
        declared = next(column.type for column in columns if column.name == key[0])
        if affinity_of(declared) in ("integer", "numeric"):
            rows.counter = rows.at[key[0].lower()]
        if declared.upper() == "INTEGER" and not indexed and not table.without_rowid:
            # INTEGER PRIMARY KEY DESC has an index of its own and is no rowid
            rows.serial = rows.counter
    rows.keys = [Key(positions) for positions in keys]
    ((rows.total,),) = iter_rows(connection, f"SELECT count(*) FROM {target}")
    where = ""
    if rows.total > MAX_ROWS_READ and not table.without_rowid:
        where = f" WHERE rowid % {rows.total // MAX_ROWS_READ + 1} = 0"
    for cells in _sampled(connection, names, f"FROM {target}{where} LIMIT {MAX_ROWS_READ}"):
        rows.append(cells)
    rows.original = len(rows.rows)
    if rows.counter is not None and rows.total > rows.original:
        sql = f"SELECT max({quote_name(names[rows.counter])}) FROM {target}"
        ((largest,),) = iter_rows(connection, sql)
        if isinstance(largest, int):
            rows.next_serial = max(rows.next_serial, largest + 1)
    return rows


def _sampled(connection: Connection, names: list[str], source: str) -> Iterable[Cells]:
    """The rows; a text that is not UTF-8 counts as unknown (None), so it is never drawn again."""
    sql = f"SELECT {', '.join(map(quote_name, names))} {source}"
    try:
        return [list(row) for row in iter_rows(connection, sql)]
    except UnicodeDecodeError:
        pairs = [(r[::2], r[1::2]) for r in iter_rows(connection, text_as_blobs(sql, len(names)))]
        return [list(map(_decoded, cells, was_text)) for cells, was_text in pairs]


def _decoded(cell: Value, was_text: int) -> Value:
    try:
        return cell.decode() if was_text and isinstance(cell, bytes) else cell
    except UnicodeDecodeError:
        return None


def _unique_keys(
    connection: Connection, table: Table, at: dict[str, int]
) -> tuple[list[tuple[int, ...]], bool]:
    """Declared keys as positions, and whether the primary key has an index of its own.

    Partial and expression indexes are left to SQLite.
    """
    found = iter_rows(
        connection,
        "SELECT l.seq, l.origin, i.name FROM pragma_index_list(?) AS l, pragma_index_info(l.name)"
        ' AS i WHERE l."unique" AND NOT l.partial ORDER BY l.seq, i.seqno',
        (table.name,),
    )
    keys: dict[int, list[int]] = {}
    indexed = False
    for index, origin, column in found:
        indexed = indexed or origin == "pk"
        keys.setdefault(index, []).append(at.get((column or "").lower(), -1))
    if table.primary_key and all(name.lower() in at for name in table.primary_key):
        keys[-1] = [at[name.lower()] for name in table.primary_key]
    return sorted({tuple(key) for key in keys.values() if -1 not in key}), indexed
