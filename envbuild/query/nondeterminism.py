"""The same query under other conditions: ties, scan order, clock, chance, bare columns."""

import datetime
import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from sqlglot import exp

from envbuild.query.parse import parse_statement
from envbuild.records.corpus import Schema
from envbuild.records.execution import Limits, QueryResult, Row, Rows, Value
from envbuild.sql.connect import Connection, iter_rows, open_read_only, quote_name, read_only_uri
from envbuild.sql.execution.session import DEFAULT_LIMITS, Session
from envbuild.sql.names import fold_name
from envbuild.sql.tokens import Kind, Token, iter_code, unquote
from envbuild.sql.verdicts import equal_bag, equal_bag_within

# Gold SQL with its ties broken: every LIMITed query ordered further by its own result columns.
#
# Where rows tie under ORDER BY, LIMIT keeps whichever SQLite met first. Ordering the tied rows by
# all result columns, once upwards and once downwards, keeps the first and the last of them: where
# the two results differ, the data do not determine the gold's.


_FAR_TERM = 32_000
"""A column no query has; SQLite's refusal names the last one there is."""
_RANGE = re.compile(r"ORDER BY term out of range - should be between 1 and (\d+)")


class LimitSite(NamedTuple):
    """One LIMIT of a query, at any depth."""

    position: int
    """Where its keyword stands in the text."""
    ordered: bool
    """An ORDER BY stands before it in the same query."""
    skips: bool
    """It skips rows: OFFSET, or a comma."""


def limit_sites(sql: str) -> tuple[LimitSite, ...]:
    """Every LIMIT of `sql`, inner queries' and compound ones' too, in text order."""
    sites: list[LimitSite] = []
    # The last LIMIT at each depth, one of which an OFFSET or a comma may belong to.
    open_limits: list[int | None] = [None]
    # One query (or compound of them) per pair of parentheses; windows never hold a LIMIT.
    ordered = [False]
    after_order = False
    for kind, start, end in iter_code(sql):
        text = sql[start:end]
        word = text.lower() if kind is Kind.WORD else ""
        if text == "(":
            ordered.append(False)
            open_limits.append(None)
        elif text == ")" and len(ordered) > 1:
            ordered.pop()
            open_limits.pop()
        elif after_order and word == "by":
            ordered[-1] = True
        elif word == "limit":
            open_limits[-1] = len(sites)
            sites.append(LimitSite(start, ordered[-1], False))
        elif (word == "offset" or text == ",") and (at := open_limits[-1]) is not None:
            sites[at] = sites[at]._replace(skips=True)
        after_order = word == "order"
    return tuple(sites)


def probe_columns(sql: str, site: LimitSite) -> str:
    """SQL that SQLite refuses to compile, naming how many result columns the site's query has."""
    return _spliced(sql, [(site, str(_FAR_TERM))])


def columns_named(error: str) -> int:
    """The number of columns in the refusal of a probe; 0 where it says something else."""
    found = _RANGE.search(error)
    return int(found.group(1)) if found else 0


def break_ties(sql: str, columns: Sequence[tuple[LimitSite, int]], *, direction: str) -> str:
    """`sql` with the ties at each site broken by its `n` result columns, `ASC` or `DESC`."""
    terms = [
        (site, ", ".join(f"{n} COLLATE BINARY {direction}" for n in range(1, count + 1)))
        for site, count in columns
        if count
    ]
    return _spliced(sql, terms)


def shuffle_ties(sql: str, sites: Sequence[LimitSite]) -> str | None:
    """`sql` with the ties of LIMITs that skip rows in the order of `random()`; None without one.

    What lies between the skipped rows and the cut may be the same from both ends, and another
    in between. A LIMIT of several queries together (UNION) takes no such term: that SQL fails.
    """
    terms = [(site, "random()") for site in sites if site.skips]
    return _spliced(sql, terms) if terms else None


