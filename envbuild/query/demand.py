"""What a gold query asks of rows: the tables it combines, its keys and its predicates."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from envbuild.query.parse import Comparison, compared, parse_statement, split_condition
from envbuild.records.corpus import Schema
from envbuild.records.execution import Value
from envbuild.records.signal import Clause, Condition, Demand, Extreme, Frame, Site

# Where an expression's value comes from: a base column, what is applied to it, or a literal.


PASSED = (exp.Paren, exp.Alias, exp.Cast, exp.TryCast, exp.Round, exp.Coalesce, exp.Collate)
"""Expressions that leave a value recognisable: the first argument is followed."""
FOLDS = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What an expression is, as far as rows can be chosen for it."""

    kind: str
    """`column`, `literal`, `count`, `rank` or `mixed`."""
    site: Site | None = None
    value: Value = None
    form: str = ""
    expression: exp.Expr | None = None
    """What is made of a column `v` on the way; None for the column itself."""
    fold: str = ""
    group: tuple[Site, ...] = ()
    """For a rank: its partition."""
    order: tuple[Extreme, ...] = ()
    """For a rank: what it is ordered by."""
    counted: str = ""
    """For a rank: `asc` or `desc` where it is ordered by a count."""
    counts: tuple[Site, ...] = ()
    """For a distinct count: what is counted."""
    chance: bool = False
    """A row number: ties are chance."""


MIXED = Origin(kind="mixed")
Look = Callable[[exp.Column], Origin]


def origin_of(node: exp.Expr, look: Look) -> Origin:
    """The origin of an expression; `look` resolves a column reference."""
    while isinstance(node, exp.Paren | exp.Alias):
        node = node.this
    if isinstance(node, PASSED):
        return _around(node, node.this, origin_of(node.this, look))
    if isinstance(node, exp.Column):
        return look(node)
    if (literal := literal_of(node)) is not None:
        return Origin(kind="literal", value=literal[0])
    for fold, name in FOLDS.items():
        if isinstance(node, fold):
            return _folded(node, name, look)
    if isinstance(node, exp.Window):
        return _windowed(node, look)
    if form := form_of(node):
        inner = origin_of(subject := _subject(node), look)
        found = replace(inner, form=inner.form or form) if inner.kind == "column" else inner
        return _around(node, subject, found)
    return MIXED


def _around(node: exp.Expr, child: exp.Expr, inner: Origin) -> Origin:
    """The origin of `node` from that of the part of it that is followed."""
    if inner.kind != "column":
        return inner
    own = set(map(id, child.find_all(exp.Column, exp.Query)))
    if any(id(part) not in own for part in node.find_all(exp.Column, exp.Query)):
        return inner  # other columns have a say: one value does not decide it
    outer = node.copy()
    place = outer.this
    while node.this is not child:
        node, place = node.this, place.this
    place.replace(inner.expression.copy() if inner.expression else exp.column("v"))
    return replace(inner, expression=outer)


def literal_of(node: exp.Expr) -> tuple[Value] | None:
    """The literal's value in a 1-tuple, or None where the expression is no literal."""
    if isinstance(node, exp.Literal):
        return (str(node.this),) if node.is_string else (_number(str(node.this)),)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        number = _number(str(node.this.this))
        return (-number,) if isinstance(number, int | float) else None
    if isinstance(node, exp.Boolean):
        return (int(bool(node.this)),)
    return (None,) if isinstance(node, exp.Null) else None


def form_of(node: exp.Expr) -> str:
    """The name of what a scalar function makes of its column; empty where rows cannot follow it."""
    if isinstance(node, exp.Lower):
        return "lower"
    if isinstance(node, exp.Upper):
        return "upper"
    if isinstance(node, exp.Length):
        return "length"
    if isinstance(node, exp.TimeToStr):
        pattern = node.args.get("format")
        return f"strftime:{pattern.this}" if isinstance(pattern, exp.Literal) else ""
    if isinstance(node, exp.Substring):
        start, length = (_whole(node.args.get(name)) for name in ("start", "length"))
        return f"substr:{start}:{length}" if start else ""
    if isinstance(node, exp.Date | exp.TsOrDsToDate):
        return "date"
    if isinstance(node, exp.Trim | exp.Abs):
        return "same"
    return ""


