"""Join share from the query's own structure, whatever way the join is written."""

import msgspec
import pytest

from envbuild.query.joins import join_share
from envbuild.records.corpus import Column, ForeignKey, Schema, Table


def table(name: str, *columns: str, key: tuple[str, ...] = ("id",)) -> Table:
    return Table(
        name=name,
        columns=tuple(
            Column(name=c, type="INTEGER", primary_key=key.index(c) + 1 if c in key else 0)
            for c in columns
        ),
        sql="",
    )


def edge(child: str, columns: str, parent: str, parents: str) -> ForeignKey:
    return ForeignKey(
        child=child,
        child_columns=tuple(columns.split()),
        parent=parent,
        parent_columns=tuple(parents.split()),
    )


SHOP = Schema(
    tables=(
        table("Customers", "id", "name", "boss_id"),
        table("orders", "id", "customer_id", "place_id", "name"),
        table("items", "order_id", "line", "product", key=("order_id", "line")),
        table("returns", "id", "order_id", "line"),
        table("lonely", "id", "customer_id"),
        table("visits", "visit", "customer", key=("visit",)),
    ),
    foreign_keys=(
        edge("orders", "customer_id", "Customers", "id"),
        edge("Customers", "boss_id", "Customers", "id"),
        edge("items", "order_id", "orders", "id"),
        edge("returns", "order_id line", "items", "order_id line"),
        edge("visits", "customer", "Customers", "id"),
    ),
)

ON = "SELECT * FROM orders o JOIN customers c ON "
SHARES = [
    ("SELECT * FROM orders", 0.0),
    ("SELECT * FROM customers /* where */, orders WHERE customers.id = customer_id", 1.0),
    (ON + "o.customer_id = c.id", 1.0),
    (ON + "c.ID == O.Customer_Id", 1.0),
    (ON + "c.id IS o.customer_id", 1.0),
    (ON + "(c.id = customer_id AND c.name > 'a')", 1.0),
    (ON + "(o.customer_id, 1) = (c.id, 1)", 1.0),
    (ON + "c.id = o.customer_id OR c.name = o.name", 0.0),
    (ON + "c.name = o.name", 0.0),
    (ON + "c.rowid = o.customer_id", 1.0),
    (ON + "c.id + 0 = o.customer_id", 0.0),
    ("SELECT * FROM items, customers c, orders o WHERE o.customer_id=c.id AND order_id=o.id", 1.0),
    ("SELECT * FROM customers CROSS JOIN orders", 0.0),
    ("SELECT * FROM orders o JOIN customers c ON o.customer_id=c.id JOIN lonely l USING(id)", 0.5),
    ("SELECT * FROM returns r JOIN items i ON r.order_id=i.order_id AND i.line=r.line", 1.0),
    ("SELECT * FROM returns r JOIN items i ON r.order_id = i.order_id", 0.0),
    ("SELECT * FROM returns JOIN items USING (order_id, line)", 1.0),
    ("SELECT * FROM returns NATURAL JOIN items", 1.0),
    ("SELECT * FROM orders NATURAL JOIN customers", 0.0),
    ("SELECT * FROM customers a JOIN customers b ON a.boss_id = b.id", 1.0),
    (
        "SELECT * FROM (orders o JOIN customers c ON o.customer_id = c.id) JOIN items i "
        "ON i.order_id = o.id",
        1.0,
    ),
    ("SELECT * FROM orders o JOIN (SELECT id AS k FROM customers) c ON c.k = o.customer_id", 1.0),
    ("SELECT * FROM orders o JOIN (SELECT max(id) AS k FROM customers) c ON c.k=customer_id", 0.0),
    ("WITH c AS (SELECT id FROM customers) SELECT * FROM c JOIN orders ON c.id=customer_id", 1.0),
    ("WITH c(k) AS (SELECT id FROM customers) SELECT * FROM c, orders WHERE k=customer_id", 1.0),
    (
        "WITH a AS (SELECT id FROM customers), b AS (SELECT id FROM a) "
        "SELECT * FROM b JOIN orders ON b.id = customer_id",
        1.0,
    ),
    (
        "SELECT * FROM orders o JOIN (SELECT id FROM customers UNION SELECT id FROM customers) c "
        "ON c.id = o.customer_id",
        1.0,
    ),
    (
        "SELECT * FROM orders o JOIN (SELECT id FROM customers UNION SELECT id FROM lonely) c "
        "ON c.id = o.customer_id",
        0.0,
    ),
    (
        "SELECT name FROM customers WHERE id IN "
        "(SELECT o.customer_id FROM orders o JOIN items i ON i.order_id = o.id)",
        1.0,
    ),
    (
        "SELECT * FROM orders o JOIN customers c ON o.customer_id = c.id UNION ALL "
        "SELECT * FROM orders o JOIN customers c ON o.name = c.name",
        0.5,
    ),
    ('SELECT * FROM "orders" AS [o] JOIN `customers` c ON "o"."customer_id" = [c].`id`', 1.0),
    ("SELECT * FROM customers c, json_each('[1,2]') j WHERE c.id = j.value", 0.0),
    ("SELECT * FROM orders o JOIN nowhere n ON n.id = o.customer_id", 0.0),
    ("SELEC * FROM orders, customers", 0.0),
]


