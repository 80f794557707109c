"""Databases cut to at most k rows a table: how a sparse corpus looks, from a full one.

Rows are chosen along declared keys and make no new orphan, or are the first k of each table.
Values are copied inside SQLite, so bytes that are no UTF-8 stay as they are.
"""

from collections import Counter
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from random import Random

from envbuild.engine.seeds import derived_random
from envbuild.records.corpus import ForeignKey, Schema, Table
from envbuild.schema.read import read_schema
from envbuild.sql.connect import (
    Connection,
    SQLiteError,
    open_private,
    open_read_only,
    quote_name,
    read_only_uri,
)

FEWEST_TRIES, TRIES_A_ROW = 300, 10
"""Rows of a table looked at before it stays shorter than asked."""
SMALL_TABLE = 20_000
"""Up to this span of rowids all rows of a table are candidates."""

Key = tuple[object, ...]
"""What names a row: its rowid, or its primary key in a table without one."""
Chosen = dict[str, dict[Key, None]]
"""Table name -> the chosen rows' keys, in the order they were chosen."""


def cut_image(
    source: Path,
    rows: int,
    *,
    naive: bool = False,
    seed: int = 0,
    only: Collection[str] | None = None,
) -> bytes:
    """The database with at most `rows` rows a table, serialized; the same bytes for the same seed.

    `naive` keeps the first rows of each table, whatever they point at. Indexes that SQLite can
    build, views and triggers are kept; virtual tables are not, nor tables outside `only`.
    """
    with closing(open_read_only(source)) as reader:
        schema = _narrowed(read_schema(reader), only)
        if naive:
            chosen = {table.name: _first_keys(reader, table, rows) for table in schema.tables}
        else:
            chosen = _FkCut(reader, schema, rows=rows, seed=seed).choose()
    return _copy(source, schema, chosen)


class _FkCut:
    """Chooses rows table by table, children first, each with the parents it points at."""

    def __init__(self, reader: Connection, schema: Schema, *, rows: int, seed: int) -> None:
        self.reader, self.schema, self.rows, self.seed = reader, schema, rows, seed
        self.tables = {table.name: table for table in schema.tables}
        self.chosen: Chosen = {table.name: {} for table in schema.tables}
        self.tries = max(FEWEST_TRIES, TRIES_A_ROW * rows)
        self.parents: dict[str, list[tuple[ForeignKey, str]]] = {name: [] for name in self.tables}
        """Child -> its keys, each with the query for the parent row of one child row."""
        for edge in schema.foreign_keys:
            child, parent = self.tables[edge.child], self.tables[edge.parent]
            sql = f"SELECT {_keys('p', parent)} FROM {_joined(edge)} WHERE {_is_key('c', child)}"
            self.parents[edge.child].append((edge, f"{sql} LIMIT 1"))

    def choose(self) -> Chosen:
        """The chosen rows' keys, no table with more than asked."""
        for name in children_first(self.schema):
            chance = derived_random(self.seed, name, "cut")
            # rows that point at chosen parents first, then any
            for find in self._near, self._any:
                if len(self.chosen[name]) < self.rows:
                    order = sorted(find(self.tables[name], chance), key=_key_order)
                    chance.shuffle(order)
                    self._take(name, order[: self.tries])
        return self.chosen

    def _take(self, table: str, keys: list[Key]) -> None:
        for key in keys:
            for member, own_key in self._family(table, key):
                self.chosen[member][own_key] = None
            if len(self.chosen[table]) >= self.rows:
                return

    def _near(self, table: Table, chance: Random) -> set[Key]:
        """The keys of rows that point at chosen parents."""
        near: set[Key] = set()
        for edge, _ in self.parents[table.name]:
            if edge.parent != table.name and (chosen := self.chosen[edge.parent]):
                one = f"({', '.join('?' * len(next(iter(chosen))))})"
                sql = (
                    f"SELECT {_keys('c', table)} FROM {_joined(edge)} "
                    f"WHERE ({_keys('p', self.tables[edge.parent])}) IN "
                    f"(VALUES {', '.join([one] * len(chosen))}) LIMIT {4 * self.tries}"
                )
                near.update(self.reader.execute(sql, [part for key in chosen for part in key]))
        return near

    def _any(self, table: Table, chance: Random) -> set[Key]:
        """Every key of a small table; of a large one, those at so many random places."""
        keys, name = _keys("t", table), quote_name(table.name)
        if not table.without_rowid:
            span = f"SELECT min({keys}), max({keys}) FROM {name} AS t"
            low, high = next(iter(self.reader.execute(span)))
            if low is not None and high - low > SMALL_TABLE:
                sql = f"SELECT {keys} FROM {name} AS t WHERE {keys} >= ? ORDER BY {keys} LIMIT 1"
                places = (chance.randint(low, high) for _ in range(self.tries))
                return {key for place in places for key in self.reader.execute(sql, (place,))}
        return set(self.reader.execute(f"SELECT {keys} FROM {name} AS t"))

    def _family(self, table: str, key: Key) -> list[tuple[str, Key]]:
        """The row and the rows it must find, less those chosen; none where a table is full."""
        family: dict[tuple[str, Key], None] = {}
        taken: Counter[str] = Counter()
        waiting = [(table, key)]
        while waiting:
            member, own_key = waiting.pop()
            if own_key in self.chosen[member] or (member, own_key) in family:
                continue
            family[member, own_key] = None
            taken[member] += 1
            if len(self.chosen[member]) + taken[member] > self.rows:
                return []
            for edge, sql in self.parents[member]:
                # no row: the key is NULL, or the source's own orphan
                waiting += [(edge.parent, found) for found in self.reader.execute(sql, own_key)]
        return list(family)