def _spliced(sql: str, terms: Sequence[tuple[LimitSite, str]]) -> str:
    for site, text in sorted(terms, reverse=True):
        lead = ", " if site.ordered else " ORDER BY "
        sql = f"{sql[: site.position]}{lead}{text} {sql[site.position :]}"
    return sql


# Gold SQL whose windows are ordered to the end: rows that tie get the order in which they arrive.
#
# `ROW_NUMBER() OVER (ORDER BY amount)` numbers rows of one amount as SQLite meets them. With a
# last term `random()` behind the window's own ones the tied rows stand in the order that this
# function gives, and nothing else changes; run in several orders (`conditions.ReorderedSession`),
# a query that the data determine gives one result. The text is spliced, not rendered anew.


_BY_POSITION = frozenset(("row_number", "ntile", "lag", "lead"))
"""Functions of a row's position: they know neither frame nor peers."""
_BY_PEERS = frozenset(("rank", "dense_rank", "percent_rank", "cume_dist"))
"""Functions that count rows which tie as one place, whatever the frame says."""
_STARTS = frozenset(("partition", "order", "rows", "range", "groups"))
_FRAMES = frozenset(("rows", "range", "groups"))


def break_window_ties(sql: str) -> str | None:
    """`sql` with ties broken inside its windows by `random()`; None where no window allows it.

    Left alone is a window under which rows that tie count as peers (`RANK`, a RANGE or GROUPS
    frame): one more term would change what the query means.
    """
    windows = _Windows(sql)
    places = sorted({place for place in windows.places() if place}, reverse=True)
    for position, ordered in places:
        lead = ", " if ordered else " ORDER BY "
        sql = f"{sql[:position]}{lead}random() {sql[position:]}"
    return sql if places else None


class _Place(NamedTuple):
    """Where a term of a window's ORDER BY may be added."""

    position: int
    ordered: bool
    """Other terms stand before it."""


class _Window(NamedTuple):
    """One window definition between its parentheses."""

    base: str
    """The folded name of the window it is built on; empty without one."""
    place: _Place
    frame: str
    """The folded words of the frame; empty without one."""


