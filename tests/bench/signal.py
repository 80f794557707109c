"""The signal of golds as long as SynSQL's: drawing mutants, and running them on one database."""

import json
import tempfile
import time
from pathlib import Path
from statistics import median

from envbuild.materialize.build import build_database
from envbuild.records.corpus import DatabaseRecord
from envbuild.schema.read import read_schema
from envbuild.signal.evidence import open_variants
from envbuild.signal.mutants import draw_mutants
from envbuild.signal.score import MIN_VARIANTS, score_question
from envbuild.signal.tree import compiler_for
from envbuild.sql.execution.session import Session

ROWS = 40
"""Rows a table."""
DDL = """
CREATE TABLE users (user_id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT, joined DATE);
CREATE TABLE products (product_id INTEGER PRIMARY KEY, title TEXT, category TEXT, price REAL);
CREATE TABLE orders (order_id INTEGER PRIMARY KEY, user_id INT REFERENCES users (user_id),
                     placed DATE, status TEXT, total REAL);
CREATE TABLE items (item_id INTEGER PRIMARY KEY, order_id INT REFERENCES orders (order_id),
                    product_id INT REFERENCES products (product_id), quantity INT);
"""
GOLDS = (
    "WITH spent AS (SELECT o.user_id, SUM(o.total) AS total, COUNT(*) AS orders FROM orders AS o "
    "WHERE o.status = 'paid' AND o.placed >= '2024-01-10' GROUP BY o.user_id HAVING COUNT(*) >= 1) "
    "SELECT u.name, s.total, RANK() OVER (PARTITION BY u.country ORDER BY s.total DESC) AS place "
    "FROM spent AS s JOIN users AS u ON u.user_id = s.user_id WHERE u.country IN ('c1', 'c2') "
    "ORDER BY s.total DESC, u.name LIMIT 5",
    "SELECT p.category, COUNT(DISTINCT o.user_id) AS buyers, AVG(i.quantity * p.price) AS average "
    "FROM items AS i JOIN products AS p ON p.product_id = i.product_id "
    "JOIN orders AS o ON o.order_id = i.order_id WHERE p.price BETWEEN 5 AND 30 AND i.quantity > 1 "
    "GROUP BY p.category HAVING SUM(i.quantity) > 3 ORDER BY buyers DESC, average",
    "WITH ranked AS (SELECT o.order_id, o.user_id, o.total, ROW_NUMBER() OVER (PARTITION BY "
    "o.user_id ORDER BY o.total DESC) AS place FROM orders AS o WHERE o.status <> 'open'), "
    "best AS (SELECT user_id, total FROM ranked WHERE place = 1) SELECT u.country, "
    "ROUND(AVG(b.total), 2) AS best, COUNT(*) AS buyers FROM best AS b LEFT JOIN users AS u "
    "ON u.user_id = b.user_id GROUP BY u.country ORDER BY best DESC",
    "SELECT u.name, (SELECT MAX(o.total) FROM orders AS o WHERE o.user_id = u.user_id) AS most "
    "FROM users AS u WHERE EXISTS (SELECT 1 FROM orders AS o WHERE o.user_id = u.user_id AND "
    "o.total > (SELECT AVG(total) FROM orders)) AND u.joined < '2024-02-01' ORDER BY most DESC",
)


def measure(rounds: int) -> list[dict[str, object]]:
    """Milliseconds of CPU a gold: drawing 12 mutants, scoring on one database, with variants."""
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        path = Path(folder) / "shop.sqlite"
        build_database(DatabaseRecord(db_id="shop", ddl=DDL, payload=_payload()), path)
        times = [_round(path) for _ in range(rounds)]
    whats = (
        "drawing 12 mutants",
        "score on one database",
        f"score with {MIN_VARIANTS} variants, 1 gold a database",
    )
    return [
        {"what": what, "ms_a_gold": round(median(column), 2)}
        for what, column in zip(whats, zip(*times, strict=True), strict=True)
    ]


def _round(path: Path) -> tuple[float, float, float]:
    with Session.open_file(path) as session:
        schema = read_schema(session.connection)
        compiles = compiler_for(schema)
        started = time.process_time()
        for gold in GOLDS:
            assert len(draw_mutants(gold, schema, compiles=compiles).mutants) == 12
        drawn = time.process_time()
        for gold in GOLDS:
            score = score_question(gold, session=session, schema=schema, compiles=compiles)
            assert score.signal_low, score
        scored = time.process_time()
        for gold in GOLDS:
            variants = open_variants(path, [gold], db_id="shop", count=MIN_VARIANTS, seed=0)
            score_question(
                gold, session=session, schema=schema, variants=variants, compiles=compiles
            )
            for variant in variants:
                variant.close()
        ended = time.process_time()
    golds = len(GOLDS) / 1e3
    return (drawn - started) / golds, (scored - drawn) / golds, (ended - scored) / golds


def _payload() -> str:

    turns = range(1, ROWS + 1)
    tables = {
        "users": [[n, f"name {n}", f"c{n % 4}", f"2024-01-{n % 28 + 1:02}"] for n in turns],
        "products": [[n, f"title {n}", f"k{n % 5}", n * 0.75] for n in turns],
        "orders": [
            [n, n % 17 + 1, f"2024-01-{n % 28 + 1:02}", ("paid", "open")[n % 3 == 0], n * 3.5]
            for n in turns
        ],
        "items": [[n, n % 23 + 1, n % 31 + 1, n % 4 + 1] for n in turns],
    }
    return json.dumps(tables)
