"""What a gold query asks of the rows it reads: tables, join equalities, predicates."""

import msgspec

from envbuild.records.execution import Value

Site = tuple[int, str]
"""One column of one table occurrence: (position in `Frame.sources`, declared column name)."""


Extreme = tuple[Site, bool]
"""A column and whether its largest values come first."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison of a column with literals or with another column."""

    site: Site
    op: str
    """`=`, `!=`, `<`, `<=`, `>`, `>=`, `like`, `glob`, `in`, `between`, `null`; `not ` before."""
    values: tuple[Value, ...] = ()
    """The literals; empty where another column is compared."""
    form: str = ""
    """What is applied to the column first: `strftime:%Y`, `substr:1:4`, `lower`, `length`, …"""
    expression: str = "v"
    """All that is compared, casts and collations too, as SQL over the stored value `v`."""
    fold: str = ""
    """The aggregate the comparison is about: `sum`, `avg`, `min`, `max`; empty for a plain row."""
    other: Site | None = None
    """The column on the right side, where it is one."""


Clause = tuple[tuple[Condition, ...], ...]
"""Alternatives of which one must hold, each a conjunction."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of rows that a query (or a part of it) looks for."""

    sources: tuple[str, ...]
    """Base table of each occurrence, in declared spelling; CTEs and derived tables inlined."""
    same: tuple[tuple[Site, Site], ...] = ()
    """Pairs of columns that must be equal."""
    clauses: tuple[Clause, ...] = ()
    """All must hold."""
    soft: tuple[Condition, ...] = ()
    """Conditions that only steer a value (inside CASE, FILTER): worth a row each."""
    optional: tuple[int, ...] = ()
    """Occurrences that may be absent: right sides of LEFT JOIN."""
    group: tuple[Site, ...] = ()
    """Columns whose equal values make a group or a partition."""
    siblings: int = 1
    """Rows a group needs, from HAVING COUNT(*) > n or a rank bound."""
    distinct: tuple[Site, ...] = ()
    """Columns in which siblings must differ, from COUNT(DISTINCT …) bounds."""
    limit: int = 0
    """The outermost LIMIT; 0 where there is none."""
    ordered: tuple[Extreme, ...] = ()
    """Columns that decide which rows a LIMIT or a row number keeps: ties there are chance."""
    extremes: tuple[Extreme, ...] = ()
    """Columns whose largest or smallest values show: ranks, MAX, MIN."""
    counted: str = ""
    """`asc` or `desc` where a COUNT decides a LIMIT or a rank, so fan-outs should not tie."""
    counted_over: tuple[int, ...] = ()
    """The occurrences of the (sub)query that counts."""
    repeats: tuple[Site, ...] = ()
    """Columns of a lone table counted with DISTINCT: the query takes it that they repeat."""
    shown: tuple[Site, ...] = ()
    """Columns of the outermost projection."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """All frames of one query: the whole one first, then parts that stand alone."""

    frames: tuple[Frame, ...] = ()
    joined: tuple[tuple[tuple[str, str], tuple[str, str]], ...] = ()
    """(table, column) pairs that the query compares, negated comparisons included."""
    literals: tuple[tuple[str, str, Value, str], ...] = ()
    """(table, column, literal, form): every literal a column is compared with."""
