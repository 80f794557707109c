"""Ways to run episodes over a small real database, the fixture `shop`."""

from pathlib import Path
from typing import Any

from envbuild.env.episode import TextEpisode
from envbuild.env.views import open_database
from envbuild.records.episode import Task
from envbuild.testing.policies import call

SHOP = """
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
CREATE TABLE product (sku TEXT PRIMARY KEY, price REAL);
CREATE TABLE sale (
  id INTEGER PRIMARY KEY,
  customer_id INT REFERENCES customer(id),
  sku TEXT REFERENCES product(sku),
  secret_id INT REFERENCES secret(id)
);
CREATE TABLE secret (id INTEGER PRIMARY KEY, answer TEXT);
CREATE TABLE lonely (n INT);
INSERT INTO customer SELECT value, 'c' || value, CASE value % 3 WHEN 0 THEN 'Bern' END
  FROM series WHERE value <= 20;
INSERT INTO product VALUES ('a', 1.5), ('b', 20.0);
INSERT INTO sale SELECT value, value, 'a', 1 FROM series WHERE value <= 9;
INSERT INTO secret VALUES (1, 'hidden words');
INSERT INTO lonely VALUES (1), (NULL), (3);
"""
VISIBLE = ("sale", "customer", "product", "lonely")
TASK = Task(question="How many customers are there?", row_id="shop/1")


def query(sql: str) -> str:
    return call("run_query", sql=sql)


def submit(sql: str) -> str:
    return call("submit_sql", sql=sql)


def start(path: Path, **options: Any) -> TextEpisode:
    return TextEpisode(TASK, open_database(path, VISIBLE), **options)


def feed_all(episode: TextEpisode, completions: list[str]) -> list[str]:
    """Feeds completions until they are used up or the episode is over."""
    observations = []
    for completion in completions:
        if episode.next_request() is None:
            break
        observations.append(episode.feed(completion))
    return observations