def children_first(schema: Schema) -> list[str]:
    """Table names, each before the tables it points at; cycles are cut at the declared order."""
    parents: dict[str, list[str]] = {name: [] for name in schema.table_names}
    for key in schema.foreign_keys:
        parents[key.child].append(key.parent)
    seen: set[str] = set()
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for parent in parents[name]:
                visit(parent)
            order.append(name)

    for name in schema.table_names:
        visit(name)
    return order[::-1]


def _narrowed(schema: Schema, only: Collection[str] | None) -> Schema:
    """The schema of some of its tables: keys that leave them are no edges."""
    if only is None:
        return schema
    keys = (key for key in schema.foreign_keys if {key.child, key.parent} <= set(only))
    tables = (table for table in schema.tables if table.name in only)
    return Schema(tables=tuple(tables), foreign_keys=tuple(keys))


def _first_keys(reader: Connection, table: Table, rows: int) -> dict[Key, None]:
    keys = _keys("t", table)
    sql = f"SELECT {keys} FROM {quote_name(table.name)} AS t ORDER BY {keys} LIMIT ?"
    return dict.fromkeys(reader.execute(sql, (rows,)))


def _copy(source: Path, schema: Schema, chosen: Chosen) -> bytes:
    with closing(open_private()) as target:
        target.execute("ATTACH ? AS source", (read_only_uri(source),))
        # rows are the source's own: what it holds against its constraints is kept
        target.execute("PRAGMA ignore_check_constraints = ON")
        target.execute("BEGIN")
        for table in schema.tables:
            target.execute(table.sql)
            _copy_rows(target, table, chosen[table.name])
        kept = {table.name.lower() for table in schema.tables}
        others = (
            "SELECT type, tbl_name, sql FROM source.sqlite_schema WHERE sql IS NOT NULL "
            "AND type IN ('index', 'view', 'trigger') ORDER BY rowid"
        )
        for kind, on, sql in list(target.execute(others)):
            try:
                if kind == "view" or on.lower() in kept:
                    target.execute(sql)
            except SQLiteError:
                if kind != "index":
                    raise
                # an application's collation or function: no result rests on the index
        target.execute("COMMIT")
        target.execute("DETACH source")
        return target.serialize("main")


def _copy_rows(target: Connection, table: Table, chosen: dict[Key, None]) -> None:
    names = [quote_name(column.name) for column in table.columns if not column.generated]
    if not table.without_rowid:
        names.insert(0, _rowid_name(table))  # twice where a column is the rowid: the same value
    columns, name = ", ".join(names), quote_name(table.name)
    sql = (
        f"INSERT INTO main.{name} ({columns}) SELECT {columns} FROM source.{name} AS t "
        f"WHERE {_is_key('t', table)}"
    )
    for key in sorted(chosen, key=_key_order):
        target.execute(sql, key)


def _joined(edge: ForeignKey) -> str:
    pairs = zip(edge.child_columns, edge.parent_columns, strict=True)
    # the parent on the left: its collation decides, as for the key itself
    on = " AND ".join(f"p.{quote_name(parent)} = c.{quote_name(child)}" for child, parent in pairs)
    return f"{quote_name(edge.child)} AS c JOIN {quote_name(edge.parent)} AS p ON {on}"


def _keys(alias: str, table: Table) -> str:
    return ", ".join(f"{alias}.{name}" for name in _key_columns(table))


def _is_key(alias: str, table: Table) -> str:
    return " AND ".join(f"{alias}.{name} = ?" for name in _key_columns(table))


def _key_columns(table: Table) -> list[str]:
    return [*map(quote_name, table.primary_key)] if table.without_rowid else [_rowid_name(table)]


def _rowid_name(table: Table) -> str:
    taken = {column.name.lower() for column in table.columns}
    return next(name for name in ("rowid", "_rowid_", "oid") if name not in taken)


def _key_order(key: Key) -> tuple[tuple[str, object], ...]:
    """Keys of one table in an order of their own, whatever types they mix."""
    return tuple((type(part).__name__, part) for part in key)