def _subject(node: exp.Expr) -> exp.Expr:
    inner = node.this
    while isinstance(inner, exp.TsOrDsToTimestamp | exp.TsOrDsToDate | exp.Date):
        inner = inner.this
    return inner if isinstance(inner, exp.Expr) else exp.Null()


def descends(key: exp.Expr) -> bool:
    """True for an ORDER BY key that puts the largest first."""
    return bool(key.args.get("desc"))


def _whole(node: exp.Expr | None) -> str:
    found = literal_of(node) if node is not None else None
    return str(found[0]) if found and isinstance(found[0], int) else ""


def _folded(node: exp.Expr, name: str, look: Look) -> Origin:
    inner = node.this
    distinct = isinstance(inner, exp.Distinct)
    if isinstance(inner, exp.Distinct) and inner.expressions:
        inner = inner.expressions[0]
    if name == "count":
        counted = origin_of(inner, look) if distinct else MIXED
        return Origin(kind="count", counts=(counted.site,) if counted.site else ())
    if not isinstance(inner, exp.Expr):
        return MIXED
    found = origin_of(inner, look)
    return replace(found, fold=name) if found.kind == "column" else MIXED


def _windowed(node: exp.Window, look: Look) -> Origin:
    if not isinstance(node.this, RANKS):
        return origin_of(node.this, look)
    parts = [origin_of(part, look) for part in node.args.get("partition_by") or ()]
    order = node.args.get("order")
    keys = [(origin_of(k.this, look), descends(k)) for k in (order.expressions if order else ())]
    return Origin(
        kind="rank",
        group=tuple(part.site for part in parts if part.site),
        order=tuple((key.site, desc) for key, desc in keys if key.site),
        counted=next(("desc" if desc else "asc" for key, desc in keys if key.kind == "count"), ""),
        chance=isinstance(node.this, exp.RowNumber),
    )


def _number(text: str) -> Value:
    try:
        return int(text, 0) if not text.isdigit() else int(text)
    except ValueError:
        return float(text)


# The growing side of reading a query: name scopes, relations, and the draft of a frame.


MAX_SOURCES = 40
"""Table occurrences a frame may hold: CTEs that use each other twice would double it each time."""
MAX_SIBLINGS = 40
"""More rows than this are not made for one group bound."""


@dataclass(slots=True)
class Relation:
    """The columns of a source or a query, in order, with where each comes from."""

    names: list[str] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)

    def add(self, name: str, origin: Origin) -> None:
        """Puts one column behind the others."""
        self.names.append(name)
        self.origins.append(origin)

    def extend(self, other: "Relation") -> None:
        """Puts another relation's columns behind these."""
        self.names += other.names
        self.origins += other.origins

    def named(self, name: str) -> Origin:
        """The origin of a column; MIXED where there is none of that name."""
        return self.origins[self.names.index(name)] if name in self.names else MIXED

    def renamed(self, names: list[str]) -> "Relation":
        """The same columns under a CTE's own column list, where it has one."""
        return Relation(names + self.names[len(names) :], self.origins) if names else self

    def at(self, key: exp.Expr) -> Origin:
        """What an ORDER BY key names: a position or an output column."""
        if isinstance(key, exp.Literal) and not key.is_string:
            position = int(float(key.this)) - 1
            return self.origins[position] if 0 <= position < len(self.origins) else MIXED
        if isinstance(key, exp.Column) and not key.table:
            return self.named(key.name.lower())
        return MIXED


