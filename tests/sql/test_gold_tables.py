"""Gold tables on cases that break parsers, and against what authors stated."""

import json

import pytest

from envbuild.errors import GoldError
from envbuild.sql.connect import Connection, open_read_only
from envbuild.sql.gold_tables import GoldTableReader, read_gold_tables
from tests.shared import shared_data

DDL = """
CREATE TABLE orders(id INTEGER PRIMARY KEY, cust_id INT, amt INT, status TEXT);
CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT);
CREATE INDEX orders_by_customer ON orders(cust_id);
CREATE TABLE logs(id INT, msg TEXT); CREATE TABLE vip(id INT);
CREATE TABLE "order"(id INT, "group" TEXT); CREATE TABLE "Order Details"(id INT, qty INT);
CREATE TABLE [t.dot](id INT); CREATE TABLE emp(id INT, mgr INT, name TEXT);
CREATE TABLE [größe](wert INT); CREATE TABLE keyed(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
CREATE VIEW v_orders AS SELECT o.id, c.name FROM orders o JOIN customers c ON c.id=o.cust_id;
CREATE VIEW v_top AS SELECT id FROM v_orders;
CREATE VIEW v_cte AS WITH logs AS (SELECT 1 AS x) SELECT count(*) AS n FROM logs, vip;
CREATE VIEW v_using AS SELECT count(*) AS n FROM main.logs, vip NATURAL JOIN vip AS w;
CREATE VIRTUAL TABLE notes USING fts5(body);
"""


@pytest.fixture(scope="module")
def shop() -> Connection:
    connection = Connection(":memory:")
    connection.execute(DDL)
    return connection


CASES = [
    ("SELECT 1 FROM ORDERS, Customers WHERE Orders.cust_id = CUSTOMERS.id", "customers orders"),
    ("SELECT count(*) FROM orders", "orders"),
    ("WITH orders AS (SELECT 1 AS id) SELECT count(*) FROM orders", ""),
    ("WITH ORDERS AS MATERIALIZED (SELECT 1 AS id) SELECT count(*) FROM orders", ""),
    ("WITH orders AS (SELECT * FROM main.orders WHERE amt > 1) SELECT count(*) FROM orders",
     "orders"),
    ("WITH c AS (SELECT 1) SELECT count(*) FROM keyed", "keyed"),
    ("WITH a AS (SELECT id FROM vip), b AS (SELECT id FROM a) SELECT count(*) FROM b, logs",
     "logs vip"),
    ("WITH RECURSIVE up(i, m) AS (SELECT id, mgr FROM emp UNION ALL SELECT emp.id, emp.mgr FROM emp"
     " JOIN up ON emp.id = up.m) SELECT * FROM up", "emp"),
    ("WITH r1 AS (WITH kid AS (SELECT id FROM orders) SELECT id FROM kid), t3(c1,c2) AS"
     " (SELECT id, name FROM emp) SELECT c.name FROM customers c LEFT JOIN r1 ON r1.id=c.id"
     " LEFT JOIN t3 ON t3.c1=c.id", "customers emp orders"),
    ("SELECT id FROM v_top", "customers orders | v_orders v_top"),
    ("SELECT count(*) FROM v_orders", "customers orders | v_orders"),
    ("SELECT n FROM v_cte", "vip | v_cte"),
    ("SELECT j.value FROM orders, json_each('[1,2]') j", "orders"),
    ("SELECT name FROM pragma_table_info('orders')", ""),
    ("SELECT 'FROM logs' AS t FROM customers -- JOIN orders\n/* FROM emp */", "customers"),
    ("SELECT (SELECT max(amt) FROM orders), name FROM customers c WHERE EXISTS"
     " (SELECT 1 FROM emp WHERE emp.id = c.id)", "customers emp orders"),
    ("SELECT name FROM customers WHERE EXISTS (SELECT 1 FROM logs)", "customers logs"),
    ("SELECT name FROM customers WHERE id IN vip", "customers vip"),
    ('SELECT "group" FROM "order" JOIN [Order Details] USING (id) JOIN `t.dot` USING (id)',
     "Order Details order t.dot"),
    ("SELECT sum(amt) OVER (ORDER BY id) FROM orders ORDER BY (SELECT count(*) FROM logs)",
     "logs orders"),
    ("SELECT wert FROM GRößE", "größe"),
    ("SELECT rowid FROM logs WHERE rowid IN (SELECT oid FROM vip)", "logs vip"),
    ("VALUES (1), ((SELECT max(id) FROM vip))", "vip"),
    ("SELECT body FROM notes WHERE notes MATCH 'x'", "notes"),
    ("SELECT 1 WHERE 0 AND EXISTS (SELECT 1 FROM logs)", ""),
    ("SELECT count(*) FROM orders NATURAL JOIN customers;", "customers orders"),
    ("SELECT count(*) FROM logs JOIN vip USING (id)", "logs vip"),
    ("SELECT e.name AS vip, orders FROM emp e, (SELECT id, 1 orders FROM logs) NATURAL JOIN emp f",
     "emp logs"),
    ("SELECT count(*) FROM v_using", "logs vip | v_using"),
    ("WITH vip AS (SELECT 1 AS id) SELECT count(*) FROM logs JOIN vip USING (id)", "logs"),
    ("SELECT name FROM sqlite_master", ""),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "expected"), CASES)
