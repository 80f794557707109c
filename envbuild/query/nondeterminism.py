"""The same query under other conditions: ties, scan order, clock, chance, bare columns.

Queries are changed as trees and rendered; one that sqlglot cannot read is not looked at.
"""

import datetime
import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from sqlglot import exp

from envbuild.query.names import QueryNames
from envbuild.query.parse import parse_statement, render
from envbuild.records.corpus import Schema
from envbuild.records.execution import Limits, QueryResult, Row, Rows, Value
from envbuild.sql.connect import Connection, iter_rows, open_read_only, quote_name, read_only_uri
from envbuild.sql.execution.session import DEFAULT_LIMITS, Session
from envbuild.sql.names import fold_name
from envbuild.sql.verdicts import equal_bag


class TieBreaks(NamedTuple):
    """A query with the ties broken at every LIMIT, inner queries' too.

    Ordering tied rows by all result columns, once upwards and once downwards, keeps the first and
    the last of them: where the two results differ, the data do not determine the gold's.
    """

    upwards: str
    downwards: str
    shuffled: str | None
    """LIMITs that skip rows have `random()` behind their order; None where none skips any.

    What lies between the skipped rows and the cut may be the same from both ends, and another in
    between. A LIMIT of several queries together (UNION) takes no such term: that SQL fails.
    """
    ordered: bool
    """An ORDER BY stands before every LIMIT."""


def break_ties(sql: str, schema: Schema) -> TieBreaks | None:
    """The query with its ties broken; None without a LIMIT whose result columns are known."""
    tree = parse_statement(sql)
    if tree is None:
        return None
    names = QueryNames(tree, schema)
    limited = [
        (query, len(columns))
        for query in tree.find_all(exp.Select, exp.SetOperation)
        if query.args.get("limit") and (columns := names.outputs(query))
    ]
    if not limited:
        return None
    skipping = [query for query, _ in limited if query.args.get("offset")]
    upwards, downwards = (
        _ordered_further(tree, [(query, _column_terms(count, down)) for query, count in limited])
        for down in (False, True)
    )
    shuffled = _ordered_further(tree, [(query, [_RANDOM]) for query in skipping])
    ordered = all(query.args.get("order") for query, _ in limited)
    return TieBreaks(upwards, downwards, shuffled if skipping else None, ordered)


_RANDOM = exp.Ordered(this=exp.Rand(), nulls_first=True)


def _column_terms(count: int, down: bool) -> list[exp.Expr]:
    # NULL's place is SQLite's own for the direction, so that no NULLS FIRST is written
    return [
        exp.Ordered(
            this=exp.Collate(this=exp.Literal.number(n), expression=exp.var("BINARY")),
            desc=down,
            nulls_first=not down,
        )
        for n in range(1, count + 1)
    ]


def _ordered_further(tree: exp.Expr, terms: list[tuple[exp.Expr, list[exp.Expr]]]) -> str:
    """The tree's SQL with terms behind the ORDER BY of queries or windows; it stays as it is."""
    before = [(node, node.args.get("order")) for node, _ in terms]
    for node, added in terms:
        order = node.args.get("order")
        further = order.copy() if order is not None else exp.Order(expressions=[])
        for term in added:
            further.append("expressions", term.copy())
        node.set("order", further)
    sql = render(tree)
    for node, order in before:
        node.set("order", order)
    return sql


_BY_POSITION = (exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead)
"""Functions of a row's position: they know neither frame nor peers."""
_BY_PEERS = (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist)
"""Functions that count rows which tie as one place, whatever the frame says."""


def break_window_ties(sql: str) -> str | None:
    """`sql` with ties broken inside its windows by `random()`; None where no window allows it.

    `ROW_NUMBER() OVER (ORDER BY amount)` numbers rows of one amount as SQLite meets them; run in
    several orders (`ReorderedSession`), a query that the data determine gives one result.
    Left alone is a window under which rows that tie count as peers (`RANK`, a RANGE or GROUPS
    frame): one more term would change what the query means.
    """
    tree = parse_statement(sql)
    windows = list(tree.find_all(exp.Window)) if tree is not None else []
    # in `WINDOW name AS (…)` the name stands where a use has its function
    named = {fold_name(w.name): w for w in windows if isinstance(w.this, exp.Identifier)}
    bear: dict[int, list[bool]] = {}
    for use in windows:
        definition = named.get(fold_name(use.alias), use)
        if not isinstance(use.this, exp.Identifier):
            spec = use.args.get("spec") or definition.args.get("spec")
            bear.setdefault(id(definition), []).append(_bears_more(use.this, spec))
    places = [w for w in windows if not w.alias and all(bear.get(id(w), [False]))]
    if tree is None or not places:
        return None
    return _ordered_further(tree, [(window, [_RANDOM]) for window in places])