@dataclass(slots=True)
class Scope:
    """Names in sight: sources by alias, CTEs by name, and the enclosing scope."""

    sources: dict[str, Relation] = field(default_factory=dict)
    ctes: dict[str, tuple[exp.CTE, "Scope"]] = field(default_factory=dict)
    parent: "Scope | None" = None
    hidden: frozenset[str] = frozenset()

    def child(self) -> "Scope":
        """A scope inside this one."""
        return Scope(parent=self, hidden=self.hidden)

    def hiding(self, name: str) -> "Scope":
        """This scope without one CTE: a recursive reference to it leads nowhere."""
        return Scope(parent=self, hidden=self.hidden | {name})

    def without_recursion(self, node: exp.Expr) -> "Scope":
        """The scope for the second half of a set operation."""
        return Scope(parent=self, hidden=self.hidden)

    def cte(self, name: str) -> "tuple[exp.CTE, Scope] | None":
        """The CTE a table name means here, with the scope it was written in."""
        if name in self.hidden:
            return None
        scope: Scope | None = self
        while scope is not None:
            if name in scope.ctes:
                return scope.ctes[name]
            scope = scope.parent
        return None

    def column(self, column: exp.Column) -> Origin:
        """What a column reference means, inner scopes first."""
        name, table = column.name.lower(), column.table.lower()
        scope: Scope | None = self
        while scope is not None:
            if table:
                if table in scope.sources:
                    return scope.sources[table].named(name)
            else:
                for relation in scope.sources.values():
                    if name in relation.names:
                        return relation.named(name)
            scope = scope.parent
        return MIXED


@dataclass(slots=True)
class Draft:
    """A frame while it grows."""

    sources: list[str] = field(default_factory=list)
    same: list[tuple[Site, Site]] = field(default_factory=list)
    clauses: list[Clause] = field(default_factory=list)
    soft: list[Condition] = field(default_factory=list)
    optional: list[int] = field(default_factory=list)
    group: tuple[Site, ...] = ()
    siblings: int = 1
    distinct: list[Site] = field(default_factory=list)
    limit: int = 0
    ordered: list[Extreme] = field(default_factory=list)
    extremes: list[Extreme] = field(default_factory=list)
    counted: str = ""
    counted_over: tuple[int, ...] = ()
    repeats: list[Site] = field(default_factory=list)
    shown: tuple[Site, ...] = ()

    def add(self, table: str) -> int:
        """The position of one more occurrence of a base table."""
        self.sources.append(table)
        return len(self.sources) - 1

    @property
    def full(self) -> bool:
        """True when no further occurrence is taken in."""
        return len(self.sources) >= MAX_SOURCES

    def set_group(self, keys: tuple[Site, ...]) -> None:
        """The query's grouping, unless a query inside has one already."""
        self.group = self.group or keys

    def bound(self, left: Origin, op: str, right: list[Origin]) -> None:
        """A bound on a count or a rank, as the number of siblings that reaches past it."""
        if left.kind == "rank":
            self.group = left.group
            (self.ordered if left.chance else self.extremes).extend(left.order)
            if left.counted and not self.counted:
                self.counted, self.counted_over = left.counted, tuple(range(len(self.sources)))
        numbers = [side.value for side in right if isinstance(side.value, int | float)]
        if not numbers:
            return
        wanted = int(max(numbers)) + (op in (">", "!=") or left.kind == "rank")
        if left.kind == "count" and op in ("<", "<="):
            wanted = 1
        self.siblings = max(self.siblings, min(wanted, MAX_SIBLINGS))
        if left.kind == "count":
            self.distinct.extend(left.counts)

    def copied(self) -> "Draft":
        """A draft of its own with the same rows asked for."""
        return replace(
            self,
            sources=list(self.sources),
            same=list(self.same),
            clauses=list(self.clauses),
            soft=list(self.soft),
            optional=list(self.optional),
            distinct=list(self.distinct),
            ordered=list(self.ordered),
            extremes=list(self.extremes),
            repeats=list(self.repeats),
        )

    def frozen(self) -> Frame:
        """The finished frame."""
        return Frame(
            sources=tuple(self.sources),
            same=tuple(dict.fromkeys(self.same)),
            clauses=tuple(self.clauses),
            soft=tuple(dict.fromkeys(self.soft)),
            optional=tuple(self.optional),
            group=self.group,
            siblings=self.siblings,
            distinct=tuple(dict.fromkeys(self.distinct)),
            limit=self.limit,
            ordered=tuple(dict.fromkeys(self.ordered)),
            extremes=tuple(dict.fromkeys(self.extremes)),
            counted=self.counted,
            counted_over=self.counted_over,
            repeats=tuple(dict.fromkeys(self.repeats)),
            shown=self.shown,
        )


