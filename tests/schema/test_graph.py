"""Schema and foreign-key graph, against SQLite and networkx."""

import random

import networkx as nx
import pytest

from envbuild.records.corpus import ForeignKey, MissingParent, Schema
from envbuild.schema.graph import SchemaGraph
from envbuild.schema.read import read_schema
from envbuild.sql.connect import Connection
from tests.shared import shared_data


def schema_of(ddl: str) -> Schema:
    connection = Connection(":memory:")
    connection.execute(ddl)
    return read_schema(connection)


def edges_of(ddl: str) -> list[str]:
    return [key.render() for key in schema_of(ddl).foreign_keys]


def test_tables_columns_and_keys_as_declared() -> None:
    schema = schema_of(
        "CREATE TABLE [B t](x INT NOT NULL, y TEXT DEFAULT 'q', z AS (x+1), PRIMARY KEY(y, x))"
        " WITHOUT ROWID; CREATE TABLE a(v ANY) STRICT; CREATE VIEW w AS SELECT 1;"
        "CREATE VIRTUAL TABLE f USING fts5(y); CREATE TABLE s(i INTEGER PRIMARY KEY AUTOINCREMENT)"
    )
    assert schema.table_names == ("B t", "a", "s")
    assert schema.views == ("w",)
    table = schema.tables[0]
    assert table.primary_key == ("y", "x")
    assert (table.without_rowid, table.strict) == (True, False)
    assert schema.tables[1].strict
    assert [(c.name, c.type, c.not_null, c.default, c.generated) for c in table.columns] == [
        ("x", "INT", True, None, False),
        ("y", "TEXT", True, "'q'", False),
        ("z", "", False, None, True),
    ]
    assert table.sql.startswith("CREATE TABLE [B t](x INT")


@pytest.mark.parametrize(
    ("ddl", "edges"),
    [
        ("CREATE TABLE d(a, b, PRIMARY KEY(a,b));"
         "CREATE TABLE c(i, p, q, FOREIGN KEY(p,q) REFERENCES d(a,b))",
         ["c.(p, q) -> d.(a, b)"]),
        ("CREATE TABLE p(x, k INTEGER PRIMARY KEY); CREATE TABLE c(p REFERENCES p)",
         ["c.p -> p.k"]),
        ("CREATE TABLE d(a,b,PRIMARY KEY(b,a)); CREATE TABLE c(p,q,FOREIGN KEY(p,q) REFERENCES d)",
         ["c.(p, q) -> d.(b, a)"]),
        ("CREATE TABLE e(id INTEGER PRIMARY KEY, m REFERENCES e(id))", ["e.m -> e.id"]),
        ("CREATE TABLE Customer(ID INTEGER PRIMARY KEY);"
         "CREATE TABLE o(customerID, FOREIGN KEY(customerId) REFERENCES CUSTOMER(id))",
         ["o.customerID -> Customer.ID"]),
        ("CREATE TABLE companies(id INTEGER PRIMARY KEY);"
         'CREATE TABLE c(k REFERENCES "public.companies"(id))', ["c.k -> companies.id"]),
        ("CREATE TABLE [größe](id INTEGER PRIMARY KEY); CREATE TABLE c(k REFERENCES [GRöSSE](id),"
         " l REFERENCES [GRöße](ID))", ["c.l -> größe.id"]),
        ("CREATE TABLE p(id PRIMARY KEY); CREATE TABLE c(a REFERENCES p, b REFERENCES p,"
         " c REFERENCES p(id))", ["c.a -> p.id", "c.b -> p.id", "c.c -> p.id"]),
        ("CREATE TABLE a(id PRIMARY KEY, b REFERENCES b(id)); CREATE TABLE b(id PRIMARY KEY,"
         " a REFERENCES a(id))", ["a.b -> b.id", "b.a -> a.id"]),
    ],
)  # fmt: skip
def test_edges(ddl: str, edges: list[str]) -> None:
    assert edges_of(ddl) == edges


@pytest.mark.parametrize(
    ("ddl", "missing"),
    [
        ("CREATE TABLE c(g REFERENCES ghosts(id))", ("c", ("g",), "ghosts")),
        ("CREATE TABLE p(x); CREATE TABLE c(g REFERENCES p)", ("c", ("g",), "p")),
        ("CREATE TABLE p(x PRIMARY KEY); CREATE TABLE c(g REFERENCES p(nope))", ("c", ("g",), "p")),
        ("CREATE VIEW v AS SELECT 1 AS x; CREATE TABLE c(g REFERENCES v(x))", ("c", ("g",), "v")),
        ("CREATE TABLE d(a, b, PRIMARY KEY(a,b)); CREATE TABLE c(g REFERENCES d)",
         ("c", ("g",), "d")),
    ],
)  # fmt: skip
def test_missing_parents(ddl: str, missing: tuple[str, tuple[str, ...], str]) -> None:
    schema = schema_of(ddl)
    child, columns, parent = missing
    assert schema.foreign_keys == ()
    assert schema.missing_parents == (
        MissingParent(child=child, child_columns=columns, parent=parent),
    )


def test_join_path_walks_both_ways_and_is_the_smallest() -> None:
    schema = schema_of(
        "CREATE TABLE s(id PRIMARY KEY); CREATE TABLE m2(id PRIMARY KEY, s REFERENCES s);"
        "CREATE TABLE m1(id PRIMARY KEY, s REFERENCES s); CREATE TABLE lonely(x);"
        "CREATE TABLE Item(a REFERENCES m1, b REFERENCES m2, me REFERENCES Item(a))"
    )
    join_path = SchemaGraph(schema).join_path
    assert join_path("s", "item") == ("s", "m1", "Item")
    assert join_path("ITEM", "s") == ("Item", "m1", "s")
    assert join_path("Item", "Item") == ("Item",)
    assert join_path("s", "lonely") is None
    assert join_path("s", "nowhere") is None


def random_schema(seed: int) -> Schema:
    chance = random.Random(seed)
    size = chance.randint(2, 24)
    base = schema_of("".join(f"CREATE TABLE t{i}(id INTEGER PRIMARY KEY);" for i in range(size)))
    links = {
        tuple(chance.choices(base.table_names, k=2)) for _ in range(chance.randint(1, size * 2))
    }
    keys = [
        ForeignKey(child=a, child_columns=("x",), parent=b, parent_columns=("id",))
        for a, b in sorted(links)
    ]
    return Schema(tables=base.tables, foreign_keys=tuple(keys))


@pytest.mark.parametrize("seed", range(40))
def test_join_path_is_networkx_smallest_shortest_path(seed: int) -> None:
    schema = random_schema(seed)
    graph = SchemaGraph(schema)
    undirected = nx.MultiGraph([(key.child, key.parent) for key in schema.foreign_keys])
    undirected.add_nodes_from(schema.table_names)
    for a in schema.table_names:
        for b in schema.table_names:
            try:
                expected = min(tuple(p) for p in nx.all_shortest_paths(undirected, a, b))
            except nx.NetworkXNoPath:
                expected = None
            assert graph.join_path(a, b) == expected


def test_pokedex_has_its_tables_and_keys() -> None:
    path = shared_data("large") / "pokedex" / "pokedex.sqlite"
    connection = Connection(f"file:{path}?immutable=1", flags=0x41)
    schema = read_schema(connection)
    assert (len(schema.tables), len(schema.foreign_keys)) == (172, 303)