def _bears_more(function: exp.Expr, spec: exp.Expr | None) -> bool:
    """Whether one more term of its window's ORDER BY only orders what ties for this function."""
    function = function.this if isinstance(function, exp.Filter) else function
    if isinstance(function, _BY_POSITION):
        return True
    frame = spec.args if spec is not None else {}
    if isinstance(function, _BY_PEERS) or str(frame.get("exclude")).upper() in ("GROUP", "TIES"):
        return False
    from_first = not frame or str(frame.get("start")).upper() == "UNBOUNDED"
    by_rows = str(frame.get("kind")).upper() == "ROWS"
    return by_rows or (isinstance(function, exp.FirstValue) and from_first)


_OTHER_AGGREGATES = frozenset(
    ("total", "string_agg", "json_group_array", "json_group_object", "median", "percentile")
)
"""Aggregates of SQLite that the parser may not know."""


def pin_bare_columns(sql: str, schema: Schema) -> tuple[str, str] | None:
    """The query with its bare columns under MIN, and under MAX; None where it has none.

    `SELECT name, count(*) … GROUP BY city` shows the name of whichever row SQLite met; the two
    results are equal exactly where the column has one value a group.
    None too where the parser cannot read the query, and for a group query with a single min() or
    max(): there SQLite takes bare columns from that row. `*` is left as it is.
    """
    tree = parse_statement(sql)
    if tree is None:
        return None
    names = QueryNames(tree, schema)
    bare = [c for select in tree.find_all(exp.Select) for c in _bare_columns(select, names)]
    pins = []
    for column in bare:
        pin = exp.Min(this=column.copy())
        # others may know a result column by its name
        shown = isinstance(column.parent, exp.Select) and column.arg_key == "expressions"
        column.replace(exp.alias_(pin, column.name, quoted=True, copy=False) if shown else pin)
        pins.append(pin)
    if not pins:
        return None
    least = render(tree)
    for pin in pins:
        pin.replace(exp.Max(this=pin.this))
    return least, render(tree)


def _bare_columns(select: exp.Select, names: QueryNames) -> list[exp.Column]:
    group = select.args.get("group")
    outside = [select.args[key] for key in ("having", "order") if select.args.get(key)]
    aggregates = [
        node
        for part in (*select.expressions, *outside)
        for node in part.walk(prune=_is_closed)
        if _is_aggregate(node)
    ]
    if (group is None and not aggregates) or sum(map(_is_extreme, aggregates)) == 1:
        return []
    keys = {_text(key) for key in group.expressions} if group is not None else set()
    aliases = {fold_name(e.alias) for e in select.expressions if e.alias}
    parts = outside + [
        shown
        for position, shown in enumerate(select.expressions, start=1)
        if keys.isdisjoint({fold_name(shown.alias), str(position), _text(shown.unalias())})
    ]
    found = []
    for part in parts:
        for node in part.walk(prune=lambda node: _is_closed(node) or _text(node) in keys):
            if isinstance(node, exp.Column) and _text(node) not in keys:
                aliased = part in outside and not node.table and fold_name(node.name) in aliases
                meant = None if aliased or node.is_star else names.resolve(node)
                if meant and meant[0] in names.sources(select):
                    found.append(node)
    return found


def _is_closed(node: exp.Expr) -> bool:
    """True for what no bare column stands in."""
    return isinstance(node, exp.Query) or _is_aggregate(node)


def _is_extreme(node: exp.Expr) -> bool:
    return isinstance(node.this if isinstance(node, exp.Filter) else node, exp.Max | exp.Min)


