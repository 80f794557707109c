"""Join share: how many of a query's joins follow declared foreign keys (CONTRACT 9).

A FROM clause of n tables makes n - 1 joins, however it is written: JOIN … ON, USING, NATURAL, or
commas with the condition in WHERE. Of these, as many follow foreign keys as the declared keys
among the stated equalities connect: n less the number of pieces those keys leave. So neither the
order of the tables nor that of an equality's sides matters, and a composite key needs all of its
columns. Subqueries and CTEs count their own joins, and a column of theirs, as of a view, stands for
the base column it passes on. Equalities are taken as written: none is inferred from two others.
"""

from collections import defaultdict
from collections.abc import Iterator

from sqlglot import exp

from envbuild.query.names import BaseColumn, QueryNames, Source
from envbuild.query.parse import parse_statement, split_condition
from envbuild.records.corpus import Schema

Equality = tuple[BaseColumn | None, BaseColumn | None]
"""Two sides that a query sets equal; None for what is no base table's column."""
Path = tuple[Source, ...]


def join_share(sql: str, schema: Schema) -> float:
    """Joins along a declared foreign key over all joins, 0.0 to 1.0; 0.0 without joins.

    SQL that sqlglot cannot read has no share (0.0): it is a bonus, never a verdict.
    """
    if not schema.foreign_keys or not _may_join(sql.lower()):
        return 0.0
    tree = parse_statement(sql)
    if tree is None:
        return 0.0
    joins = along_keys = 0
    try:
        names = QueryNames(tree, schema)
        joins_of: defaultdict[int, list[exp.Join]] = defaultdict(list)
        for join in names.each(exp.Join):
            joins_of[id(join.find_ancestor(exp.Select))].append(join)
        for select in names.each(exp.Select):
            # a table-valued function gives rows of one row: nothing to join along
            sources = [s for s in names.sources(select) if not isinstance(s.node.this, exp.Func)]
            joins += max(len(sources) - 1, 0)
            piece = {source: source for source in sources}
            for one, other in _joined_along_keys(
                _equalities(select, joins_of[id(select)], names), schema
            ):
                left, right = piece.get(one), piece.get(other)
                if left and right and left is not right:
                    along_keys += 1
                    piece |= {source: right for source in sources if piece[source] is left}
    except RecursionError:
        return 0.0
    return along_keys / joins if joins else 0.0


def _may_join(lowered: str) -> bool:
    """False where the text cannot hold a join, which spares reading it."""
    return "join" in lowered or "," in lowered.partition("from")[2]


def _equalities(select: exp.Select, joins: list[exp.Join], names: QueryNames) -> Iterator[Equality]:
    """What ON, USING, NATURAL and WHERE set equal."""
    where = select.args.get("where")
    conditions = [where.this] if where is not None else []
    for join in joins:
        conditions += filter(None, [join.args.get("on")])
        for earlier, joined, name in names.shared_columns(join):
            yield names.base_behind(joined, name), names.base_behind(earlier, name)
    for condition in conditions:
        for part, negated in split_condition(condition):
            if not negated and isinstance(part, exp.EQ | exp.NullSafeEQ | exp.Is):
                left, right = part.this.unnest(), part.expression.unnest()
                row = isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple)
                pairs = zip(left.expressions, right.expressions, strict=False)
                for one, other in pairs if row else [(left, right)]:
                    yield names.base_column(one), names.base_column(other)


def _joined_along_keys(
    equalities: Iterator[Equality], schema: Schema
) -> Iterator[tuple[Source, Source]]:
    """Pairs of sources that the equalities join along a whole declared foreign key."""
    stated: defaultdict[tuple[Path, Path], set[tuple[str, str]]] = defaultdict(set)
    for a, b in equalities:
        if a and b:
            stated[a.path, b.path].add((a.name, b.name))
            stated[b.path, a.path].add((b.name, a.name))
    for (child, parent), pairs in stated.items():
        tables = child[-1].table_name, parent[-1].table_name
        for key in schema.foreign_keys:
            if (key.child, key.parent) == tables and pairs.issuperset(
                zip(key.child_columns, key.parent_columns, strict=True)
            ):
                yield child[0], parent[0]
