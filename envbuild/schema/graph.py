"""The foreign-key graph of a schema: tables, and who can be joined with whom.

Paths are searched with our own breadth-first search (no import, no graph object to build);
networkx takes part only where somebody wants a graph to analyse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbuild.records.schema import Schema
from envbuild.sql.names import declared_spelling, fold_name

if TYPE_CHECKING:
    import networkx as nx


def join_path(schema: Schema, a: str, b: str) -> tuple[str, ...] | None:
    """The shortest chain of tables from `a` to `b`, both included, keys walked both ways.

    Ties go to the lexicographically smallest list. None where the two are not connected, or one
    of them is no table of the schema. Names match as SQLite matches them.
    """
    return SchemaGraph(schema).join_path(a, b)


class SchemaGraph:
    """A schema's neighbourhoods, built once and asked often."""

    def __init__(self, schema: Schema) -> None:
        self.tables = schema.table_names
        """In declared order and spelling."""
        self.spelling = declared_spelling(self.tables)
        """Folded name -> declared name."""
        linked: dict[str, set[str]] = {name: set() for name in self.tables}
        for key in schema.foreign_keys:
            if key.child != key.parent:
                linked[key.child].add(key.parent)
                linked[key.parent].add(key.child)
        self.neighbours: dict[str, tuple[str, ...]] = {
            name: tuple(sorted(near)) for name, near in linked.items()
        }
        """Table -> the tables one foreign key away, sorted, itself left out."""

    def join_path(self, a: str, b: str) -> tuple[str, ...] | None:
        """As the module's `join_path`."""
        start, goal = self.spelling.get(fold_name(a)), self.spelling.get(fold_name(b))
        if start is None or goal is None:
            return None
        if start == goal:
            return (start,)
        return self._search(start, goal)

    def _search(self, start: str, goal: str) -> tuple[str, ...] | None:
        """Breadth first from both ends, the smaller front one step at a time.

        Neighbours are sorted, so a front's own order is the lexicographic order of the chains that
        lead to it: the first of `front` that the other side knows begins the smallest chain.
        """
        near = self.neighbours
        came_from: dict[str, str | None] = {start: None}
        distance = {goal: 0}
        front, back = [start], [goal]
        while front and back:
            if len(front) <= len(back):
                front = _step(front, near, came_from)
            else:
                back = _step_back(back, near, distance)
            meeting = [name for name in front if name in distance]
            if meeting:
                return self._chain(min(meeting, key=distance.__getitem__), came_from, distance)
        return None

    def _chain(
        self, meeting: str, came_from: dict[str, str | None], distance: dict[str, int]
    ) -> tuple[str, ...]:
        chain = [meeting]
        while (before := came_from[chain[0]]) is not None:
            chain.insert(0, before)
        left = distance[meeting]
        while left:
            left -= 1
            chain.append(next(n for n in self.neighbours[chain[-1]] if distance.get(n) == left))
        return tuple(chain)


def networkx_graph(schema: Schema) -> nx.MultiDiGraph:
    """The schema as a networkx graph: a node a table, an edge `child -> parent` a foreign key.

    Edges carry the `ForeignKey` under `key`; missing parents are no nodes.
    """
    import networkx as nx

    graph = nx.MultiDiGraph()
    graph.add_nodes_from(schema.table_names)
    for foreign_key in schema.foreign_keys:
        graph.add_edge(foreign_key.child, foreign_key.parent, foreign_key=foreign_key)
    return graph


def _step(
    front: list[str], near: dict[str, tuple[str, ...]], came_from: dict[str, str | None]
) -> list[str]:
    reached = []
    for name in front:
        for other in near[name]:
            if other not in came_from:
                came_from[other] = name
                reached.append(other)
    return reached


def _step_back(
    back: list[str], near: dict[str, tuple[str, ...]], distance: dict[str, int]
) -> list[str]:
    reached = []
    for name in back:
        for other in near[name]:
            if other not in distance:
                distance[other] = distance[name] + 1
                reached.append(other)
    return reached
