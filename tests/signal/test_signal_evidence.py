"""Variants behind presumed equivalents: few tables, the same rows each time, keys kept."""

from pathlib import Path

import apsw
import pytest

from envbuild.schema.read import read_schema
from envbuild.signal.evidence import open_variants, tables_asked
from envbuild.sql.connect import open_read_only

DDL = """
CREATE TABLE region (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE city (id INTEGER PRIMARY KEY, name TEXT, region_id INT NOT NULL REFERENCES region);
CREATE TABLE visit (id INTEGER PRIMARY KEY, city_id INT NOT NULL REFERENCES city, day DATE);
CREATE TABLE photo (id INTEGER PRIMARY KEY, visit_id INT REFERENCES visit);
CREATE TABLE unrelated (id INTEGER PRIMARY KEY, note TEXT);
CREATE VIEW big_city AS SELECT id, name FROM city WHERE id > 1;
CREATE INDEX photo_visit ON photo (visit_id);
CREATE INDEX notes ON unrelated (note);
INSERT INTO region VALUES (1, 'north');
INSERT INTO city VALUES (1, 'Oslo', 1), (2, 'Bergen', 1);
INSERT INTO visit VALUES (1, 1, '2024-01-01');
"""
GOLDS = ["SELECT name FROM big_city", "SELECT count(*) FROM visit WHERE day > '2024-01-01'"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    connection = apsw.Connection(str(tmp_path / "travel.sqlite"))
    connection.execute(DDL)
    connection.close()
    return tmp_path / "travel.sqlite"


def test_golds_ask_for_their_tables_neighbours_and_parents(path: Path) -> None:
    reader = open_read_only(path)
    schema = read_schema(reader)
    assert tables_asked(reader, schema, GOLDS[:1]) == {"city", "region", "visit"}
    assert tables_asked(reader, schema, GOLDS) == {"city", "region", "visit", "photo"}
    assert tables_asked(reader, schema, ["SELECT broken FROM nowhere"]) == frozenset()


def test_variants_are_seeded_sound_and_hold_what_the_golds_ask(path: Path) -> None:
    variants = open_variants(path, GOLDS, db_id="travel", count=4, seed=1)
    again = open_variants(path, GOLDS, db_id="travel", count=4, seed=1)
    images = [session.connection.serialize("main") for session in variants]
    assert images == [session.connection.serialize("main") for session in again]
    assert len(set(images)) == 4
    for session in variants:
        assert all(session.run(gold).rows for gold in GOLDS)
        assert not session.run("SELECT 1 FROM unrelated").ok
        assert list(session.connection.execute("PRAGMA foreign_key_check")) == []
    assert open_variants(path, GOLDS, db_id="travel", count=0, seed=1) == []