def _is_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.Filter):
        return True
    if isinstance(node.parent, exp.Window) and node.arg_key == "this":
        return False  # a window function: its arguments are evaluated after grouping
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _OTHER_AGGREGATES
    scalar = isinstance(node, exp.Max | exp.Min) and node.expressions
    return isinstance(node, exp.AggFunc) and not scalar


def _text(node: exp.Expr) -> str:
    return fold_name(node.sql(dialect="sqlite"))


# The same database under other conditions, which act through SQLite itself (a pragma, the clock of
# a virtual file system, a function of our own), never through the query's text.

INSTANTS = ("1970-01-02 03:04:05", "2004-02-29 12:00:00", "2026-07-15 09:30:00", "2101-12-31 23:59")
"""The times (UTC) at which a query that reads the clock is run."""
_UNIX_EPOCH_MS = 210_866_760_000_000
"""1970-01-01 in SQLite's clock: milliseconds since noon of -4713-11-24."""


def open_reversed(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Session:
    """A session in which SQLite walks unordered scans from the other end."""
    connection = open_read_only(path)
    connection.execute("PRAGMA reverse_unordered_selects = ON", can_cache=False)
    return Session(connection, limits=limits)


ROW_ORDERS = ("kept", "reversed", *(f"shuffled {n}" for n in range(1, 5)))
"""Orders that rows may be put in by the order in which they arrive.

The shuffled ones change what stands in the middle too; they are the same at every run."""


class ReorderedSession:
    """A session in which `ORDER BY random()` puts rows in the order that a run asks for.

    With `tables`, every table hands out its rows in that order, whatever its keys and indexes: a
    temporary view stands before it, and what a view lacks (`rowid`, MATCH) fails.
    """

    def __init__(
        self, connection: Connection, *, tables: bool = False, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        """Over a connection whose own `random()` this replaces for good."""
        self._places: Iterator[int] = iter(())
        connection.create_scalar_function("random", lambda *_: next(self._places), 0)
        connection.create_scalar_function("randomblob", self._blob, 1)
        own = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'sqlite_*'"
        for (name,) in connection.execute(own, can_cache=False).fetchall() if tables else ():
            # LIMIT keeps SQLite from dropping the ORDER BY of an inner query
            rows = f"SELECT * FROM main.{quote_name(str(name))} ORDER BY random() LIMIT -1"
            _stand_before(connection, str(name), rows)
        self._session = Session(connection, limits=limits)

    def _blob(self, *size: Any) -> bytes:
        return random.Random(next(self._places)).randbytes(max(1, int(size[0] or 0)))

    def run_in(self, order: str, sql: str) -> QueryResult:
        """What the statement comes to in one of ROW_ORDERS."""
        self._places = _places(order)
        return self._session.run(sql)

    def varies(self, sql: str) -> bool:
        """True where the orders give different multisets of rows.

        By more than the last digits of a float; a run that does not end well says nothing.
        """
        first = self.run_in(ROW_ORDERS[0], sql)
        others = (self.run_in(order, sql) for order in ROW_ORDERS[1:] if first.ok)
        return any(
            other.ok and not equal_bag(first.rows, other.rows, tolerance=0.0) for other in others
        )

    def close(self) -> None:
        """Releases the file."""
        self._session.close()


def _places(order: str) -> Iterator[int]:
    """The place of the first, second, third … row to arrive."""
    if order.startswith("shuffled"):
        chance = random.Random(order)
        return iter(lambda: chance.getrandbits(62) - (1 << 61), None)
    return itertools.count(0, -1 if order == "reversed" else 1)


def _stand_before(connection: Connection, table: str, view: str) -> None:
    """Who reads the table reads this view of `main`'s instead."""
    connection.execute(f"CREATE TEMP VIEW {quote_name(table)} AS {view}", can_cache=False)


class ClockedSession(apsw.VFS):
    """A session whose clock stands where it is told to, and which knows whether it was read.

    It is a file system of its own: from there SQLite takes the time.
    """

    def __init__(self, path: Path, *, limits: Limits = DEFAULT_LIMITS) -> None:
        name = f"envbuild-clock-{id(self)}"
        super().__init__(name, base="")
        self._milliseconds = _UNIX_EPOCH_MS
        self._reads = 0
        connection = apsw.Connection(
            # a file system of our own does not follow symbolic links as SQLite's does
            read_only_uri(Path(path).resolve()),
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            vfs=name,
        )
        self._session = Session(connection, limits=limits)

    def run_at(self, instant: str, sql: str) -> QueryResult:
        """What the statement comes to when `now` is `instant` (`YYYY-MM-DD HH:MM`, UTC)."""
        moment = datetime.datetime.fromisoformat(instant).replace(tzinfo=datetime.UTC)
        self._milliseconds = _UNIX_EPOCH_MS + round(moment.timestamp() * 1000)
        self._reads = 0
        return self._session.run(sql)

    @property
    def read_clock(self) -> bool:
        """True where the last run asked for the time."""
        return self._reads > 0

    def xCurrentTimeInt64(self) -> int:  # noqa: N802 - the name SQLite's binding calls
        """The time that SQLite is told."""
        self._reads += 1
        return self._milliseconds

    def close(self) -> None:
        """Releases the file and the clock."""
        self._session.close()
        self.unregister()


# Numbers stored as text, read as numbers: as text '95' follows '150', and 'null' counts as 0.

PLACEHOLDERS = ("", "null", "na", "n/a", "none", "nan", "-", "?", ".")
"""Texts that stand for no value in a column of numbers."""
_NUMBER = re.compile(r"-?(?!0[0-9])[0-9]*\.?[0-9]+", re.ASCII)
"""A text that is a number; one with leading zeros is a code."""


def as_number(value: Value) -> Value:
    """The number that a text stands for; None where it stands for no value."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        whole = value.lstrip("-").isdecimal() and len(value) < 19
        return int(value) if whole else float(value)
    return None if isinstance(value, str) and value.strip().lower() in PLACEHOLDERS else value


def number_columns(connection: Connection, schema: Schema) -> dict[str, tuple[str, ...]]:
    """Table -> its columns of text whose every value is a number or stands for none.

    A column needs two numbers of which one is text.
    """
    connection.create_scalar_function("as_number", lambda *v: as_number(v[0]), 1)
    found: dict[str, tuple[str, ...]] = {}
    for table in schema.tables:
        named = [c.name for c in table.columns if _holds_numbers(connection, table.name, c.name)]
        if named:
            found[table.name] = tuple(named)
    return found


def _holds_numbers(connection: Connection, table: str, column: str) -> bool:
    name, source = quote_name(column), quote_name(table)
    other = f"SELECT 1 FROM {source} WHERE typeof(as_number({name})) IN ('text', 'blob') LIMIT 1"
    texts = f"typeof({name}) = 'text' AND as_number({name}) IS NOT NULL"
    some = f"SELECT DISTINCT {name} FROM {source} WHERE {texts} LIMIT 2"
    try:
        return not list(iter_rows(connection, other)) and len(list(iter_rows(connection, some))) > 1
    except UnicodeDecodeError:
        return False


def open_as_numbers(
    path: Path, schema: Schema, columns: dict[str, tuple[str, ...]], *, limits: Limits
) -> Session:
    """A session that reads these columns as numbers, and what stands for none as NULL."""
    connection = open_read_only(path)
    nothing = ", ".join(f"'{text}'" for text in PLACEHOLDERS)
    # a session runs no function of our own
    read = "CAST(CASE WHEN lower(trim({0})) IN ({1}) THEN NULL ELSE {0} END AS NUMERIC) AS {0}"
    for table in schema.tables:
        if named := columns.get(table.name):
            quoted = [(quote_name(c.name), c.name in named) for c in table.columns]
            listed = ", ".join(read.format(c, nothing) if text else c for c, text in quoted)
            view = f"SELECT {listed} FROM main.{quote_name(table.name)}"
            _stand_before(connection, table.name, view)
    return Session(connection, limits=limits)


def same_numbers(one: Rows, other: Rows) -> bool:
    """Whether two results are equal as multisets once their texts of numbers are numbers."""
    return Counter(map(_numbers, one)) == Counter(map(_numbers, other))


def _numbers(row: Row) -> Row:
    numbers = map(as_number, row)
    return tuple(round(n, 9) if isinstance(n, float) else n for n in numbers)
