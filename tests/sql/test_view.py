"""A view holds the tables asked for, as they are, and nothing else; their DDL lacks other keys."""

import json
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from envbuild.errors import CorpusError
from envbuild.records.execution import Outcome
from envbuild.sql.connect import open_read_only, quote_name
from envbuild.sql.execution.session import Session
from envbuild.sql.files.ddl import drop_references
from envbuild.sql.files.subset import ViewBuilder, build_view_image
from envbuild.sql.gold_tables import read_gold_tables
from tests.shared import shared_data

SHOP = """
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT CHECK (name <> ''));
CREATE TABLE product (sku TEXT PRIMARY KEY, price REAL) WITHOUT ROWID;
CREATE TABLE "order" (
  id INTEGER PRIMARY KEY AUTOINCREMENT, -- order's id
  customer_id INT REFERENCES customer(id) ON DELETE SET NULL,
  sku TEXT, /* to "product" */
  CONSTRAINT bought FOREIGN KEY (sku) REFERENCES product (sku) DEFERRABLE INITIALLY DEFERRED
);
CREATE TABLE note (body TEXT, rowid TEXT);
CREATE TABLE area (w INT, h INT, a INT AS (w * h), b INT AS (w + h) STORED);
CREATE TABLE exact (n INT) STRICT;
CREATE INDEX order_sku ON "order" (sku);
CREATE VIEW cheap AS SELECT * FROM product WHERE price < 5;
CREATE VIEW sold AS SELECT * FROM "order" JOIN cheap USING (sku);
INSERT INTO customer VALUES (1, 'Ann'), (7, 'Bob');
INSERT INTO product VALUES ('a', 1.5), ('b', 20);
INSERT INTO "order"(customer_id, sku) VALUES (1, 'a'), (7, 'b'), (7, 'a');
INSERT INTO note (oid, body, rowid) VALUES (5, 'five', 'x'), (9, 'nine', 'y');
INSERT INTO area (w, h) VALUES (2, 3);
INSERT INTO exact VALUES (4);
PRAGMA ignore_check_constraints = ON;
INSERT INTO customer VALUES (9, '');
ANALYZE;
CREATE TRIGGER t AFTER INSERT ON note BEGIN DELETE FROM customer; END;
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return build(tmp_path / "it's a #shop?.sqlite", SHOP)


def build(path: Path, script: str) -> Path:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(script)
    connection.close()
    return path


def rows(path: Path, tables: list[str], sql: str) -> list[tuple[object, ...]]:
    with Session.open_image(build_view_image(path, tables)) as session:
        result = session.run(sql)
        assert result.outcome is Outcome.OK, result.error
        return list(result.rows)


def test_rows_and_rowids_are_the_originals(shop: Path) -> None:
    assert rows(shop, ["CUSTOMER"], "SELECT * FROM customer") == [(1, "Ann"), (7, "Bob"), (9, "")]
    assert rows(shop, ["note"], "SELECT oid, body FROM note") == [(5, "five"), (9, "nine")]
    assert rows(shop, ["area"], "SELECT * FROM area") == [(2, 3, 6, 5)]
    assert rows(shop, ["product"], "SELECT * FROM product") == [("a", 1.5), ("b", 20.0)]
    assert rows(shop, ["exact"], "SELECT typeof(n), n FROM exact") == [("integer", 4)]


def test_only_the_tables_asked_for_exist(shop: Path) -> None:
    image = build_view_image(shop, ["order", "note"])
    listed = rows(shop, ["order", "note"], "SELECT type, name FROM sqlite_master ORDER BY rowid")
    assert [name for kind, name in listed if kind == "table" and name[:7] != "sqlite_"] == [
        "order",
        "note",
    ]
    assert not {"customer", "product", "cheap", "sold", "t"} & {name for _, name in listed}
    for hidden in ("customer", "product", "cheap", "sold"):
        with Session.open_image(image) as session:
            assert session.run(f"SELECT count(*) FROM {hidden}").error == f"no such table: {hidden}"


def test_views_come_with_the_tables_they_read(shop: Path) -> None:
    assert rows(shop, ["product"], "SELECT sku FROM cheap") == [("a",)]
    query = "SELECT id FROM sold ORDER BY id"
    assert rows(shop, ["product", "order"], query) == [(1,), (3,)]


def test_foreign_keys_out_of_the_view_leave_the_ddl_and_nothing_else(shop: Path) -> None:
    ((sql,),) = rows(shop, ["order"], "SELECT sql FROM sqlite_master WHERE name = 'order'")
    assert sql == (
        'CREATE TABLE "order" (\n  id INTEGER PRIMARY KEY AUTOINCREMENT, -- order\'s id\n'
        '  customer_id INT,\n  sku TEXT /* to "product" */\n  \n)'
    )
    whole = rows(shop, ["order", "customer", "product"], "SELECT sql FROM sqlite_master")
    assert "REFERENCES product (sku)" in str(whole)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a (x INT REFERENCES b ON UPDATE NO ACTION MATCH FULL NOT NULL)", "a (x INT NOT NULL)"),
        ("a (x INT/**/REFERENCES'b'DEFAULT 5)", "a (x INT/**/ DEFAULT 5)"),
        ("a (x INT, FOREIGN KEY (x) REFERENCES b(y)CHECK (x > 1))", "a (x INT,CHECK (x > 1))"),
        ("a (x INT, FOREIGN/**/KEY ('x') REFERENCES [b], y)", "a (x INT, y)"),
        ("a (x INT REFERENCES `other`(`y z`) NOT DEFERRABLE)", "a (x INT)"),
        (
            "a (x, FOREIGN KEY (x) REFERENCES b /**/ FOREIGN KEY (x) REFERENCES c, CHECK (x > 1))",
            "a (x /**/ , CHECK (x > 1))",
        ),
        (
            "a (x INT REFERENCES \"main.kept\", y REFERENCES 'b')",
            'a (x INT REFERENCES "main.kept", y)',
        ),
    ],
)
def test_drop_references(before: str, after: str) -> None:
    assert drop_references(f"CREATE TABLE {before}", {"a", "kept"}) == f"CREATE TABLE {after}"


def test_a_long_ddl_is_walked_once() -> None:
    ddl = f"CREATE TABLE a (x INT REFERENCES b, {', '.join(f'c{i} TEXT' for i in range(20_000))})"
    assert len(drop_references(ddl, {"a"})) == len(ddl) - len(" REFERENCES b")


def test_utf16_and_unknown_tables(tmp_path: Path) -> None:
    path = build(
        tmp_path / "wide.sqlite",
        "PRAGMA encoding='UTF-16be'; CREATE TABLE t (s TEXT); INSERT INTO t VALUES ('äö')",
    )
    assert rows(path, ["t"], "SELECT s, length(s) FROM t") == [("äö", 2)]
    with pytest.raises(CorpusError, match="no table 'u'"):
        build_view_image(path, ["u"])


MIXED = """
CREATE TABLE plain (a, b TEXT UNIQUE, UNIQUE (a, b));
CREATE TABLE quoted ("rowid" TEXT, [without] INT, 'generated' INT);
CREATE TABLE "integer primary key" (x INT, y INT);
CREATE TABLE keyed (id INTEGER PRIMARY KEY DESC, v);
CREATE TABLE clustered (k TEXT PRIMARY KEY, v UNIQUE) WITHOUT ROWID;
CREATE TABLE strict_one (n INT /* as (1) */) STRICT;
CREATE UNIQUE INDEX plain_a ON plain (a DESC);
CREATE INDEX keyed_v ON keyed (v) WHERE v > 1;
CREATE VIEW both AS SELECT plain.a, keyed.v FROM plain JOIN keyed ON keyed.v = plain.a;
INSERT INTO plain (rowid, a, b) VALUES (3, 1, 'x'), (8, 2, 'y');
INSERT INTO quoted (_rowid_, "rowid") VALUES (5, 'five'), (7, 'seven');
INSERT INTO "integer primary key" (rowid, x) VALUES (4, 40), (9, 90);
INSERT INTO keyed (rowid, id, v) VALUES (6, 60, 1), (2, 20, 2);
INSERT INTO clustered VALUES ('b', 1), ('a', 2);
INSERT INTO strict_one (rowid, n) VALUES (11, 1);
"""


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
def test_an_image_and_a_file_hold_the_same_tables(tmp_path: Path, encoding: str) -> None:
    path = build(tmp_path / "mixed.sqlite", f"PRAGMA encoding = '{encoding}'; {MIXED}")
    names = ["clustered", "keyed", "plain", "quoted", "integer primary key", "strict_one"]
    image = tmp_path / "image.sqlite"
    image.write_bytes(build_view_image(path, names))
    made = tmp_path / "made.sqlite"
    with closing(ViewBuilder(path)) as builder:
        builder.write(names, made)
    numbered = ("plain", "_rowid_, * FROM quoted", '"integer primary key"', "keyed", "strict_one")
    queries = [name if " FROM " in name else f"rowid, * FROM {name}" for name in numbered]
    found = []
    for file in (path, image, made):
        with closing(apsw.Connection(str(file))) as connection:
            assert list(connection.execute("PRAGMA integrity_check")) == [("ok",)]
            rows_of = (*queries, "* FROM clustered", "* FROM both")
            found.append([connection.execute(f"SELECT {query}").fetchall() for query in rows_of])
    assert found[0] == found[1] == found[2]
    schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
    with closing(apsw.Connection(str(image))) as one, closing(apsw.Connection(str(made))) as two:
        assert one.execute(schema).fetchall() == two.execute(schema).fetchall()


def test_rows_may_be_added_to_a_view_image_and_indexes_keep_up(shop: Path) -> None:
    with closing(apsw.Connection(":memory:")) as connection:
        connection.deserialize("main", build_view_image(shop, ["product", "note"]))
        connection.execute("INSERT INTO product VALUES ('c', 3)")
        with pytest.raises(apsw.ConstraintError):
            connection.execute("INSERT INTO product VALUES ('a', 3)")
        connection.execute("CREATE TABLE later (x)")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_rowids_of_a_format_1_database_whose_index_is_read_first(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "old.sqlite"))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_LEGACY_FILE_FORMAT, 1)
        connection.execute(
            "CREATE TABLE w (a, b); CREATE INDEX i ON w (b DESC, a);"
            "INSERT INTO w VALUES (1, 3), (2, 2), (3, 1);"
            "ANALYZE; UPDATE sqlite_stat1 SET stat = stat || ' sz=5'"
        )
    found = rows(tmp_path / "old.sqlite", ["w"], "SELECT rowid, a FROM w ORDER BY rowid")
    assert found == [(1, 1), (2, 2), (3, 3)]


def test_views_and_triggers_that_name_main_do_not_spoil_the_rest(tmp_path: Path) -> None:
    path = build(
        tmp_path / "main.sqlite",
        "CREATE TABLE t (a); INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT * FROM main.t;"
        "CREATE VIEW w AS SELECT * FROM t;"
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT * FROM main.t; END",
    )
    assert rows(path, ["t"], "SELECT * FROM w") == [(1,)]


def test_view_definitions_that_are_no_text(tmp_path: Path) -> None:
    script = (
        "CREATE TABLE t (a); INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT a FROM t -- caf\n;"
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = {} WHERE name = 'v'"
    )
    blob = build(tmp_path / "blob.sqlite", script.format("CAST(sql AS BLOB)"))
    assert rows(blob, ["t"], "SELECT * FROM v") == [(1,)]
    latin = build(tmp_path / "latin.sqlite", script.format("sql || CAST(x'e9' AS TEXT)"))
    with pytest.raises(CorpusError, match="view_not_built"):
        build_view_image(latin, ["t"])


def test_no_file_is_the_corpus_fault(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="view_not_built"):
        build_view_image(tmp_path / "absent.sqlite", ["t"])


def test_statistics_with_a_column_more(tmp_path: Path) -> None:
    path = build(
        tmp_path / "wide.sqlite",
        "CREATE TABLE t (a); CREATE INDEX i ON t (a); INSERT INTO t VALUES (1); ANALYZE;"
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = "
        "'CREATE TABLE sqlite_stat1 (tbl, idx, stat, more)' WHERE name = 'sqlite_stat1'",
    )
    assert rows(path, ["t"], "SELECT tbl, idx, stat FROM sqlite_stat1") == [("t", "i", "1 1")]


PARTS = (
    *("a INT", "b TEXT NOT NULL", "VARCHAR(20)", "PRIMARY KEY", "UNIQUE (a)", "CHECK (a > 1)"),
    *("REFERENCES x", 'references "x y" (a)', "REFERENCES x(a)", "REFERENCES `x`", "xreferences"),
    *("ON DELETE CASCADE", "on update set null", "match full", "NOT DEFERRABLE", "referencesx"),
    *("FOREIGN KEY (a)", 'foreign key("b")', '"foreign key (x)"', '"references q"', "/* c */"),
    *("CONSTRAINT c", 'constraint "x y"', "DEFERRABLE INITIALLY DEFERRED", "DEFAULT 's'"),
    *(",", ", ", ",", ",", ",", "\n", " ", "-- c\n"),
)
KEYS = "SELECT count(*) FROM pragma_foreign_key_list(?)"
COLUMNS = "SELECT name, type, [notnull], dflt_value, pk FROM pragma_table_info(?)"


def drops_keys_alone(ddl: str) -> int:
    """Keys that the table has; without them it must be the same table. -1 where it is none."""
    made = apsw.Connection(":memory:")
    try:
        made.execute(ddl)
    except apsw.Error:
        return -1
    ((name,),) = made.execute("SELECT name FROM sqlite_schema WHERE type = 'table' LIMIT 1")
    left = drop_references(ddl, ())
    bare = apsw.Connection(":memory:")
    bare.execute(left)
    assert bare.execute(KEYS, (name,)).fetchall() == [(0,)], (ddl, left)
    assert bare.execute(COLUMNS, (name,)).fetchall() == made.execute(COLUMNS, (name,)).fetchall()
    indexes = "SELECT count(*) FROM sqlite_schema"
    assert bare.execute(indexes).fetchall() == made.execute(indexes).fetchall()
    ((keys,),) = made.execute(KEYS, (name,))
    return int(keys)


def test_any_mixture_of_clauses() -> None:
    chance = random.Random(7)
    found = [
        drops_keys_alone(
            "CREATE TABLE t (a INT, b, c "
            + "".join(chance.choice(PARTS) + chance.choice((" ", " ", "")) for _ in range(4))
            + ")"
        )
        for _ in range(20_000)
    ]
    assert sum(keys >= 0 for keys in found) > 2_000
    assert sum(keys > 0 for keys in found) > 1_000


@pytest.mark.parametrize("folder", ["spider/database", "bird/dev_databases", "large/beaver"])
def test_published_ddl(folder: str) -> None:
    keys = 0
    for path in sorted(shared_data(*folder.split("/")).rglob("*.sqlite")):
        connection = apsw.Connection(
            f"file:{path}?mode=ro&immutable=1", flags=apsw.SQLITE_OPEN_URI | 1
        )
        ddl = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (sql,) in connection.execute(ddl).fetchall():
            keys += drops_keys_alone(sql)
        connection.close()
    assert keys > 0


def questions(file: Path, databases: Path, key: str) -> Iterator[tuple[Path, str]]:
    for question in json.loads(file.read_text()):
        db_id = question["db_id"]
        yield databases / db_id / f"{db_id}.sqlite", question[key]


def check_golds(asked: list[tuple[Path, str]]) -> tuple[int, list[str]]:
    """How many golds were compared, and those whose result differs on the view."""
    images: dict[tuple[Path, tuple[str, ...]], bytes] = {}
    differing, compared = [], 0
    for path, gold in asked:
        with Session.open_file(path) as whole:
            expected = whole.run(gold)
            if not expected.ok:
                continue
            tables = tuple(read_gold_tables(whole.connection, gold).tables)
        if (path, tables) not in images:
            images[path, tables] = build_view_image(path, tables)
        compared += 1
        with Session.open_image(images[path, tables]) as view:
            if view.run(gold) != expected:
                differing.append(gold)
    return compared, differing


def test_spider_golds() -> None:
    root = shared_data("spider")
    asked = list(questions(root / "dev.json", root / "database", "query"))
    compared, differing = check_golds(asked)
    assert compared == len(asked) == 597 and not differing


@pytest.mark.slow
def test_bird_golds() -> None:
    root = shared_data("bird")
    asked = list(questions(root / "dev.json", root / "dev_databases", "SQL"))
    compared, differing = check_golds(asked)
    assert compared == 287 and not differing


@pytest.mark.slow
def test_every_table_of_a_large_database_is_copied_value_for_value() -> None:
    path = next(shared_data("large", "pokedex").rglob("*.sqlite"))
    with closing(open_read_only(path)) as source:
        names = [
            str(name)
            for (name,) in source.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            )
        ]
        assert len(names) == 172
        for start in range(0, len(names), 16):
            some = names[start : start + 16]
            with closing(apsw.Connection(":memory:")) as view:
                view.deserialize("main", build_view_image(path, some))
                ((sound,),) = view.execute("PRAGMA integrity_check(1)")
                assert sound == "ok"
                for name in some:
                    query = f"SELECT rowid, * FROM {quote_name(name)}"
                    assert list(view.execute(query)) == list(source.execute(query)), name
