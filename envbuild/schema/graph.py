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


_UNKNOWN, _START = -2, -1


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
        # paths are searched over numbers that order as the names do: quicker than over the names
        self._sorted = sorted(linked)
        self._number = {name: number for number, name in enumerate(self._sorted)}
        self._near = [
            tuple(self._number[near] for near in self.neighbours[name]) for name in self._sorted
        ]

    def join_path(self, a: str, b: str) -> tuple[str, ...] | None:
        """As the module's `join_path`."""
        start, goal = self.spelling.get(fold_name(a)), self.spelling.get(fold_name(b))
        if start is None or goal is None:
            return None
        if start == goal:
            return (start,)
        return self._search(self._number[start], self._number[goal])

    def _search(self, start: int, goal: int) -> tuple[str, ...] | None:
        """Breadth first from both ends, the smaller front one step at a time.

        Neighbours are sorted, so a front's own order is the lexicographic order of the chains that
        lead to it: the first table of the front that the other side knows begins the smallest
        chain. The two sides can only meet in their last layers, for else they had met before.
        """
        near = self._near
        came_from = [_UNKNOWN] * len(near)
        distance = [_UNKNOWN] * len(near)
        came_from[start], distance[goal] = _START, 0
        front, back, reach = [start], [goal], 0
        while front and back:
            reached: list[int] = []
            if len(front) <= len(back):
                for table in front:
                    for other in near[table]:
                        if came_from[other] == _UNKNOWN:
                            came_from[other] = table
                            if distance[other] != _UNKNOWN:
                                return self._chain(other, came_from, distance)
                            reached.append(other)
                front = reached
                continue
            reach += 1
            met = False
            for table in back:
                for other in near[table]:
                    if distance[other] == _UNKNOWN:
                        distance[other] = reach
                        met = met or came_from[other] != _UNKNOWN
                        reached.append(other)
            if met:
                meeting = next(table for table in front if distance[table] != _UNKNOWN)
                return self._chain(meeting, came_from, distance)
            back = reached
        return None

    def _chain(self, meeting: int, came_from: list[int], distance: list[int]) -> tuple[str, ...]:
        chain = [meeting]
        while (before := came_from[chain[-1]]) != _START:
            chain.append(before)
        chain.reverse()
        for left in range(distance[meeting] - 1, -1, -1):
            chain.append(next(table for table in self._near[chain[-1]] if distance[table] == left))
        return tuple(self._sorted[table] for table in chain)


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
