"""Cuts of real and of awkward databases: never too long, no new orphan, bytes kept."""

from pathlib import Path

import apsw
import pytest

from envbuild.schema.read import read_schema
from envbuild.signal.cuts import children_first, cut_image
from envbuild.sql.connect import open_image, open_read_only, quote_name
from tests.shared import shared_data

AWKWARD = """
CREATE TABLE "order" (rowid TEXT, "to" INT, PRIMARY KEY (rowid)) WITHOUT ROWID;
CREATE TABLE employee (id INTEGER PRIMARY KEY, boss INT REFERENCES employee, name TEXT,
                       shout TEXT GENERATED ALWAYS AS (upper(name)) STORED);
CREATE TABLE pair (a INT, b INT, note BLOB, UNIQUE (a, b));
CREATE TABLE leaf (a INT, b INT, code TEXT, FOREIGN KEY (a, b) REFERENCES pair (a, b),
                   FOREIGN KEY (code) REFERENCES "order" (rowid));
CREATE INDEX leaf_code ON leaf (code);
CREATE VIEW loud AS SELECT shout FROM employee;
CREATE TRIGGER stop BEFORE INSERT ON pair BEGIN SELECT raise(ABORT, 'no; not now'); END;
"""
FILL = """
DROP TRIGGER stop;
INSERT INTO "order" SELECT 'k' || value, value FROM generate_series(1, 9);
INSERT INTO employee (id, boss, name)
  SELECT value, CASE WHEN value > 1 THEN value / 2 END, 'n' || value FROM generate_series(1, 20);
INSERT INTO pair SELECT value, value % 3, CAST(x'ff00' AS TEXT) FROM generate_series(1, 9);
INSERT INTO leaf SELECT value % 9 + 1, (value % 9 + 1) % 3, 'k' || (value % 9 + 1)
  FROM generate_series(1, 40);
CREATE TRIGGER stop BEFORE INSERT ON pair BEGIN SELECT raise(ABORT, 'no; not now'); END;
"""


@pytest.fixture
def awkward(tmp_path: Path) -> Path:
    path = tmp_path / "awkward.sqlite"
    connection = apsw.Connection(str(path))
    numbers = "WITH RECURSIVE s(value) AS (SELECT {} UNION ALL SELECT value + 1 FROM s LIMIT {})"
    script = AWKWARD + FILL
    for first, last in ((1, 9), (1, 20), (1, 40)):
        series = numbers.format(first, last) + " SELECT value FROM s"
        script = script.replace(f"generate_series({first}, {last})", f"({series})")
    connection.execute(script)
    connection.close()
    return path


def counts(connection: apsw.Connection) -> dict[str, int]:
    return {
        name: connection.execute(f"SELECT count(*) FROM {quote_name(name)}").get
        for name in read_schema(connection).table_names
    }


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5, 50])
def test_an_fk_cut_is_full_where_it_can_be_and_makes_no_orphan(awkward: Path, rows: int) -> None:
    cut = open_image(cut_image(awkward, rows))
    before, after = counts(open_read_only(awkward)), counts(cut)
    assert after == {name: min(rows, count) for name, count in before.items()}
    assert list(cut.execute("PRAGMA foreign_key_check")) == []
    assert cut.execute("PRAGMA integrity_check").get == "ok"


def test_everything_but_rows_is_kept(awkward: Path) -> None:
    names = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"
    whole, cut = open_read_only(awkward), open_image(cut_image(awkward, 2))
    assert list(cut.execute(names)) == list(whole.execute(names))
    assert cut.execute("SELECT hex(note) FROM pair LIMIT 1").get == "FF00"
    assert cut.execute("SELECT shout = upper(name) FROM employee LIMIT 1").get == 1


def test_naive_keeps_the_first_rows(awkward: Path) -> None:
    cut = open_image(cut_image(awkward, 2, naive=True))
    assert list(cut.execute("SELECT id FROM employee")) == [(1,), (2,)]
    assert counts(cut) == {"order": 2, "employee": 2, "pair": 2, "leaf": 2}


def test_same_seed_same_bytes(awkward: Path) -> None:
    assert cut_image(awkward, 3, seed=7) == cut_image(awkward, 3, seed=7)
    assert cut_image(awkward, 3, seed=7) != cut_image(awkward, 3, seed=8)


def test_children_come_before_their_parents(awkward: Path) -> None:
    order = children_first(read_schema(open_read_only(awkward)))
    assert sorted(order) == ["employee", "leaf", "order", "pair"]
    assert order.index("leaf") < order.index("pair") and order.index("leaf") < order.index("order")


@pytest.mark.parametrize("folder", ["spider/database", "bird/dev_databases"])
def test_real_databases_get_no_new_orphan(folder: str) -> None:
    checked = 0
    for path in sorted(shared_data(*folder.split("/")).rglob("*.sqlite")):
        whole = open_read_only(path)
        own = {
            (table, parent, rowid)
            for table, rowid, parent, _ in whole.execute("PRAGMA foreign_key_check")
        }
        cut = open_image(cut_image(path, 5))
        new = [
            found
            for found in cut.execute("PRAGMA foreign_key_check")
            if (found[0], found[2], found[1]) not in own
        ]
        assert new == [], path.name
        assert max(counts(cut).values()) <= 5
        checked += 1
    assert checked


def test_a_large_table_is_looked_at_in_places(tmp_path: Path) -> None:
    path = tmp_path / "large.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE visit (id INTEGER PRIMARY KEY, page INT REFERENCES page (id));"
        "CREATE TABLE page (id INTEGER PRIMARY KEY);"
        "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s LIMIT 300000)"
        " INSERT INTO visit SELECT n, n % 100 FROM s;"
        "INSERT INTO page SELECT DISTINCT page FROM visit;"
    )
    connection.close()
    cut = open_image(cut_image(path, 20))
    assert counts(cut) == {"visit": 20, "page": 20}
    assert list(cut.execute("PRAGMA foreign_key_check")) == []
