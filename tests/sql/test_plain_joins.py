"""The plain way of counting joins answers most queries, and always what the tree would."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from sqlglot.dialects.sqlite import SQLite

from envbuild.corpora.source import read_source
from envbuild.materialize.build import build_database
from envbuild.records.schema import Schema
from envbuild.schema.read import read_schema
from envbuild.sql.connect import open_read_only
from envbuild.sql.text.plain_grammar import FUNCTIONS, KNOWN, TYPES
from envbuild.sql.text.plain_select import plain_selects
from envbuild.sql.trees.joins import count_joins_in_tree, join_share
from envbuild.sql.trees.plain_joins import count_plain_joins
from envbuild.sql.trees.schema_columns import schema_columns
from tests.shared import shared_data
from tests.sql.odd_queries import odd_queries
from tests.sql.test_joins import SHARES, SHOP


def compare(queries: Iterable[tuple[str, Schema]]) -> Counter[str]:
    """Asserts that both ways count alike; how many queries there were, and were plain."""
    seen: Counter[str] = Counter()
    for sql, schema in queries:
        columns = schema_columns(schema)
        plain = count_plain_joins(sql, columns)
        seen["asked"] += 1
        if plain is not None:
            assert plain == count_joins_in_tree(sql, columns), sql
            seen["plain"] += 1
            seen["along keys"] += plain[0] > 0
            seen["partly"] += 0 < plain[0] < plain[1]
    return seen


@pytest.mark.parametrize(("sql", "share"), SHARES)
def test_the_share_is_that_of_the_tree(sql: str, share: float) -> None:
    compare([(sql, SHOP)])


@pytest.mark.parametrize(
    ("corpus", "least"),
    [("spider", 1.0), ("bird", 1.0), ("synsql", 0.95), ("sqale", 0.8), ("machinespider_de", 0.86)],
)
def test_golds(corpus: str, least: float, tmp_path: Path) -> None:
    source = read_source(shared_data(corpus))
    schemas: dict[str, Schema] = {}
    for record in source.databases():
        path = Path(record.sqlite_file or tmp_path / f"{record.db_id}.sqlite")
        if not record.sqlite_file:
            build_database(record, path)
        with closing(open_read_only(path)) as connection:
            schemas[record.db_id] = read_schema(connection)
    seen = compare((question.gold_sql, schemas[question.db_id]) for question in source.questions())
    assert seen["plain"] >= least * seen["asked"] > 0


def test_predictions() -> None:
    lines = shared_data("predictions", "spider_dev_supersql.jsonl").read_text().splitlines()
    databases = shared_data("spider", "database")

    @cache
    def schema(db_id: str) -> Schema:
        with closing(open_read_only(databases / db_id / f"{db_id}.sqlite")) as connection:
            return read_schema(connection)

    records = [json.loads(line) for line in lines]
    seen = compare((record["predicted_sql"], schema(record["db_id"])) for record in records)
    assert seen["plain"] == seen["asked"] == 597
    assert seen["along keys"] > 200


def test_odd_queries() -> None:
    seen = compare((sql, SHOP) for sql in odd_queries(SHOP, count=2500, seed=0))
    assert seen["plain"] > 400
    assert seen["partly"] > 20


@pytest.mark.slow
def test_many_odd_queries() -> None:
    seen = compare((sql, SHOP) for sql in odd_queries(SHOP, count=20_000, seed=1))
    assert seen["plain"] > 3000


FORMS = (
    "SELECT {w}, t.{w}, {w} AS {w}, {w} + 1, -{w}, sum({w}), max({w}, 1) FROM {w} WHERE {w} = 1",
    "SELECT {w}.x, {w}.* FROM {w} AS {w}, t AS {w}, {w} {w} JOIN {w} ON {w}.x = {w}.{w}",
    "SELECT 1 FROM t {w} JOIN t {w} ON {w} = {w} AND {w} IS {w} LEFT JOIN t {w} USING ({w})",
    "SELECT {w} FROM t WHERE {w} NOT IN ({w}, {w}) AND NOT {w} LIKE {w} OR {w} BETWEEN {w} AND {w}",
    "SELECT 1 FROM t {w} NATURAL JOIN t {w} WHERE CASE {w} WHEN {w} THEN {w} ELSE {w} END = {w}",
    "WITH {w} AS (SELECT {w} FROM t) SELECT DISTINCT {w} FROM {w} UNION SELECT {w} FROM {w} {w}",
    "SELECT {w} FROM t {w} GROUP BY {w}, {w}.{w} HAVING {w} > 1 ORDER BY {w} ASC, {w} DESC LIMIT 1",
)


def test_words_are_known_or_names_to_sqlglot_too() -> None:
    """Whatever word sqlglot has a meaning for, the plain way knows too, or it means nothing."""
    sqlite = SQLite()
    words = {word.lower() for word in (*SQLite.Tokenizer.KEYWORDS, *SQLite.Parser.FUNCTIONS)}
    words = {word for word in words - {"null"} if re.fullmatch(r"[a-z_][a-z0-9_]*", word)}
    assert len(words) > 500
    for form in FORMS:
        assert plain_selects(form.format(w="plain_name")) is not None
        expected = repr(sqlite.parse(form.format(w="plain_name")))
        for word in sorted(words):
            if plain_selects(form.format(w=word)) is not None:
                found = repr(sqlite.parse(form.format(w=word))).lower()
                assert found == expected.lower().replace("plain_name", word), (word, form)


def test_functions_and_types_are_read() -> None:
    sqlite = SQLite()
    for name, (least, most) in FUNCTIONS.items():
        for given in range(least, most + 1):
            sql = f"SELECT {name}({', '.join((['t.x', '1', '(SELECT 1)', 'a + 1'] * 3)[:given])})"
            assert plain_selects(sql) is not None, sql
            assert sqlite.parse(sql)
        assert KNOWN[name] == "f"
    for name in TYPES:
        assert plain_selects(f"SELECT CAST(a + 1 AS {name})") is not None
        assert sqlite.parse(f"SELECT CAST(a + 1 AS {name})")


NOT_PLAIN = (
    "SELECT * FROM (orders o JOIN customers c ON o.customer_id = c.id)",
    "SELECT * FROM orders JOIN customers ON (orders.customer_id) = customers.id",
    "SELECT * FROM orders, customers WHERE (customer_id, 1) = (customers.id, 1)",
    "SELECT * FROM main.orders, customers WHERE customer_id = customers.id",
    "SELECT * FROM orders, json_each('[1]')",
    "SELECT * FROM orders o, customers WHERE o.customer_id = customers.id COLLATE NOCASE",
    "WITH c(k) AS (SELECT id FROM customers) SELECT * FROM c, orders WHERE k = customer_id",
    "WITH c AS (SELECT max(id) FROM customers) SELECT * FROM c, orders WHERE id = customer_id",
    "SELECT * FROM orders, customers GROUP /* why */ BY 1",
    "SELECT * FROM orders, customers GROUP -- why\n/* so */ BY 1",
    "SELECT * FROM orders, customers /* no end",
    "SELECT * FROM orders, customers /*/",
    "SELECT 1a FROM orders, customers",
    'SELECT "a""b" FROM orders, customers',
    "SELECT * FROM orders, (VALUES (1))",
)


@pytest.mark.parametrize("sql", NOT_PLAIN)
def test_left_to_the_tree(sql: str) -> None:
    assert count_plain_joins(sql, schema_columns(SHOP)) is None


def test_what_doubles_sqlglots_time_is_not_given_to_it() -> None:
    joins = " JOIN customers" * 40
    assert join_share(f"SELECT 1 FROM orders{joins}", SHOP) == 0.0
    assert join_share(f"SELECT 1 COLLATE nocase FROM orders{joins}", SHOP) == 0.0
    dates = "date(" * 40 + "1" + ")" * 40
    assert join_share(f"SELECT {dates} COLLATE nocase FROM orders, customers", SHOP) == 0.0
