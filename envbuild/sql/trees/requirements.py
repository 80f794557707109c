"""Conditions of a query, read into the frame under construction: predicates, joins, subqueries."""

from sqlglot import exp

from envbuild.records.execution import Value
from envbuild.records.signal import Clause, Condition, Site
from envbuild.sql.trees.comparisons import Comparison, compared, split_condition
from envbuild.sql.trees.frames import Draft, Relation, Scope
from envbuild.sql.trees.origins import MIXED, Origin, origin_of

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