def test_gold_tables(shop: Connection, sql: str, expected: str) -> None:
    found = read_gold_tables(shop, sql)
    tables = sorted(found.tables)
    told = " ".join(tables) + (" | " + " ".join(found.views) if found.views else "")
    assert told == expected
    assert read_gold_tables(shop, sql) == found, "a second look must not meet a cached statement"


def test_one_reader_serves_many_queries(shop: Connection) -> None:
    with GoldTableReader(shop) as reader:
        for sql, expected in CASES:
            assert " ".join(reader.read(sql).tables) == expected.partition(" | ")[0]
        with pytest.raises(GoldError):
            reader.read("SELECT nope FROM orders")
        assert reader.read("SELECT amt FROM orders").columns == (("orders", "amt"),)
    shop.execute("CREATE TEMP TABLE mine(x); DROP TABLE mine")


@pytest.mark.parametrize(
    ("sql", "reason", "detail"),
    [
        ("SELECT nope FROM orders", "gold_error", "no such column: nope"),
        ("SELECT 1 FROM nowhere", "gold_error", "no such table: nowhere"),
        ("SELEC 1", "gold_error", "syntax error"),
        ("DELETE FROM orders", "gold_denied", "read"),
        ("ATTACH 'x.db' AS x", "gold_denied", "read"),
        ("SELECT 1; DROP TABLE vip", "gold_invalid", "more than one"),
        ("", "gold_invalid", "no statement"),
        ("-- nothing", "gold_invalid", "no statement"),
        ("SELECT (" + "1 + " * 1200 + "1)", "gold_error", "maximum depth"),
        ("SELECT '\ud800'", "gold_error", ""),
    ],
)
def test_what_does_not_compile_says_why(
    shop: Connection, sql: str, reason: str, detail: str
) -> None:
    with pytest.raises(GoldError) as caught:
        read_gold_tables(shop, sql)
    assert caught.value.reason == reason
    assert detail in caught.value.detail
    assert read_gold_tables(shop, "SELECT id FROM vip").tables == ("vip",)


def test_a_query_that_looks_at_the_catalogue_is_marked(shop: Connection) -> None:
    assert read_gold_tables(shop, "SELECT count(*) FROM sqlite_schema").reads_schema
    assert read_gold_tables(shop, "SELECT name FROM sqlite_master").reads_schema
    assert not read_gold_tables(shop, "SELECT value FROM json_each('[1]')").reads_schema


def test_beaver_agrees_with_its_authors() -> None:
    folder = shared_data("large", "beaver")
    differing, refused = [], []
    for record in json.loads((folder / "dev_nw.json").read_text()):
        database = record["db_id"]
        connection = open_read_only(folder / "databases" / database / f"{database}.sqlite")
        stated = {name.rpartition("#sep#")[2].lower() for name in record["gold_tables"]}
        try:
            found = {name.lower() for name in read_gold_tables(connection, record["sql"]).tables}
        except GoldError as e:
            refused.append((database, e.detail))
            continue
        if found != stated:
            differing.append((database, record["sql"][:300], sorted(found ^ stated)))
    assert not differing
    assert refused == [("csail_stata_nova", "no such function: REGEXP")] * 2