@pytest.mark.parametrize(("sql", "share"), SHARES)
def test_join_share(sql: str, share: float) -> None:
    assert join_share(sql, SHOP) == share


def test_ctes_that_double_do_not_explode() -> None:
    ctes = ["t0 AS (SELECT id FROM customers)"]
    ctes += [f"t{n} AS (SELECT a.id FROM t{n - 1} a, t{n - 1} b)" for n in range(1, 60)]
    assert join_share(f"WITH {', '.join(ctes)} SELECT * FROM t59 JOIN orders USING (id)", SHOP) == 0


def test_nesting_is_survived() -> None:
    deep = "SELECT * FROM a, b WHERE " + "(" * 3000 + "1" + ")" * 3000
    assert join_share(deep, SHOP) == 0.0


VIEWS = (
    "CREATE VIEW sales AS SELECT customer_id, place_id FROM orders",
    "CREATE VIEW buyers (buyer, title) AS SELECT id, name FROM Customers",
    "CREATE VIEW every_buyer AS SELECT * FROM buyers",
    "CREATE VIEW counted AS SELECT count(*) AS customer_id FROM orders",
    "CREATE VIEW turning AS SELECT * FROM turning",
)
THROUGH_VIEWS = [
    ("SELECT * FROM sales JOIN customers c ON sales.customer_id = c.id", 1.0),
    ("SELECT * FROM Sales s, buyers b WHERE b.buyer = s.customer_id", 1.0),
    ("SELECT * FROM sales JOIN every_buyer e ON e.BUYER = customer_id", 1.0),
    ("SELECT * FROM counted JOIN customers c ON counted.customer_id = c.id", 0.0),
    ("SELECT * FROM turning t JOIN customers c ON t.id = c.id", 0.0),
    (
        "WITH sales AS (SELECT id AS customer_id FROM lonely) "
        "SELECT * FROM sales JOIN customers c ON sales.customer_id = c.id",
        0.0,
    ),
]


def test_the_share_through_a_view_hangs_on_no_earlier_query() -> None:
    names = tuple(f"v{n}" for n in range(200))
    below = ("orders", *names)
    views = tuple(
        f"CREATE VIEW {name} AS SELECT customer_id FROM {below[n]}" for n, name in enumerate(names)
    )
    through = "SELECT * FROM v{} v JOIN customers c ON v.customer_id = c.id"
    schema = msgspec.structs.replace(SHOP, views=names, view_sql=views)
    join_share(through.format(199), schema)
    assert [join_share(through.format(n), schema) for n in (0, 20, 40)] == [1.0] * 3


@pytest.mark.parametrize(("sql", "share"), THROUGH_VIEWS)
def test_a_views_column_stands_for_the_base_column(sql: str, share: float) -> None:
    names = tuple(view.split()[2] for view in VIEWS)
    schema = msgspec.structs.replace(SHOP, views=names, view_sql=VIEWS)
    assert join_share(sql, schema) == share


def test_what_doubles_sqlglots_time_is_not_given_to_it() -> None:
    joins = " JOIN customers" * 40
    assert join_share(f"SELECT 1 FROM orders{joins}", SHOP) == 0.0
    assert join_share(f"SELECT 1 COLLATE nocase FROM orders{joins}", SHOP) == 0.0
    dates = "date(" * 40 + "1" + ")" * 40
    assert join_share(f"SELECT {dates} COLLATE nocase FROM orders, customers", SHOP) == 0.0