# Conditions of a query, read into the frame under construction: predicates, joins, subqueries.


Named = tuple[str, str]
"""(table, column)."""


class ConditionReader:
    """Reads boolean expressions; collects literals, joined columns and parts on the way."""

    def __init__(self) -> None:
        self.extra: list[Draft] = []
        self.joined: dict[tuple[Named, Named], None] = {}
        self.literals: dict[tuple[str, str, Value, str], None] = {}

    def query(self, node: exp.Expr, draft: Draft, scope: Scope) -> Relation:
        """Adds a subquery's rows to `draft`; the walker over queries knows how."""
        raise NotImplementedError

    def origin(
        self, node: exp.Expr, scope: Scope, aliases: dict[str, exp.Expr] | None = None
    ) -> Origin:
        """Where an expression's value comes from; `aliases` name result columns for ORDER BY."""

        def look(column: exp.Column) -> Origin:
            found = scope.column(column)
            if found is MIXED and aliases and not column.table:
                named = aliases.get(column.name.lower())
                return origin_of(named, scope.column) if named is not None else MIXED
            if found is MIXED and column.this.args.get("quoted") and not column.table:
                return Origin(kind="literal", value=column.name)
            return found

        return origin_of(node, look)

    def require(
        self,
        node: exp.Expr,
        draft: Draft,
        scope: Scope,
        aliases: dict[str, exp.Expr] | None = None,
    ) -> None:
        """Adds a boolean expression to what the draft's rows must satisfy."""
        for part, negated in split_condition(node):
            clause = self.clause(part, negated, draft, scope, aliases)
            if clause and any(clause):
                draft.clauses.append(clause)

    def clause(
        self,
        node: exp.Expr,
        negated: bool,
        draft: Draft,
        scope: Scope,
        aliases: dict[str, exp.Expr] | None,
        *,
        choice: bool = False,
    ) -> Clause:
        """One condition as alternatives; empty where nothing can be said of it.

        `choice`: it stands beside an OR, so no row must meet it.
        """
        while isinstance(node, exp.Paren):
            node = node.this
        either = exp.And if negated else exp.Or
        if isinstance(node, either):
            alternatives: list[tuple[Condition, ...]] = []
            for side in (node.this, node.expression):
                parts = [
                    self.clause(part, sign, draft, scope, aliases, choice=True)
                    for part, sign in split_condition(side, negated)
                ]
                if len(parts) == 1:
                    alternatives.extend(parts[0])
                else:
                    alternatives.append(tuple(c for p in parts if p for c in p[0]))
            return tuple(a for a in alternatives if a)
        found = compared(node, negated)
        if found is None:
            return ()
        if found.query is not None:
            self.nested(found, draft, scope, choice)
            return ()
        return self.plain(found, draft, scope, aliases, choice)

    def plain(
        self,
        found: Comparison,
        draft: Draft,
        scope: Scope,
        aliases: dict[str, exp.Expr] | None,
        choice: bool,
    ) -> Clause:
        """The same for a comparison without a subquery; equal columns are joined in the draft."""
        sides = [self.origin(node, scope, aliases) for node in found.operands]
        left, op = sides[0], found.op
        if left.kind == "literal" and len(sides) == 2:
            sides.reverse()
            left, op = sides[0], found.flipped
        if left.kind in ("count", "rank"):
            draft.bound(left, op, sides[1:])
            return ()
        if left.site is None:
            return ()
        table = draft.sources[left.site[0]] if left.site[0] < len(draft.sources) else ""
        if len(sides) == 2 and sides[1].site and sides[1].kind == "column":
            other = sides[1].site
            self.note_join(draft, left.site, other)
            if op == "=" and not choice and not (left.form or sides[1].form):
                if not (left.fold in ("sum", "avg") or sides[1].fold in ("sum", "avg")):
                    draft.same.append((left.site, other))
                return ()
            return ((Condition(site=left.site, op=op, other=other, form=left.form),),)
        expression = left.expression.sql("sqlite") if left.expression else "v"
        for node in found.operands:
            if isinstance(node, exp.Collate) and " COLLATE " not in expression:
                expression += f" COLLATE {node.expression.sql('sqlite')}"
        values = [side.value for side in sides[1:] if side.kind == "literal"]
        if len(values) != len(sides) - 1:
            return ()
        for value in values:
            self.literals[(table, left.site[1], value, left.form)] = None
        return (
            (
                Condition(
                    site=left.site,
                    op=op,
                    values=tuple(values),
                    form=left.form,
                    expression=expression,
                    fold=left.fold,
                ),
            ),
        )

    def nested(self, found: Comparison, draft: Draft, scope: Scope, choice: bool) -> None:
        """A subquery in a condition: joined in where a match is wanted, else a part of its own."""
        assert found.query is not None
        if found.negated or choice:
            both = draft.copied()
            relation = self.query(found.query, both, scope.child())
            if found.operands:
                self.equate_first(found, both, scope, relation)
            self.extra.append(both)
            return
        relation = self.query(found.query, draft, scope.child())
        if found.operands:
            self.equate_first(found, draft, scope, relation)

    def equate_first(
        self, found: Comparison, draft: Draft, scope: Scope, relation: Relation
    ) -> None:
        """Joins what a comparison tests with the subquery's first column."""
        left = self.origin(found.operands[0], scope)
        right = relation.origins[0] if relation.origins else MIXED
        if left.site and right.site and found.op == "=" and right.fold not in ("sum", "avg"):
            self.join(draft, left.site, right.site)
        elif left.site and right.site:
            self.note_join(draft, left.site, right.site)

    def alone(self, node: exp.Expr, draft: Draft, scope: Scope) -> None:
        """A subquery whose rows are a part of their own."""
        part = draft.copied()
        self.query(node, part, scope.child())
        self.extra.append(part)

    def soft(self, node: exp.Select, draft: Draft, scope: Scope) -> None:
        """Conditions inside CASE and FILTER steer values without being required."""
        for inner in node.find_all(exp.If, exp.Filter):
            if inner.find_ancestor(exp.Select) is not node:
                continue
            test = inner.expression.this if isinstance(inner, exp.Filter) else inner.this
            for part, negated in split_condition(test):
                for conjunction in self.clause(part, negated, draft, scope, None, choice=True):
                    draft.soft.extend(conjunction)

    def join(self, draft: Draft, left: Site, right: Site) -> None:
        """Two columns that hold equal values."""
        draft.same.append((left, right))
        self.note_join(draft, left, right)

    def note_join(self, draft: Draft, left: Site, right: Site) -> None:
        """Remembers two columns that the query compares."""
        named = [(draft.sources[position], column) for position, column in (left, right)]
        self.joined[(named[0], named[1])] = None