class _Windows:
    """The window definitions of one text, and the functions that use them."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = list(iter_code(sql))
        self._words = [self._word(token) for token in self._tokens]

    def places(self) -> Iterator[_Place | None]:
        """Where every use of a window bears one term more; None where one does not."""
        named = dict(self._named())
        uses: dict[str, list[bool]] = {name: [] for name in named}
        for number, word in enumerate(self._words[:-1]):
            function = self._function_before(number) if word == "over" else ""
            if not function:
                continue
            if self._words[number + 1] != "(":
                name = self._name(number + 1)
                if name in named:
                    uses[name].append(_bears_more(function, named[name].frame))
                continue
            window = self._window(number + 1)
            bears = _bears_more(function, window.frame)
            if window.base in named:
                uses[window.base].append(bears)
                bears = bears and not named[window.base].place.ordered
            yield window.place if bears and not window.base else None
        for name, window in named.items():
            yield window.place if uses[name] and all(uses[name]) and not window.base else None

    def _named(self) -> Iterator[tuple[str, _Window]]:
        """`WINDOW a AS (…), b AS (…)`: every definition by its folded name."""
        number = 0
        while number < len(self._words) - 3:
            listed = self._words[number] == "window"
            number += 1
            while listed and self._words[number + 1 : number + 3] == ["as", "("]:
                yield self._name(number), self._window(number + 2)
                closing = self._closing(number + 2)
                listed = self._words[closing + 1 : closing + 2] == [","]
                number = closing + 2

    def _window(self, opening: int) -> _Window:
        closing = self._closing(opening)
        place = self._tokens[closing].start if closing < len(self._tokens) else len(self._sql)
        inner = self._level(opening, closing)
        words = [self._words[number] for number in inner]
        based = bool(inner) and words[0] not in _STARTS
        frame = next((at for at, word in enumerate(words) if at and word in _FRAMES), len(words))
        if words[:1] and words[0] in _FRAMES:
            frame = 0
        if frame < len(words):
            place = self._tokens[inner[frame]].start
        return _Window(
            base=self._name(inner[0]) if based else "",
            place=_Place(place, "order" in words[:frame]),
            frame=" ".join(words[frame:]),
        )

    def _function_before(self, over: int) -> str:
        """The folded name of the function that an OVER belongs to; empty where it is no such."""
        closing = over - 1
        opening = self._opening(closing)
        if opening > 0 and self._words[opening - 1] == "filter":
            closing = opening - 2
            opening = self._opening(closing)
        return self._name(opening - 1) if opening > 0 else ""

    def _level(self, opening: int, closing: int) -> list[int]:
        """The tokens between two parentheses that stand in no further ones."""
        depth, found = 0, []
        for number in range(opening + 1, closing):
            depth += self._words[number] == "("
            if depth == 0:
                found.append(number)
            depth -= self._words[number] == ")"
        return found

    def _closing(self, opening: int) -> int:
        depth = 0
        for number in range(opening, len(self._words)):
            depth += (self._words[number] == "(") - (self._words[number] == ")")
            if depth == 0:
                return number
        return len(self._words)

    def _opening(self, closing: int) -> int:
        """The parenthesis that a closing one closes; 0 where the token is none."""
        depth = 0
        for number in range(closing, 0, -1):
            depth += (self._words[number] == ")") - (self._words[number] == "(")
            if depth == 0:
                return number if number < closing else 0
        return 0

    def _word(self, token: Token) -> str:
        text = self._sql[token.start : token.end]
        return text.lower() if token.kind in (Kind.WORD, Kind.OPERATOR) else ""

    def _name(self, number: int) -> str:
        token = self._tokens[number]
        return fold_name(unquote(self._sql[token.start : token.end]))


def _bears_more(function: str, frame: str) -> bool:
    """Whether one more term of its window's ORDER BY only orders what ties for this function."""
    if function in _BY_POSITION:
        return True
    if function in _BY_PEERS or "exclude group" in frame or "exclude ties" in frame:
        return False
    from_first = not frame or "unbounded preceding" in frame
    return frame.startswith("rows") or (function == "first_value" and from_first)


# Grouped queries whose bare columns are pinned: the least and the greatest value of each group.
#
# `SELECT name, count(*) … GROUP BY city` shows the name of whichever row SQLite met. With every
# such bare column wrapped in MIN and then in MAX, the two results are equal exactly where the
# column has one value a group. The text is spliced, not rendered anew: nothing else of it
# changes.


_OTHER_AGGREGATES = frozenset(
    ("total", "string_agg", "json_group_array", "json_group_object", "median", "percentile")
)
"""Aggregates of SQLite that the parser may not know."""


def pin_bare_columns(sql: str, column_names: frozenset[str]) -> tuple[str, str] | None:
    """The query with its bare columns under MIN, and under MAX; None where it has none.

    `column_names` are the database's, folded: a double-quoted word outside them is a string.
    None too where the parser cannot read the query, and for a group query with a single min() or
    max(): there SQLite takes bare columns from that row. `*` is left as it is.
    """
    tree = parse_statement(sql)
    if tree is None:
        return None
    spans = sorted(
        {
            span
            for select in tree.find_all(exp.Select)
            for column in _bare_columns(select, column_names)
            if (span := _span(sql, column))
        },
        reverse=True,
    )
    if not spans:
        return None
    return _wrapped(sql, spans, "MIN"), _wrapped(sql, spans, "MAX")


class Span(NamedTuple):
    """Where a bare column stands in the text."""

    start: int
    end: int
    alias: str
    """` AS "name"` where the column is a result column that others may know by its name."""


