"""What a gold query asks of rows: the tables it combines, its keys and its predicates.

It is a reading for choosing rows, not a semantics: what it cannot follow it leaves out, and SQLite
has the last word by running the query.
"""

from collections.abc import Iterable

from sqlglot import exp

from envbuild.records.corpus import Schema
from envbuild.records.signal import Clause, Demand, Frame, Site
from envbuild.sql.trees.frames import Draft, Relation, Scope
from envbuild.sql.trees.origins import MIXED, Origin, descends
from envbuild.sql.trees.parse import parse_statement
from envbuild.sql.trees.requirements import ConditionReader

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
