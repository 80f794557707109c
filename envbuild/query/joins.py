"""Join share: how many of a query's joins follow declared foreign keys (CONTRACT 9).

A FROM clause of n tables makes n - 1 joins, however it is written: JOIN … ON, USING, NATURAL, or
commas with the condition in WHERE. Of these, as many follow foreign keys as the declared keys
among the stated equalities connect: n less the number of pieces those keys leave. So neither the
order of the tables nor that of an equality's sides matters, and a composite key needs all of its
columns. Subqueries and CTEs count their own joins, and a column of theirs, as of a view, stands for
the base column it passes on. Equalities are taken as written: none is inferred from two others.
"""

from collections.abc import Iterator

from sqlglot import exp

from envbuild.query.names import Key, Origin, SchemaColumns, Scope, Tracing, schema_columns
from envbuild.query.parse import parse_statement
from envbuild.records.corpus import Schema


def join_share(sql: str, schema: Schema) -> float:
    """Joins along a declared foreign key over all joins, 0.0 to 1.0; 0.0 without joins.

    SQL that sqlglot cannot read has no share (0.0): it is a bonus, never a verdict.
    """
    if not schema.foreign_keys or not _may_join(sql.lower()):
        return 0.0
    along_keys, joins = _count_joins(sql, schema_columns(schema)) or (0, 0)
    return along_keys / joins if joins else 0.0


def _count_joins(sql: str, columns: SchemaColumns) -> tuple[int, int] | None:
    """(joins along declared foreign keys, joins); None where sqlglot cannot soon read it."""
    tree = parse_statement(sql)
    if tree is None:
        return None
    columns.read_views()
    try:
        joins = along_keys = 0
        for sources, equalities in _from_clauses(tree, Tracing(columns)):
            joins += len(sources) - 1
            along_keys += len(sources) - _pieces(sources, _key_edges(columns, equalities))
    except RecursionError:
        return None
    return along_keys, joins


def _may_join(lowered: str) -> bool:
    """False where the text cannot hold a join, which spares reading it."""
    if "join" in lowered:
        return True
    return "," in lowered.partition("from")[2]


def _from_clauses(
    tree: exp.Expr, tracing: Tracing
) -> Iterator[tuple[list[int], set[tuple[Origin, Origin]]]]:
    """For each FROM clause with a table: its sources' numbers, and the equalities between them."""
    for select in tree.find_all(exp.Select):
        scope = Scope.of(select, tracing)
        if scope.sources:
            yield [source.number for source in scope.sources], set(scope.equalities())


def _key_edges(
    columns: SchemaColumns, equalities: set[tuple[Origin, Origin]]
) -> Iterator[tuple[int, int]]:
    """Pairs of sources that the equalities join along a whole declared foreign key."""
    stated: dict[tuple[Key, Key], set[tuple[str, str]]] = {}
    for a, b in equalities:
        for one, other in ((a, b), (b, a)):
            pair = (one.instance, other.instance)
            stated.setdefault(pair, set()).add((one.column, other.column))
    for (child, parent), pairs in stated.items():
        keys = columns.foreign_keys.get((child.table, parent.table), ())
        if any(key <= pairs for key in keys):
            yield child.source, parent.source


def _pieces(sources: list[int], edges: Iterator[tuple[int, int]]) -> int:
    """How many connected pieces the edges leave."""
    root = {source: source for source in sources}

    def top(source: int) -> int:
        while root[source] != source:
            source = root[source]
        return source

    for a, b in edges:
        root[top(a)] = top(b)
    return len({top(source) for source in sources})