def _bare_columns(select: exp.Select, column_names: frozenset[str]) -> Iterator[exp.Column]:
    group = select.args.get("group")
    having, order = select.args.get("having"), select.args.get("order")
    outside = [part for part in (having, order) if part is not None]
    aggregates = [a for e in [*select.expressions, *outside] for a in _aggregates(e)]
    if group is None and not aggregates:
        return
    if sum(_is_extreme(a) for a in aggregates) == 1:
        return
    keys = _Keys.of(group.expressions if group else ())
    aliases = {fold_name(e.alias) for e in select.expressions if e.alias}
    sources = set(_sources(select))
    for position, projection in enumerate(select.expressions, start=1):
        if not keys.name(projection, position):
            yield from _columns(projection, column_names, sources, keys, frozenset())
    for part in outside:
        yield from _columns(part, column_names, sources, keys, frozenset(aliases))


def _columns(
    node: exp.Expr,
    column_names: frozenset[str],
    sources: set[str],
    keys: "_Keys",
    aliases: frozenset[str],
) -> Iterator[exp.Column]:
    """Columns below `node` outside aggregates, inner queries and group keys."""
    if isinstance(node, exp.Column):
        known = fold_name(node.name) in column_names
        own = (
            fold_name(node.table) in sources if node.table else fold_name(node.name) not in aliases
        )
        if known and own and not keys.hold(node):
            yield node
    elif not (isinstance(node, exp.Query) or _is_aggregate(node) or keys.hold(node)):
        for child in node.iter_expressions():
            yield from _columns(child, column_names, sources, keys, aliases)


class _Keys(NamedTuple):
    """The expressions of a GROUP BY, as text; rendering is dear, so columns stand apart."""

    columns: frozenset[str]
    others: frozenset[str]

    @classmethod
    def of(cls, expressions: Iterable[exp.Expr]) -> "_Keys":
        columns = [e for e in expressions if isinstance(e, exp.Column)]
        others = [e for e in expressions if not isinstance(e, exp.Column)]
        return cls(frozenset(map(_text, columns)), frozenset(map(_text, others)))

    def hold(self, node: exp.Expr) -> bool:
        """Whether the node is one of them, word by word."""
        known = self.columns if isinstance(node, exp.Column) else self.others
        return bool(known) and _text(node) in known

    def name(self, projection: exp.Expr, position: int) -> bool:
        """Whether they name a result column: by alias, position or text."""
        alias = fold_name(projection.alias or "")
        return (
            alias in self.columns or str(position) in self.others or self.hold(projection.unalias())
        )


def _aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    if _is_aggregate(node):
        yield node
    elif not isinstance(node, exp.Query):
        for child in node.iter_expressions():
            yield from _aggregates(child)


def _is_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.Filter):
        return True
    if isinstance(node.parent, exp.Window) and node.arg_key == "this":
        return False  # a window function: its arguments are evaluated after grouping
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _OTHER_AGGREGATES
    scalar = isinstance(node, exp.Max | exp.Min) and node.expressions
    return isinstance(node, exp.AggFunc) and not scalar


def _is_extreme(node: exp.Expr) -> bool:
    inner = node.this if isinstance(node, exp.Filter) else node
    return isinstance(inner, exp.Max | exp.Min)


def _sources(select: exp.Select) -> Iterator[str]:
    clauses = [select.args.get("from_") or select.args.get("from"), *select.args.get("joins", ())]
    for clause in clauses:
        if clause is not None and clause.this is not None:
            yield fold_name(clause.this.alias_or_name)


def _text(node: exp.Expr) -> str:
    if isinstance(node, exp.Column):  # nearly all, and rendering is dear
        return fold_name(".".join(part.name for part in node.parts))
    return fold_name(node.sql(dialect="sqlite"))


def _span(sql: str, column: exp.Column) -> Span | None:
    """Where the column stands in the text; None where the parser does not say so exactly."""
    places = [(part.meta.get("start", -1), part.meta.get("end", -1)) for part in column.parts]
    if not places or min(min(place) for place in places) < 0:
        return None
    start, end = places[0][0], places[-1][1] + 1
    last = sql[places[-1][0] : end]
    if column.name not in (last, last[1:-1]):
        return None
    named = isinstance(column.parent, exp.Select) and column.arg_key == "expressions"
    return Span(start, end, f" AS {quote_name(column.name)}" if named else "")


