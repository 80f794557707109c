"""Row amplification keeps every rule and every original row; same seed, same bytes."""

import os
import subprocess
import sys

import apsw
import pytest

from envbuild.generate.database import Amplified, amplify_database
from envbuild.records.signal import AmplifySettings, Gold
from envbuild.sql.connect import open_image
from tests.shared import shared_data

SHOP = """
CREATE TABLE region (code TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE shop (
    id INTEGER PRIMARY KEY AUTOINCREMENT, region TEXT NOT NULL REFERENCES region,
    title TEXT UNIQUE, opened DATE NOT NULL CHECK (opened >= '1990-01-01'),
    size INT CHECK (size BETWEEN 1 AND 9), kind TEXT CHECK (kind IN ('big', 'small')),
    label TEXT GENERATED ALWAYS AS (title || '/' || kind) VIRTUAL);
CREATE TABLE shelf (
    shop INT, number INT, depth REAL, PRIMARY KEY (shop, number),
    FOREIGN KEY (shop) REFERENCES shop (id));
CREATE TABLE item (
    id INTEGER PRIMARY KEY, shop INT, number INT, price REAL, parent INT REFERENCES item (id),
    ghost INT REFERENCES nowhere (id),
    FOREIGN KEY (shop, number) REFERENCES shelf (shop, number),
    FOREIGN KEY (shop) REFERENCES shop (id));
CREATE TABLE passport (shop INT PRIMARY KEY REFERENCES shop (id), stamp BLOB);
CREATE TRIGGER meddle AFTER INSERT ON item BEGIN DELETE FROM shelf; END;
INSERT INTO region VALUES ('N', 'North'), ('S', 'South');
INSERT INTO shop (region, title, opened, size, kind) VALUES
    ('N', 'Alpha', '2001-05-05', 3, 'big'), ('S', 'Beta', '2010-01-01', 4, 'small');
INSERT INTO shelf VALUES (1, 1, 0.5), (2, 1, 0.75);
"""
GOLDS = (
    "SELECT s.title FROM shop s JOIN item i ON i.shop = s.id GROUP BY s.id HAVING count(*) > 3",
    "SELECT count(*) FROM item WHERE price > 12.5",
    "SELECT title FROM shop WHERE strftime('%Y', opened) = '2015' AND kind = \"big\"",
    "SELECT name FROM region WHERE code NOT IN (SELECT region FROM shop WHERE size > 5)",
    "SELECT title FROM shop ORDER BY opened DESC LIMIT 1",
)


def shop_image(*, rows: bool = True) -> bytes:
    connection = apsw.Connection(":memory:")
    connection.execute(SHOP if rows else SHOP.partition("INSERT INTO region")[0])
    return connection.serialize("main")


def amplified(image: bytes, sqls: tuple[str, ...] = GOLDS, **settings: object) -> Amplified:
    golds = [Gold(question_id=str(n), sql=sql) for n, sql in enumerate(sqls)]
    return amplify_database(image, golds, settings=AmplifySettings(**settings), db_id="shop")


def grow(ddl: str, *sqls: str, **settings: object) -> Amplified:
    """The database of this DDL, amplified for these golds."""
    connection = apsw.Connection(":memory:")
    connection.execute(ddl)
    return amplified(connection.serialize("main"), sqls, **settings)


def query(image: bytes, sql: str) -> list[tuple[object, ...]]:
    return list(open_image(image).execute(sql))


@pytest.mark.parametrize("rows", [True, False], ids=["two rows", "empty"])
@pytest.mark.parametrize("seed", range(3))
def test_every_rule_holds(rows: bool, seed: int) -> None:
    image = shop_image(rows=rows)
    grown = amplified(image, seed=seed).image
    assert query(grown, "PRAGMA integrity_check") == [("ok",)]
    assert query(grown, "PRAGMA foreign_key_check") == []
    for table in ("region", "shop", "shelf", "item", "passport"):
        ((count,),) = query(grown, f"SELECT count(*) FROM {table}")
        assert count >= 30 or table == "passport"
        before = query(image, f"SELECT * FROM {table}")
        assert set(before) <= set(query(grown, f"SELECT * FROM {table}"))
    assert query(grown, "SELECT name FROM sqlite_schema WHERE type = 'trigger'") == [("meddle",)]


def test_no_gold_stays_empty_and_each_added_row_is_listed() -> None:
    result = amplified(shop_image())
    assert [state.rows_after > 0 for state in result.growth.golds] == [True] * len(GOLDS)
    for table in result.growth.tables:
        ((count,),) = query(result.image, f"SELECT count(*) FROM {table.table}")
        assert count == table.rows_before + table.rows_added
        listed = [row for row in result.growth.rows if row.table == table.table]
        assert len(listed) == table.rows_added


def test_names_seen_without_repeats_stay_unique_and_no_null_is_invented() -> None:
    grown = amplified(shop_image()).image
    assert query(grown, "SELECT count(*) - count(DISTINCT name) FROM region") == [(0,)]
    assert query(grown, "SELECT count(*) FROM shelf WHERE depth IS NULL") == [(0,)]


def test_the_same_seed_gives_the_same_bytes_under_any_hash_seed() -> None:
    program = (
        "import hashlib; from tests.generate.test_amplify import *;"
        "print(hashlib.sha256(amplified(shop_image()).image).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
    assert amplified(shop_image(), seed=1).image != amplified(shop_image(), seed=2).image


def test_a_gold_that_new_rows_would_empty_keeps_its_rows() -> None:
    # relational division: any region without a shop of its own empties it
    division = (
        "SELECT s.kind FROM shop s GROUP BY s.kind HAVING count(DISTINCT s.region) = "
        "(SELECT count(*) FROM region) - 1"
    )
    image = shop_image()
    assert len(query(image, division)) == 2
    ((state,),) = [amplified(image, (division,)).growth.golds]
    assert state.rows_after > 0


def test_real_databases_grow_cleanly() -> None:
    for path in sorted(shared_data("spider", "database").glob("*/*.sqlite"))[:4]:
        image = path.read_bytes()
        before = query(image, "SELECT count(*) FROM pragma_foreign_key_check")
        result = amplified(image, ())
        assert all(t.rows_before + t.rows_added >= t.target for t in result.growth.tables)
        grown = result.image
        assert query(grown, "PRAGMA integrity_check") == query(image, "PRAGMA integrity_check")
        assert query(grown, "SELECT count(*) FROM pragma_foreign_key_check") == before