# What a gold query asks of rows: the tables it combines, its keys and its predicates.
#
# It is a reading for choosing rows, not a semantics: what it cannot follow it leaves out, and
# SQLite has the last word by running the query.


MAX_PARTS = 24
"""Parts of one query that are looked at beside the whole."""


def read_demand(sql: str, schema: Schema) -> Demand:
    """What the query asks of rows; an empty demand where sqlglot cannot parse it."""
    tree = parse_statement(sql)
    if not isinstance(tree, exp.Query):
        return Demand()
    walker = _Walker(schema)
    try:
        draft = Draft()
        walker.query(tree, draft, Scope(), outermost=True)
    except RecursionError:
        return Demand()
    return walker.demand(draft)


def read_check(expression: str, table: str, schema: Schema) -> tuple[Clause, ...]:
    """The clauses of a CHECK expression over one table; empty where it cannot be followed."""
    demand = read_demand(f'SELECT 1 FROM "{table}" WHERE {expression}', schema)
    return demand.frames[0].clauses if demand.frames else ()


class _Walker(ConditionReader):
    """One query's walk: its queries and sources."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.tables = {table.name.lower(): table for table in schema.tables}

    def demand(self, first: Draft) -> Demand:
        frames = [d.frozen() for d in (first, *self.extra[:MAX_PARTS]) if d.sources]
        unique: list[Frame] = []
        for frame in frames:
            if frame not in unique:
                unique.append(frame)
        return Demand(
            frames=tuple(unique),
            joined=tuple(self.joined),
            literals=tuple(self.literals),
        )

    # queries

    def query(
        self, node: exp.Expr, draft: Draft, scope: Scope, *, outermost: bool = False
    ) -> Relation:
        """Adds the query's row combination to `draft`; returns its columns."""
        while isinstance(node, exp.Subquery | exp.Paren):
            node = node.this
        if (with_ := node.args.get("with_")) is not None:
            scope = scope.child()
            for cte in with_.expressions:
                scope.ctes[cte.alias.lower()] = (cte, scope.child())
        if isinstance(node, exp.SetOperation):
            return self.set_operation(node, draft, scope, outermost)
        if isinstance(node, exp.Select):
            return self.select(node, draft, scope, outermost)
        return Relation()

    def set_operation(
        self, node: exp.SetOperation, draft: Draft, scope: Scope, outermost: bool
    ) -> Relation:
        start = len(draft.sources)
        left = self.query(node.this, draft, scope, outermost=outermost)
        if isinstance(node, exp.Intersect):
            right = self.query(node.expression, draft, scope)
            self.equate(draft, left, right)
            return left
        if isinstance(node, exp.Except):
            both = Draft()
            mine = self.query(node.this, both, scope)
            self.equate(both, mine, self.query(node.expression, both, scope))
            self.extra.append(both)
        else:
            # a recursive CTE refers to itself: its anchor is what rows are chosen for
            other = Draft()
            self.query(node.expression, other, scope.without_recursion(node))
            self.extra.append(other)
        if start == 0:
            self.order(node, draft, left, outermost)
        return left

    def equate(self, draft: Draft, left: Relation, right: Relation) -> None:
        for mine, other in zip(left.origins, right.origins, strict=False):
            if mine.site and other.site:
                self.join(draft, mine.site, other.site)

    def select(self, node: exp.Select, draft: Draft, scope: Scope, outermost: bool) -> Relation:
        scope, start = scope.child(), len(draft.sources)
        if (from_ := node.args.get("from_")) is not None:
            self.source(from_.this, draft, scope)
        for join in node.args.get("joins") or ():
            self.join_source(join, draft, scope)
        own = tuple(range(start, len(draft.sources)))
        if (where := node.args.get("where")) is not None:
            self.require(where.this, draft, scope)
        if (group := node.args.get("group")) is not None:
            keys = self.keys(node, group.expressions, draft, scope)
            draft.set_group(keys)
        self.soft(node, draft, scope)
        if (having := node.args.get("having")) is not None:
            self.require(having.this, draft, scope, aliases=self.aliases(node))
        relation = self.projected(node, draft, scope)
        self.order(node, draft, relation, outermost, scope, own)
        if outermost:
            draft.shown = tuple(o.site for o in relation.origins if o.site and not o.fold)
        return relation

    def aliases(self, node: exp.Select) -> dict[str, exp.Expr]:
        return {e.alias.lower(): e.this for e in node.expressions if isinstance(e, exp.Alias)}

    def keys(
        self, node: exp.Select, keys: Iterable[exp.Expr], draft: Draft, scope: Scope
    ) -> tuple[Site, ...]:
        aliases, found = self.aliases(node), []
        for key in keys:
            if isinstance(key, exp.Literal) and not key.is_string:
                position = int(key.this) - 1
                if 0 <= position < len(node.expressions):
                    key = node.expressions[position]
            origin = self.origin(key, scope)
            if origin.site is None and isinstance(key, exp.Column):
                origin = self.origin(aliases.get(key.name.lower(), key), scope)
            if origin.site:
                found.append(origin.site)
        return tuple(found)

    def projected(self, node: exp.Select, draft: Draft, scope: Scope) -> Relation:
        relation = Relation()
        for column in node.expressions:
            if isinstance(column, exp.Star):
                for source in scope.sources.values():
                    relation.extend(source)
            elif isinstance(column, exp.Column) and isinstance(column.this, exp.Star):
                relation.extend(scope.sources.get(column.table.lower(), Relation()))
            else:
                for inner in column.find_all(exp.Subquery):
                    if inner.find_ancestor(exp.Subquery) is None or inner is column.unalias():
                        self.alone(inner, draft, scope)
                origin = self.origin(column, scope)
                if len(draft.sources) == 1:
                    draft.repeats.extend(origin.counts)
                relation.add(column.alias_or_name.lower(), origin)
        return relation

    def order(
        self,
        node: exp.Expr,
        draft: Draft,
        relation: Relation,
        outermost: bool,
        scope: Scope | None = None,
        own: tuple[int, ...] = (),
    ) -> None:
        limit = node.args.get("limit")
        for found in relation.origins:
            if found.site and found.fold in ("max", "min"):
                draft.extremes.append((found.site, found.fold == "max"))
        if limit is None:
            return
        if outermost and isinstance(limit.expression, exp.Literal):
            draft.limit = int(float(limit.expression.this))
        order = node.args.get("order")
        for key in order.expressions if order else ():
            origin = relation.at(key.this)
            if origin is MIXED and scope is not None:
                origin = self.origin(key.this, scope)
            if origin.kind == "count":
                if not draft.counted:
                    draft.counted, draft.counted_over = "desc" if descends(key) else "asc", own
            elif origin.site:
                draft.ordered.append((origin.site, descends(key)))

    # sources

    def source(self, node: exp.Expr, draft: Draft, scope: Scope) -> tuple[str, list[int]]:
        start = len(draft.sources)
        alias = node.alias_or_name.lower()
        relation = Relation()
        if draft.full:
            pass
        elif isinstance(node, exp.Table):
            name = node.name.lower()
            if (found := scope.cte(name)) is not None and not node.db:
                cte, inner = found
                relation = self.query(cte.this, draft, inner.hiding(name))
                columns = cte.args["alias"].columns if cte.args.get("alias") else ()
                relation = relation.renamed([c.name.lower() for c in columns])
            elif table := self.tables.get(name):
                position = draft.add(table.name)
                for column in table.columns:
                    relation.add(
                        column.name.lower(), Origin(kind="column", site=(position, column.name))
                    )
            for join in node.args.get("joins") or ():
                self.join_source(join, draft, scope)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            relation = self.query(node.this, draft, scope.child())
        elif isinstance(node, exp.Subquery | exp.Paren):
            return self.source(node.this, draft, scope)
        scope.sources[alias or f"#{len(scope.sources)}"] = relation
        return alias, list(range(start, len(draft.sources)))

    def join_source(self, join: exp.Join, draft: Draft, scope: Scope) -> None:
        before = dict(scope.sources)
        alias, added = self.source(join.this, draft, scope)
        if join.side == "LEFT":
            draft.optional.extend(added)
        right = scope.sources.get(alias, Relation())
        names = [identifier.name.lower() for identifier in join.args.get("using") or ()]
        if join.method == "NATURAL":
            names = [n for n in right.names if any(n in r.names for r in before.values())]
        for name in names:
            left = next((r.named(name) for r in before.values() if name in r.names), MIXED)
            other = right.named(name)
            if left.site and other.site:
                self.join(draft, left.site, other.site)
        if (on := join.args.get("on")) is not None:
            self.require(on, draft, scope)