def _wrapped(sql: str, spans: list[Span], function: str) -> str:
    for start, end, alias in spans:
        sql = f"{sql[:start]}{function}({sql[start:end]}){alias}{sql[end:]}"
    return sql


# The same database under other conditions: another row order, another time, other chance.
#
# A gold query whose result changes under them is not determined by the data. The conditions act
# through SQLite itself (a pragma, the clock of a virtual file system, a function of our own),
# never through the query's text.


INSTANTS = ("1970-01-02 03:04:05", "2004-02-29 12:00:00", "2026-07-15 09:30:00", "2101-12-31 23:59")
"""The times (UTC) at which a query that reads the clock is run."""
_UNIX_EPOCH_MS = 210_866_760_000_000
"""1970-01-01 in SQLite's clock: milliseconds since noon of -4713-11-24."""
_names = itertools.count()


def open_reversed(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Session:
    """A session in which SQLite walks unordered scans from the other end."""
    connection = open_read_only(path)
    connection.execute("PRAGMA reverse_unordered_selects = ON", can_cache=False)
    return Session(connection, limits=limits)


def open_seeded(path: Path, *, seed: int, limits: Limits = DEFAULT_LIMITS) -> Session:
    """A session whose random() and randomblob() follow from `seed`."""
    connection = open_read_only(path)
    chance = random.Random(seed)

    def number(*_: object) -> int:
        return chance.getrandbits(64) - (1 << 63)

    def blob(*size: Any) -> bytes:
        return chance.randbytes(max(1, int(size[0] or 0)))

    connection.create_scalar_function("random", number, 0)
    connection.create_scalar_function("randomblob", blob, 1)
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
        if tables:
            _stand_before_tables(connection)
        self._session = Session(connection, limits=limits)

    @classmethod
    def open(
        cls, path: Path, *, tables: bool, limits: Limits = DEFAULT_LIMITS
    ) -> "ReorderedSession":
        """Over a file, which is never written."""
        return cls(open_read_only(path), tables=tables, limits=limits)

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
            other.ok
            and not equal_bag(other.rows, first.rows)
            and not equal_bag_within(first.rows, other.rows, 0.0)
            for other in others
        )

    def close(self) -> None:
        """Releases the file."""
        self._session.close()


def _places(order: str) -> Iterator[int]:
    """The place of the first, second, third … row to arrive."""
    if order.startswith("shuffled"):
        chance = random.Random(order)
        return iter(lambda: chance.getrandbits(62), None)
    return itertools.count(0, -1 if order == "reversed" else 1)


def _stand_before_tables(connection: apsw.Connection) -> None:
    names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' "
    for (name,) in connection.execute(names + "ESCAPE '\\'", can_cache=False).fetchall():
        table = quote_name(str(name))
        connection.execute(
            # LIMIT keeps SQLite from dropping the ORDER BY of an inner query
            f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} ORDER BY random() LIMIT -1",
            can_cache=False,
        )


