"""What a gold query asks of rows: the tables it combines, its keys and its predicates.

It is a reading for choosing rows, not a semantics: what it cannot follow it leaves out, and
SQLite has the last word by running the query.
"""

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from sqlglot import exp

from envbuild.query.names import QueryNames
from envbuild.query.parse import FLIPPED, Comparison, compared, parse_statement, split_condition
from envbuild.records.corpus import Schema
from envbuild.records.execution import Value
from envbuild.records.signal import Clause, Condition, Demand, Extreme, Frame, Site
from envbuild.sql.names import fold_name

MAX_SOURCES = 40
"""Table occurrences a frame may hold: CTEs that use each other twice would double it each time."""
MAX_SIBLINGS = 40
"""More rows than this are not made for one group bound."""
MAX_PARTS = 24
"""Parts of one query that are looked at beside the whole."""


def read_demand(sql: str, schema: Schema) -> Demand:
    """What the query asks of rows; an empty demand where sqlglot cannot parse it."""
    tree = parse_statement(sql)
    if not isinstance(tree, exp.Query):
        return Demand()
    try:
        return _Reader(QueryNames(tree, schema)).demand()
    except RecursionError:
        return Demand()


def read_check(expression: str, table: str, schema: Schema) -> tuple[Clause, ...]:
    """The clauses of a CHECK expression over one table; empty where it cannot be followed."""
    demand = read_demand(f'SELECT 1 FROM "{table}" WHERE {expression}', schema)
    return demand.frames[0].clauses if demand.frames else ()


# Where an expression's value comes from, and the draft of a frame.


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
Relation = list[tuple[str, Origin]]
"""The columns of a source or a query in order: folded name, and where each comes from."""


@dataclass(kw_only=True)
class Draft:
    """A frame while it grows; its fields are those of Frame."""

    sources: list[str] = field(default_factory=list)
    same: list[tuple[Site, Site]] = field(default_factory=list)
    clauses: list[Clause] = field(default_factory=list)
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

    def count(self, direction: str, over: range) -> None:
        """A count over these occurrences decides which rows are kept; the first such one stands."""
        if direction and not self.counted:
            self.counted, self.counted_over = direction, tuple(over)

    def bound(self, left: Origin, op: str, right: list[Origin]) -> None:
        """A bound on a count or a rank, as the number of siblings that reaches past it."""
        if left.kind == "rank":
            self.group = left.group
            (self.ordered if left.chance else self.extremes).extend(left.order)
            self.count(left.counted, range(len(self.sources)))
        numbers = [side.value for side in right if isinstance(side.value, int | float)]
        if not numbers:
            return
        wanted = int(max(numbers)) + (op in (">", "!=") or left.kind == "rank")
        if left.kind == "count":
            self.distinct.extend(left.counts)
            wanted = 1 if op in ("<", "<=") else wanted
        self.siblings = max(self.siblings, min(wanted, MAX_SIBLINGS))

    def copied(self) -> "Draft":
        """A draft of its own with the same rows asked for."""
        lists: dict[str, Any] = {k: list(v) for k, v in vars(self).items() if isinstance(v, list)}
        return replace(self, **lists)

    def finished(self) -> Frame:
        """The frame, each wish in it once."""
        fields: dict[str, Any] = vars(self) | {"sources": tuple(self.sources)}
        for name, value in fields.items():
            if isinstance(value, list):
                fields[name] = tuple(dict.fromkeys(value))
        return Frame(**fields)


# What scalar functions, aggregates and windows make of a column.


_PASSED = (exp.Paren, exp.Alias, exp.Cast, exp.TryCast, exp.Round, exp.Coalesce, exp.Collate)
"""Expressions that leave a value recognisable: the first argument is followed."""
_FOLDS = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
_RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank)
_FORMS: dict[type[exp.Expr], str] = {
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Length: "length",
    exp.Date: "date",
    exp.TsOrDsToDate: "date",
    exp.Trim: "same",
    exp.Abs: "same",
}


def _form_of(node: exp.Expr) -> str:
    """The name of what a scalar function makes of its column; empty where rows cannot follow it."""
    if isinstance(node, exp.TimeToStr):
        pattern = node.args.get("format")
        return f"strftime:{pattern.this}" if isinstance(pattern, exp.Literal) else ""
    if isinstance(node, exp.Substring):
        start, length = (_whole(node.args.get(name)) for name in ("start", "length"))
        return f"substr:{start}:{length}" if start else ""
    return _FORMS.get(type(node), "")


def _whole(node: exp.Expr | None) -> str:
    return str(node.to_py()) if node is not None and node.is_int else ""


def _literal(node: exp.Expr) -> Origin | None:
    if not isinstance(node, exp.Literal | exp.Neg | exp.Boolean | exp.Null):
        return None
    try:
        value = node.to_py()
    except ValueError:
        return None
    number = float(value) if isinstance(value, Decimal) else value
    return Origin(kind="literal", value=int(number) if isinstance(number, bool) else number)


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


