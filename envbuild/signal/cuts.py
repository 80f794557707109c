"""Databases cut to at most k rows a table: how a sparse corpus looks, from a full one.

`fk` chooses rows along declared keys and makes no new orphan; `naive` keeps the first k rows.
Values are copied inside SQLite, so bytes that are no UTF-8 stay as they are.
"""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from random import Random

from envbuild.engine.seeds import derived_random
from envbuild.errors import UnknownNameError
from envbuild.io.files import write_bytes
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

MODES = ("fk", "naive")
FEWEST_TRIES, TRIES_A_ROW = 300, 10
"""Rows of a table looked at before it stays shorter than asked."""
SMALL_TABLE = 20_000
"""Up to this span of rowids all rows of a table are candidates."""

_AFTER_ROWS = (
    "SELECT type, tbl_name, sql FROM source.sqlite_schema WHERE sql IS NOT NULL "
    "AND type IN ('index', 'view', 'trigger') ORDER BY rowid"
)

Key = tuple[object, ...]
"""What names a row: its rowid, or its primary key in a table without one."""
Chosen = dict[str, dict[Key, None]]
"""Table name -> the chosen rows' keys, in the order they were chosen."""


def cut_database(source: Path, out: Path, rows: int, *, mode: str = "fk", seed: int = 0) -> None:
    """Writes `source` with at most `rows` rows a table to `out`, whole or not at all."""
    write_bytes(out, cut_image(source, rows, mode=mode, seed=seed))


def cut_image(
    source: Path,
    rows: int,
    *,
    mode: str = "fk",
    seed: int = 0,
    only: Collection[str] | None = None,
) -> bytes:
    """The cut as a serialized database; the same bytes for the same source, rows, mode and seed.

    Indexes that SQLite can build, views and triggers are kept; virtual tables are not, nor tables
    outside `only`. Raises UnknownNameError for another mode.
    """
    if mode not in MODES:
        raise UnknownNameError("cut", mode, MODES)
    reader = open_read_only(source)
    try:
        schema = _narrowed(read_schema(reader), only)
        if mode == "fk":
            chosen = _FkCut(reader, schema, rows=rows, seed=seed).choose()
        else:
            chosen = {t.name: dict.fromkeys(_first_keys(reader, t, rows)) for t in schema.tables}
    finally:
        reader.close()
    return _copy(source, schema, chosen)