class ClockedSession:
    """A session whose clock stands where it is told to, and which knows whether it was read."""

    def __init__(self, path: Path, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._clock = _Clock(f"envbuild-clock-{next(_names)}")
        connection = apsw.Connection(
            # a file system of our own does not follow symbolic links as SQLite's does
            read_only_uri(Path(path).resolve()),
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            vfs=self._clock.name,
        )
        self._session = Session(connection, limits=limits)

    def run_at(self, instant: str, sql: str) -> QueryResult:
        """What the statement comes to when `now` is `instant` (`YYYY-MM-DD HH:MM`, UTC)."""
        self._clock.milliseconds = _clock_milliseconds(instant)
        self._clock.reads = 0
        return self._session.run(sql)

    @property
    def read_clock(self) -> bool:
        """True where the last run asked for the time."""
        return self._clock.reads > 0

    def close(self) -> None:
        """Releases the file and the clock."""
        self._session.close()
        self._clock.unregister()


class _Clock(apsw.VFS):
    """The default file system with a clock of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(name, base="")
        self.name = name
        self.milliseconds = _UNIX_EPOCH_MS
        self.reads = 0

    def xCurrentTimeInt64(self) -> int:  # noqa: N802 - the name SQLite's binding calls
        self.reads += 1
        return self.milliseconds


def _clock_milliseconds(instant: str) -> int:
    moment = datetime.datetime.fromisoformat(instant).replace(tzinfo=datetime.UTC)
    return _UNIX_EPOCH_MS + round(moment.timestamp() * 1000)


# Numbers stored as text, read as numbers: as text '95' follows '150', and 'null' counts as 0.


PLACEHOLDERS = ("", "null", "na", "n/a", "none", "nan", "-", "?", ".")
"""Texts that stand for no value in a column of numbers."""
_NUMBER = re.compile(r"-?[0-9]*\.?[0-9]+")


def number_columns(connection: Connection, schema: Schema) -> dict[str, tuple[str, ...]]:
    """Table -> its columns of text whose every value is a number or stands for none.

    A number with leading zeros is a code. A column needs two numbers of which one is text.
    """
    found: dict[str, tuple[str, ...]] = {}
    for table in schema.tables:
        named = [c.name for c in table.columns if _holds_numbers(connection, table.name, c.name)]
        if named:
            found[table.name] = tuple(named)
    return found


def open_as_numbers(
    path: Path, schema: Schema, columns: dict[str, tuple[str, ...]], *, limits: Limits
) -> Session:
    """A session that reads these columns as numbers, and what stands for none as NULL."""
    connection = open_read_only(path)
    for table in schema.tables:
        if named := columns.get(table.name):
            listed = ", ".join(
                _as_number(quote_name(c.name)) if c.name in named else quote_name(c.name)
                for c in table.columns
            )
            name = quote_name(table.name)
            connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {listed} FROM main.{name}")
    return Session(connection, limits=limits)


def same_numbers(one: Rows, other: Rows) -> bool:
    """Whether two results are equal as multisets once their texts of numbers are numbers."""
    return Counter(map(_read, one)) == Counter(map(_read, other))


def named_columns(columns: dict[str, tuple[str, ...]]) -> frozenset[str]:
    """The folded names of all these columns."""
    return frozenset(fold_name(name) for named in columns.values() for name in named)


def _holds_numbers(connection: Connection, table: str, column: str) -> bool:
    name, source = quote_name(column), quote_name(table)
    number = (
        f"({name} NOT GLOB '*[^0-9.-]*' AND {name} GLOB '*[0-9]' AND {name} NOT GLOB '*.*.*'"
        f" AND {name} NOT GLOB '?*-*' AND {name} NOT GLOB '0[0-9]*' AND {name} NOT GLOB '-0[0-9]*')"
    )
    text = f"typeof({name}) = 'text'"
    other = (
        f"SELECT 1 FROM {source} WHERE typeof({name}) = 'blob'"
        f" OR {text} AND NOT {_stands_for_none(name)} AND NOT {number} LIMIT 1"
    )
    if list(iter_rows(connection, other)):
        return False
    some = f"SELECT DISTINCT {name} FROM {source} WHERE {text} AND {number} LIMIT 2"
    return len(list(iter_rows(connection, some))) > 1


def _stands_for_none(name: str) -> str:
    listed = ", ".join(f"'{text}'" for text in PLACEHOLDERS)
    return f"lower(trim({name})) IN ({listed})"


def _as_number(name: str) -> str:
    read = f"CASE WHEN {_stands_for_none(name)} THEN NULL ELSE {name} END"
    return f"CAST({read} AS NUMERIC) AS {name}"


def _read(row: Row) -> Row:
    return tuple(map(_number, row))


def _number(value: Value) -> Value:
    if isinstance(value, str):
        if _NUMBER.fullmatch(value):
            return float(value)
        return None if value.strip().lower() in PLACEHOLDERS else value
    return round(value, 9) if isinstance(value, float) else value
