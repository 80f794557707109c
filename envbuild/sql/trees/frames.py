"""The growing side of reading a query: name scopes, relations, and the draft of a frame."""

from dataclasses import dataclass, field, replace

from sqlglot import exp

from envbuild.records.signal import Clause, Condition, Extreme, Frame, Site
from envbuild.sql.trees.origins import MIXED, Origin

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