def _direction(key: exp.Expr) -> str:
    return "desc" if key.args.get("desc") else "asc"


def _position(key: exp.Expr, columns: list[exp.Expr]) -> exp.Expr:
    """The column that a key such as `ORDER BY 2` counts to; the key itself where it does not."""
    if isinstance(key, exp.Literal) and key.is_int and 1 <= int(key.name) <= len(columns):
        return columns[int(key.name) - 1]
    return key


def _named(relation: Relation, name: str) -> Origin:
    return next((origin for known, origin in relation if known == name), MIXED)


class _Reader:
    """One query's reading: what its sources hold, and the parts that stand beside the whole."""

    def __init__(self, names: QueryNames) -> None:
        self.names = names
        self.relations: dict[int, Relation] = {}
        """By the FROM entry's node, as last walked."""
        self.extra: list[Draft] = []
        self.joined: dict[tuple[tuple[str, str], tuple[str, str]], None] = {}
        self.literals: dict[tuple[str, str, Value, str], None] = {}

    def demand(self) -> Demand:
        draft = Draft()
        self.query(self.names.root, draft, outermost=True)
        parts = [part for part in (draft, *self.extra[:MAX_PARTS]) if part.sources]
        return Demand(
            frames=tuple(dict.fromkeys(part.finished() for part in parts)),
            joined=tuple(self.joined),
            literals=tuple(self.literals),
        )

    # queries

    def query(self, node: exp.Expr, draft: Draft, *, outermost: bool = False) -> Relation:
        """Adds the query's row combination to `draft`; returns its columns."""
        node = node.unnest()
        if isinstance(node, exp.SetOperation):
            return self.set_operation(node, draft, outermost)
        return self.select(node, draft, outermost) if isinstance(node, exp.Select) else []

    def set_operation(self, node: exp.SetOperation, draft: Draft, outermost: bool) -> Relation:
        start, other = len(draft.sources), draft.copied()
        left = self.query(node.this, draft, outermost=outermost)
        if isinstance(node, exp.Intersect):
            self.equate(draft, left, self.query(node.expression, draft))
            return left
        if isinstance(node, exp.Except):
            mine = self.query(node.this, other)
            self.equate(other, mine, self.query(node.expression, other))
        else:
            self.query(node.expression, other)
        self.extra.append(other)
        if start == 0:
            self.order(node, draft, left, outermost, start)
        return left

    def equate(self, draft: Draft, left: Relation, right: Relation) -> None:
        for (_, mine), (_, other) in zip(left, right, strict=False):
            if mine.site and other.site:
                self.join(draft, mine.site, other.site)

    def select(self, node: exp.Select, draft: Draft, outermost: bool) -> Relation:
        start = len(draft.sources)
        if (from_ := node.args.get("from_")) is not None:
            self.source(from_.this, draft)
        for join in node.args.get("joins") or ():
            self.join_source(join, draft)
        if (where := node.args.get("where")) is not None:
            self.require(where.this, draft)
        if (group := node.args.get("group")) is not None:
            keys = [self.origin(_position(key, node.expressions)) for key in group.expressions]
            draft.group = draft.group or tuple(key.site for key in keys if key.site)
        self.choices(node, draft)
        if (having := node.args.get("having")) is not None:
            self.require(having.this, draft)
        relation = self.projected(node, draft)
        self.order(node, draft, relation, outermost, start)
        if outermost:
            draft.shown = tuple(o.site for _, o in relation if o.site and not o.fold)
        return relation

    def projected(self, node: exp.Select, draft: Draft) -> Relation:
        relation: Relation = []
        for column in node.expressions:
            if isinstance(column, exp.Star | exp.Column) and column.is_star:
                table = fold_name(column.table) if isinstance(column, exp.Column) else ""
                for source in self.names.sources(node):
                    if table in ("", fold_name(source.alias)):
                        relation += self.relations.get(id(source.node), [])
                continue
            for inner in column.find_all(exp.Subquery):
                if inner.find_ancestor(exp.Subquery) is None or inner is column.unalias():
                    part = draft.copied()
                    self.query(inner, part)
                    self.extra.append(part)
            origin = self.origin(column)
            if len(draft.sources) == 1:
                draft.repeats.extend(origin.counts)
            relation.append((fold_name(column.alias_or_name), origin))
        return relation

    def order(
        self, node: exp.Expr, draft: Draft, relation: Relation, outermost: bool, start: int
    ) -> None:
        for _, found in relation:
            if found.site and found.fold in ("max", "min"):
                draft.extremes.append((found.site, found.fold == "max"))
        limit, order = node.args.get("limit"), node.args.get("order")
        if limit is None:
            return
        if outermost and isinstance(limit.expression, exp.Literal):
            draft.limit = int(float(limit.expression.this))
        own = range(start, len(draft.sources))
        for key in order.expressions if order else ():
            origin = self.ordering(key.this, relation)
            if origin.kind == "count":
                draft.count(_direction(key), own)
            elif origin.site:
                draft.ordered.append((origin.site, _direction(key) == "desc"))

    def ordering(self, key: exp.Expr, relation: Relation) -> Origin:
        """What an ORDER BY key means: a position, an output column, or another expression."""
        if isinstance(key, exp.Literal) and key.is_int:
            position = int(key.name) - 1
            return relation[position][1] if 0 <= position < len(relation) else MIXED
        shown = MIXED
        if isinstance(key, exp.Column) and not key.table:
            shown = _named(relation, fold_name(key.name))
        return self.origin(key) if shown is MIXED else shown

    # sources

    def source(self, node: exp.Expr, draft: Draft) -> None:
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
            self.source(node.this, draft)  # parentheses around a join
        else:
            full = len(draft.sources) >= MAX_SOURCES
            self.relations[id(node.unnest())] = [] if full else self.relation(node, draft)
        for join in node.args.get("joins") or ():
            self.join_source(join, draft)

    def relation(self, node: exp.Expr, draft: Draft) -> Relation:
        """The columns of a table, CTE, view or derived table, its rows added to the draft."""
        if not isinstance(node, exp.Table):
            return self.query(node, draft)
        if (scope := self.names.query_of(node)) is not None:
            # a recursive CTE's own use asks for no more than its first SELECT does
            inner = [] if self.names.is_recursive(scope) else self.query(scope.expression, draft)
            names = scope.outer_columns
            renamed = [(fold_name(name), one[1]) for name, one in zip(names, inner, strict=False)]
            return renamed + inner[len(renamed) :]
        if (table := self.names.tables.get(fold_name(node.name))) is None:
            return []
        place = len(draft.sources)
        draft.sources.append(table.name)
        sites = [(place, column.name) for column in table.columns]
        return [(fold_name(site[1]), Origin(kind="column", site=site)) for site in sites]

    def join_source(self, join: exp.Join, draft: Draft) -> None:
        start = len(draft.sources)
        self.source(join.this, draft)
        if join.side == "LEFT":
            draft.optional.extend(range(start, len(draft.sources)))
        joined = set()
        for earlier, later, name in self.names.shared_columns(join):
            left, right = (_named(self.relations[id(s.node)], name) for s in (earlier, later))
            if name not in joined and left.site and right.site:
                self.join(draft, left.site, right.site)
            joined.add(name)
        if (on := join.args.get("on")) is not None:
            self.require(on, draft)

    # expressions

    def origin(self, node: exp.Expr) -> Origin:
        """Where an expression's value comes from."""
        while isinstance(node, exp.Paren | exp.Alias):
            node = node.this
        if isinstance(node, exp.Column):
            return self.column(node)
        if isinstance(node, _PASSED):
            return _around(node, node.this, self.origin(node.this))
        if (literal := _literal(node)) is not None:
            return literal
        if isinstance(node, _FOLDS):
            return self.aggregate(node)
        if isinstance(node, exp.Window):
            return self.rank(node) if isinstance(node.this, _RANKS) else self.origin(node.this)
        if form := _form_of(node):
            subject = node.this
            while isinstance(subject, exp.TsOrDsToTimestamp | exp.TsOrDsToDate | exp.Date):
                subject = subject.this
            if isinstance(subject, exp.Expr):
                inner = self.origin(subject)
                known = replace(inner, form=inner.form or form) if inner.kind == "column" else inner
                return _around(node, subject, known)
        return MIXED

    def column(self, column: exp.Column) -> Origin:
        """What a column reference means; a name that no source has may be an output's."""
        if found := self.names.resolve(column):
            source, meant = found
            return _named(self.relations.get(id(source.node), []), fold_name(meant.name))
        select = column.find_ancestor(exp.Select, exp.Alias)
        if isinstance(select, exp.Select) and not column.table:
            for output in select.expressions:
                if fold_name(output.alias) == fold_name(column.name):
                    return self.origin(output)
        return MIXED

    def aggregate(self, node: exp.Expr) -> Origin:
        distinct = isinstance(node.this, exp.Distinct)
        inner = node.this.expressions[0] if distinct else node.this
        if isinstance(node, exp.Count):
            counted = self.origin(inner) if distinct else MIXED
            return Origin(kind="count", counts=(counted.site,) if counted.site else ())
        found = self.origin(inner) if isinstance(inner, exp.Expr) else MIXED
        return replace(found, fold=node.key) if found.kind == "column" else MIXED

    def rank(self, node: exp.Window) -> Origin:
        parts = [self.origin(part) for part in node.args.get("partition_by") or ()]
        order = node.args.get("order")
        keys = [(self.origin(k.this), _direction(k)) for k in (order.expressions if order else ())]
        return Origin(
            kind="rank",
            group=tuple(part.site for part in parts if part.site),
            order=tuple((key.site, way == "desc") for key, way in keys if key.site),
            counted=next((way for key, way in keys if key.kind == "count"), ""),
            chance=isinstance(node.this, exp.RowNumber),
        )

    # conditions

    def require(self, node: exp.Expr, draft: Draft) -> None:
        """Adds a boolean expression to what the draft's rows must satisfy."""
        for part, negated in split_condition(node):
            clause = self.clause(part, negated, draft)
            if any(clause):
                draft.clauses.append(clause)

    def clause(
        self, node: exp.Expr, negated: bool, draft: Draft, *, choice: bool = False
    ) -> Clause:
        """One condition as alternatives; empty where nothing can be said of it.

        `choice`: it stands beside an OR, so no row must meet it.
        """
        if isinstance(node, exp.And if negated else exp.Or):
            alternatives: list[tuple[Condition, ...]] = []
            for side in (node.this, node.expression):
                parts = [
                    self.clause(part, sign, draft, choice=True)
                    for part, sign in split_condition(side, negated)
                ]
                if len(parts) == 1:
                    alternatives.extend(parts[0])
                else:
                    alternatives.append(tuple(c for p in parts if p for c in p[0]))
            return tuple(a for a in alternatives if a)
        found = compared(node, negated)
        if found is not None and found.query is not None:
            self.nested(found, found.query, draft, choice)
        elif found is not None and (condition := self.condition(found, draft, choice)):
            return ((condition,),)
        return ()

    def condition(self, found: Comparison, draft: Draft, choice: bool) -> Condition | None:
        """A comparison without a subquery; equal columns are joined in the draft instead."""
        sides = [self.origin(node) for node in found.operands]
        op = found.op
        if sides[0].kind == "literal" and len(sides) == 2:
            sides.reverse()
            op = FLIPPED.get(op, op)
        left, *others = sides
        if left.kind in ("count", "rank"):
            draft.bound(left, op, others)
        if left.kind in ("count", "rank") or left.site is None:
            return None
        other = others[0] if len(others) == 1 else MIXED
        if other.kind == "column" and other.site:
            self.note_join(draft, left.site, other.site)
            if op != "=" or choice or left.form or other.form:
                return Condition(site=left.site, op=op, other=other.site, form=left.form)
            if not {left.fold, other.fold} & {"sum", "avg"}:
                draft.same.append((left.site, other.site))
            return None
        if any(side.kind != "literal" for side in others):
            return None
        expression = left.expression.sql("sqlite") if left.expression else "v"
        for node in found.operands:
            if isinstance(node, exp.Collate) and " COLLATE " not in expression:
                expression += f" COLLATE {node.expression.sql('sqlite')}"
        values = tuple(side.value for side in others)
        for value in values:
            table = draft.sources[left.site[0]]
            self.literals[(table, left.site[1], value, left.form)] = None
        return Condition(
            site=left.site,
            op=op,
            values=values,
            form=left.form,
            expression=expression,
            fold=left.fold,
        )

    def nested(self, found: Comparison, query: exp.Expr, draft: Draft, choice: bool) -> None:
        """A subquery in a condition: joined in where a match is wanted, else a part of its own."""
        if found.negated or choice:
            draft = draft.copied()
        relation = self.query(query, draft)
        if found.operands:  # what is tested, with the subquery's first column
            left = self.origin(found.operands[0])
            right = relation[0][1] if relation else MIXED
            if left.site and right.site and found.op == "=" and right.fold not in ("sum", "avg"):
                self.join(draft, left.site, right.site)
            elif left.site and right.site:
                self.note_join(draft, left.site, right.site)
        if found.negated or choice:
            self.extra.append(draft)

    def choices(self, node: exp.Select, draft: Draft) -> None:
        """Reads the literals inside CASE and FILTER; no row is required to meet them."""
        for inner in node.find_all(exp.If, exp.Filter):
            if inner.find_ancestor(exp.Select) is not node:
                continue
            test = inner.expression.this if isinstance(inner, exp.Filter) else inner.this
            for part, negated in split_condition(test):
                self.clause(part, negated, draft, choice=True)

    def join(self, draft: Draft, left: Site, right: Site) -> None:
        """Two columns that hold equal values."""
        draft.same.append((left, right))
        self.note_join(draft, left, right)

    def note_join(self, draft: Draft, left: Site, right: Site) -> None:
        """Remembers two columns that the query compares."""
        one, other = ((draft.sources[place], column) for place, column in (left, right))
        self.joined[one, other] = None
