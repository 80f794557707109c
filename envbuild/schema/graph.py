"""The foreign-key graph of a schema, held by networkx: who can be joined with whom."""

import networkx as nx

from envbuild.records.corpus import Schema
from envbuild.sql.names import declared_spelling, fold_name


class SchemaGraph:
    """A schema's neighbourhoods, built once and asked often."""

    def __init__(self, schema: Schema) -> None:
        self.tables = schema.table_names
        """In declared order and spelling."""
        self.spelling = declared_spelling(self.tables)
        """Folded name -> declared name."""
        self.graph = nx.Graph()
        """A node a table, an edge between two tables with a foreign key, whichever is the child."""
        self.graph.add_nodes_from(self.tables)
        self.graph.add_edges_from(
            (key.child, key.parent) for key in schema.foreign_keys if key.child != key.parent
        )

    def neighbours(self, name: str) -> list[str]:
        """The tables one foreign key away from a table, sorted, itself left out."""
        return sorted(self.graph[name])

    def join_path(self, a: str, b: str) -> tuple[str, ...] | None:
        """The shortest chain of tables from `a` to `b`, both included, keys walked both ways.

        Ties go to the lexicographically smallest list. None where the two are not connected, or
        one of them is no table of the schema. Names match as SQLite matches them.
        """
        start, goal = self.spelling.get(fold_name(a)), self.spelling.get(fold_name(b))
        if start is None or goal is None:
            return None
        distance = nx.single_source_shortest_path_length(self.graph, goal)
        if start not in distance:
            return None
        chain = [start]
        while (left := distance[chain[-1]]) > 0:
            chain.append(next(t for t in self.neighbours(chain[-1]) if distance[t] == left - 1))
        return tuple(chain)