class _FkCut:
    """Chooses rows table by table, children first, each with the parents it points at."""

    def __init__(self, reader: Connection, schema: Schema, *, rows: int, seed: int) -> None:
        self.reader, self.schema, self.rows, self.seed = reader, schema, rows, seed
        self.tables = {table.name: table for table in schema.tables}
        self.chosen: Chosen = {table.name: {} for table in schema.tables}
        self.tries = max(FEWEST_TRIES, TRIES_A_ROW * rows)
        self.parents: dict[str, list[tuple[ForeignKey, str]]] = {name: [] for name in self.tables}
        for edge in schema.foreign_keys:
            sql = (
                f"SELECT {_keys('p', self.tables[edge.parent])} FROM {_joined(edge)} "
                f"WHERE {_is_key('c', self.tables[edge.child])} LIMIT 1"
            )
            self.parents[edge.child].append((edge, sql))

    def choose(self) -> Chosen:
        """The chosen rows' keys, no table with more than asked."""
        for table in children_first(self.schema):
            chance = derived_random(self.seed, table, "cut")
            # rows that point at chosen parents first, then any
            for find in self._near, self._any:
                if len(self.chosen[table]) < self.rows:
                    self._take(table, find(self.tables[table], chance), chance)
        return self.chosen

    def _take(self, table: str, keys: set[Key], chance: Random) -> None:
        order = sorted(keys, key=_key_order)
        chance.shuffle(order)
        for key in order[: self.tries]:
            if (family := self._family(table, key)) is not None:
                for member, own_key in family:
                    self.chosen[member][own_key] = None
            if len(self.chosen[table]) >= self.rows:
                return

    def _near(self, table: Table, chance: Random) -> set[Key]:
        near: set[Key] = set()
        for edge, _ in self.parents[table.name]:
            if edge.parent != table.name and (chosen := self.chosen[edge.parent]):
                names = _keys("p", self.tables[edge.parent])
                one = f"({', '.join('?' * len(next(iter(chosen))))})"
                sql = (
                    f"SELECT {_keys('c', table)} FROM {_joined(edge)} "
                    f"WHERE ({names}) IN (VALUES {', '.join([one] * len(chosen))}) "
                    f"LIMIT {4 * self.tries}"
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

    def _family(self, table: str, key: Key) -> list[tuple[str, Key]] | None:
        """The row and the rows it must find, less those chosen; None where a table is full."""
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
                return None
            for edge, sql in self.parents[member]:
                # no row: the key is NULL, or the source's own orphan
                waiting += [(edge.parent, found) for found in self.reader.execute(sql, own_key)]
        return list(family)


def _narrowed(schema: Schema, only: Collection[str] | None) -> Schema:
    """The schema of some of its tables: keys that leave them are no edges."""
    if only is None:
        return schema
    return Schema(
        tables=tuple(table for table in schema.tables if table.name in only),
        foreign_keys=tuple(
            key for key in schema.foreign_keys if key.child in only and key.parent in only
        ),
    )


def children_first(schema: Schema) -> list[str]:
    """Table names, each before the tables it points at; cycles are cut at the declared order."""
    parents: dict[str, list[str]] = {name: [] for name in schema.table_names}
    for key in schema.foreign_keys:
        parents[key.child].append(key.parent)
    done: dict[str, None] = {}
    for start in schema.table_names:
        trail = [(start, iter(parents[start]))]
        open_names = {start}
        while trail:
            name, waiting = trail[-1]
            below = next((p for p in waiting if p not in done and p not in open_names), None)
            if below is not None:
                open_names.add(below)
                trail.append((below, iter(parents[below])))
            else:
                done.setdefault(name)
                trail.pop()
    return list(done)[::-1]


def _first_keys(reader: Connection, table: Table, rows: int) -> list[Key]:
    keys = _keys("t", table)
    sql = f"SELECT {keys} FROM {quote_name(table.name)} AS t ORDER BY {keys} LIMIT ?"
    return list(reader.execute(sql, (rows,)))


def _copy(source: Path, schema: Schema, chosen: Chosen) -> bytes:
    target = open_private()
    try:
        target.execute("ATTACH ? AS source", (read_only_uri(source),))
        # rows are the source's own: what it holds against its constraints is kept
        target.execute("PRAGMA ignore_check_constraints = ON")
        target.execute("BEGIN")
        for table in schema.tables:
            target.execute(table.sql)
            _copy_rows(target, table, chosen[table.name])
        kept = {table.name.lower() for table in schema.tables}
        for kind, on, sql in list(target.execute(_AFTER_ROWS)):
            if kind == "view" or on.lower() in kept:
                _rebuild(target, kind, sql)
        target.execute("COMMIT")
        target.execute("DETACH source")
        return target.serialize("main")
    finally:
        target.close()


def _rebuild(target: Connection, kind: str, sql: str) -> None:
    try:
        target.execute(sql)
    except SQLiteError:
        if kind != "index":
            raise
        # an application's collation or function: no result rests on the index


def _copy_rows(target: Connection, table: Table, chosen: dict[Key, None]) -> None:
    names = [quote_name(column.name) for column in table.columns if not column.generated]
    if not (table.without_rowid or _own_rowid(table)):
        names.insert(0, _rowid_name(table))
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


def _key_columns(table: Table) -> list[str]:
    if table.without_rowid:
        return [quote_name(name) for name in table.primary_key]
    return [_rowid_name(table)]


def _keys(alias: str, table: Table) -> str:
    return ", ".join(f"{alias}.{name}" for name in _key_columns(table))


def _is_key(alias: str, table: Table) -> str:
    return " AND ".join(f"{alias}.{name} = ?" for name in _key_columns(table))


def _rowid_name(table: Table) -> str:
    taken = {column.name.lower() for column in table.columns}
    return next(name for name in ("rowid", "_rowid_", "oid") if name not in taken)


def _own_rowid(table: Table) -> bool:
    """True where an INTEGER PRIMARY KEY column is the rowid already."""
    return any(
        column.type.upper() == "INTEGER" and table.primary_key == (column.name,)
        for column in table.columns
    )


def _key_order(key: Key) -> tuple[tuple[str, object], ...]:
    """Keys of one table in an order of their own, whatever types they mix."""
    return tuple((type(part).__name__, part) for part in key)
