"""Join share's counts for a plainly written query: the counting of `joins`, without a tree."""

from envbuild.sql.text.plain_select import PlainSelect, PlainSource, Reference, plain_selects
from envbuild.sql.trees.schema_columns import SchemaColumns

Origin = tuple[tuple[int, ...], str, str]
"""A base column: by which sources it is reached, outermost first; its table; its name."""
Outputs = dict[str, Origin | None]


def count_plain_joins(sql: str, columns: SchemaColumns) -> tuple[int, int] | None:
    """(joins along declared foreign keys, joins); None where the query is not plain."""
    selects = plain_selects(sql)
    if selects is None or (columns.view_sql and _names_view(selects, columns)):
        return None
    joins = along_keys = 0
    tracing = _Tracing(columns)
    for select in selects:
        if len(select.sources) > 1:
            joins += len(select.sources) - 1
            try:
                along_keys += _along_keys(select, tracing)
            except _NotSureError:
                return None
    return along_keys, joins


def _names_view(selects: list[PlainSelect], columns: SchemaColumns) -> bool:
    return any(source.table in columns.view_sql for one in selects for source in one.sources)


class _NotSureError(Exception):
    """A derived table's columns are not sure."""


def _along_keys(select: PlainSelect, tracing: "_Tracing") -> int:
    """How many of the SELECT's joins its equalities make along declared foreign keys."""
    stated: dict[tuple[tuple[int, ...], str, tuple[int, ...], str], set[tuple[str, str]]] = {}
    for (here, table, column), (there, other, its) in tracing.equalities(select):
        if here[0] != there[0]:
            stated.setdefault((here, table, there, other), set()).add((column, its))
            stated.setdefault((there, other, here, table), set()).add((its, column))
    piece = list(range(len(select.sources)))
    foreign_keys = tracing.columns.foreign_keys
    joined = 0
    for (here, child, there, parent), pairs in stated.items():
        for key in foreign_keys.get((child, parent), ()):
            gone, kept = piece[here[0]], piece[there[0]]
            if gone != kept and key <= pairs:
                piece = [kept if number == gone else number for number in piece]
                joined += 1
    return joined


class _Tracing:
    """One statement's tracing of columns to base tables."""

    def __init__(self, columns: SchemaColumns) -> None:
        self.columns = columns
        self.traced: dict[int, Outputs | None] = {}
        """Columns by query; None while they are being traced."""

    def equalities(self, select: PlainSelect) -> list[tuple[Origin, Origin]]:
        """Pairs of base columns that the SELECT sets equal."""
        found = []
        for one, other in select.equalities:
            a, b = self.origin(select, one), self.origin(select, other)
            if a and b:
                found.append((a, b))
        for number, source in enumerate(select.sources):
            if not source.using and not source.natural:
                continue
            for name in source.using or self.names(source):
                joined = self.column(source, number, name)
                for before in range(number):
                    earlier = self.column(select.sources[before], before, name)
                    if joined and earlier:
                        found.append((joined, earlier))
        return found

    def origin(self, select: PlainSelect, reference: Reference) -> Origin | None:
        alias, name = reference
        for number, source in enumerate(select.sources):
            if alias and alias != source.alias:
                continue
            if source.query is None:
                if column := self.columns.column(source.table, name):
                    return (number,), source.table, column
            elif name in self.outputs(source.query):
                return self.column(source, number, name)
        return None

    def names(self, source: PlainSource) -> list[str]:
        """The source's columns."""
        if source.query is not None:
            return list(self.outputs(source.query))
        return self.columns.columns.get(source.table, [])

    def column(self, source: PlainSource, number: int, name: str) -> Origin | None:
        """The base column behind the source's column of this very name."""
        if source.query is None:
            known = name in self.columns.columns.get(source.table, ())
            return ((number,), source.table, name) if known else None
        origin = self.outputs(source.query).get(name)
        return origin and ((number, *origin[0]), *origin[1:])

    def outputs(self, query: list[PlainSelect]) -> Outputs:
        """A derived query's columns; of a compound only what all its SELECTs pass on alike."""
        if id(query) not in self.traced:
            self.traced[id(query)] = None
            outputs = self.results(query[0])
            for select in query[1:]:
                right = list(self.results(select).values())
                outputs = {
                    name: origin if at < len(right) and _same(origin, right[at]) else None
                    for at, (name, origin) in enumerate(outputs.items())
                }
            self.traced[id(query)] = outputs
        found = self.traced[id(query)]
        if found is None:
            raise _NotSureError
        return found

    def results(self, select: PlainSelect) -> Outputs:
        if select.results is None:
            raise _NotSureError
        found: Outputs = {}
        for name, reference in select.results:
            if name != "*" or reference is None:
                found[name] = self.origin(select, reference) if reference else None
                continue
            for number, source in enumerate(select.sources):
                if reference[0] in ("", source.alias):
                    for column in self.names(source):
                        found.setdefault(column, self.column(source, number, column))
        return found


def _same(a: Origin | None, b: Origin | None) -> bool:
    return a is not None and b is not None and a[1:] == b[1:]
