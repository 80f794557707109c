"""One record to one SQLite file: every value exact, every loss named, the same bytes each time."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from envbuild.errors import CorpusError, PayloadError
from envbuild.materialize.build import Built, build_database
from envbuild.records.corpus import DatabaseRecord
from envbuild.schema.read import read_schema_of
from envbuild.sql.connect import open_read_only
from envbuild.sql.files.dump_text import read_dump
from envbuild.sql.files.inspect import count_rows, find_undecodable


def build(path: Path, ddl: str, payload: Any = "", **fields: str) -> Built:
    text = payload if isinstance(payload, str | bytes) else json.dumps(payload)
    return build_database(DatabaseRecord(db_id="d", ddl=ddl, payload=text, **fields), path)


def read(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = open_read_only(path)
    try:
        return list(connection.execute(sql))
    finally:
        connection.close()


def reasons(built: Built) -> list[tuple[str, str]]:
    return [(reject.kind, reject.reason) for reject in built.rejects]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "d.sqlite"


def test_keys_differ_from_row_to_row(file: Path) -> None:
    built = build(
        file,
        "CREATE TABLE t(id INTEGER, n TEXT, d TEXT DEFAULT 'x', e TEXT NOT NULL DEFAULT 'y');",
        {"t": [{"id": 1}, {"n": "b", "e": "z"}, {"id": 3, "zzz": 1}]},
    )
    assert read(file, "SELECT * FROM t") == [
        (1, None, "x", "y"),
        (None, "b", "x", "z"),
        (3, None, "x", "y"),
    ]
    assert reasons(built) == [("cell", "unknown_column")]
    assert (built.tables[0].rows_offered, built.tables[0].rows_stored) == (3, 3)


def test_every_refused_row_is_counted_under_its_constraint(file: Path) -> None:
    ddl = (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, u TEXT UNIQUE ON CONFLICT REPLACE, "
        "n TEXT NOT NULL ON CONFLICT IGNORE, CHECK (length(n) < 3));"
        "CREATE TABLE s(a INT) STRICT;"
    )
    rows = [
        {"id": 1, "u": "a", "n": "long enough to break the CHECK"},
        {"id": 1, "u": "b", "n": "x"},
        {"id": 2, "u": "a", "n": "x"},
        {"id": 3, "u": "c", "n": None},
        {"id": "four", "u": "d", "n": "x"},
        7,
        {"id": 5, "u": "e", "n": "x"},
    ]
    built = build(file, ddl, {"t": rows, "s": [{"a": "word"}, {"a": 1}], "nope": [{"a": 1}, {}]})
    assert read(file, "SELECT id FROM t") == [(1,), (5,)]
    assert [(r.table, r.index, r.reason) for r in built.rejects] == [
        ("nope", 0, "unknown_table"),
        ("nope", 1, "unknown_table"),
        ("t", 1, "PRIMARY KEY"),
        ("t", 2, "UNIQUE"),
        ("t", 3, "NOT NULL"),
        ("t", 4, "datatype_mismatch"),
        ("t", 5, "row_not_object"),
        ("s", 0, "DATATYPE"),
    ]
    database = built.database
    assert (database.rows_offered, database.rows_stored, database.rows_refused) == (11, 3, 8)
    for table in built.tables:
        assert table.rows_offered == table.rows_stored + table.rows_refused
        assert table.rows == table.rows_stored


def test_names_fold_ascii_letters_only(file: Path) -> None:
    built = build(file, 'CREATE TABLE "Ä"(x INT);', {"ä": [{"x": 1}], "Ä": [{"X": 2}]})
    assert read(file, 'SELECT x FROM "Ä"') == [(2,)]
    assert reasons(built) == [("row", "unknown_table")]


def test_the_schema_cannot_reach_outside(file: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.sqlite"
    built = build(
        file,
        f"ATTACH '{outside}' AS o; PRAGMA journal_mode = WAL; COMMIT; CREATE TEMP TABLE x(a);"
        f"VACUUM INTO '{outside}'; CREATE TABLE sqlite_sequence(name, seq); CREATE TABLE t(a);",
        {"t": [{"a": 1}]},
    )
    assert not outside.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["d.sqlite"]
    assert read(file, "SELECT a FROM t") == [(1,)]
    assert (built.database.ddl_statements, built.database.ddl_refused) == (7, 6)
    assert len(built.rejects) == 6
    assert file.read_bytes()[18:20] == b"\1\1"


def test_an_endless_statement_ends(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.sql.files.create.DDL_STEPS", 2_000_000)
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r"
    built = build(file, f"CREATE TABLE a AS {endless}; CREATE TABLE t(a);", {"t": [{"a": 1}]})
    assert read(file, "SELECT a FROM t") == [(1,)]
    assert reasons(built) == [("statement", "ddl_refused")]


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE p(id INTEGER PRIMARY KEY); CREATE TABLE c(p_id INT); "
        "ALTER TABLE ONLY public.c ADD CONSTRAINT k FOREIGN KEY (p_id) REFERENCES public.p(id);",
        "CREATE TABLE `p` (`id` int(11) NOT NULL AUTO_INCREMENT, PRIMARY KEY (`id`)) ENGINE=InnoDB;"
        "CREATE TABLE `c` (`p_id` int(11) -- the (parent\n) ENGINE=InnoDB;"
        "ALTER TABLE `c` ADD KEY `i` (`p_id`), ADD FOREIGN KEY (`p_id`) REFERENCES `p` (`id`);",
        "CREATE TABLE public.p (id serial PRIMARY KEY, s varchar DEFAULT 'x'::character varying);"
        "CREATE TABLE public.c (p_id integer REFERENCES public.p(id));",
    ],
)
def test_other_dialects_keep_their_keys(file: Path, ddl: str) -> None:
    built = build(file, ddl, {"p": [{}, {}], "c": [{"p_id": 2}, {"p_id": 9}]})
    assert read(file, 'SELECT "table", "from" FROM pragma_foreign_key_list("c")') == [("p", "p_id")]
    assert read(file, "SELECT id FROM p") == [(1,), (2,)]
    assert built.database.foreign_keys == 1
    assert built.database.fk_violations == 1
    assert built.database.ddl_refused == 0
    assert {reason for _, reason in reasons(built)} <= {"transpiled", "folded"}


@pytest.mark.parametrize("payload", ['{"t":[{"id":1]}', b'{"t": [{"id": "\xff"}]}', "[" * 100_000])
def test_a_broken_payload_leaves_no_file(file: Path, payload: Any) -> None:
    with pytest.raises(PayloadError, match="payload_parse_error"):
        build(file, "CREATE TABLE t(id INTEGER);", payload)
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("payload", ["", "null", "{}", "\ufeff{}", '{"t": null}', '{"t": []}'])
def test_no_rows_is_fine(file: Path, payload: str) -> None:
    built = build(file, "CREATE TABLE t(id INTEGER);", payload)
    assert (built.database.tables, built.database.rows) == (1, 0)


def test_ready_files_are_copied_with_their_log_and_never_written(tmp_path: Path) -> None:
    source = tmp_path / "source.sqlite"
    writer = apsw.Connection(str(source))
    writer.execute("PRAGMA journal_mode = WAL").fetchall()
    writer.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1)").fetchall()
    before = source.read_bytes()
    record = DatabaseRecord(db_id="d", sqlite_file=str(source))
    target = tmp_path / "out" / "d.sqlite"
    built = build_database(record, target)
    assert read(target, "SELECT a FROM t") == [(1,)]
    assert [p.name for p in target.parent.iterdir()] == ["d.sqlite"]
    assert target.read_bytes()[18:20] == b"\1\1"
    assert built.database.rows == built.database.rows_offered == 1
    assert source.read_bytes() == before
    build_database(record, tmp_path / "out" / "linked.sqlite", link=True)
    assert read(tmp_path / "out" / "linked.sqlite", "SELECT a FROM t") == [(1,)]
    writer.close()


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source.sqlite"
    source.write_text("not a database " * 100)
    with pytest.raises(CorpusError, match="not_a_database"):
        build_database(DatabaseRecord(db_id="d", sqlite_file=str(source)), tmp_path / "o" / "d")
    with pytest.raises(CorpusError, match="missing_file"):
        build_database(DatabaseRecord(db_id="d", sqlite_file=str(tmp_path / "x")), tmp_path / "d")
    assert list((tmp_path / "o").iterdir()) == []


def test_of_a_ready_file_what_cannot_be_read_here_is_listed(tmp_path: Path) -> None:
    """A module, a collation and a function that the writer had and SQLite alone has not."""
    source = tmp_path / "source.sqlite"
    writer = apsw.Connection(str(source))
    writer.create_collation("german", lambda a, b: (a > b) - (a < b))
    writer.create_scalar_function("twice", lambda n: 2 * n, 1, deterministic=True)
    writer.execute(
        """
        CREATE TABLE plain(a); INSERT INTO plain VALUES (1), (2);
        CREATE TABLE indexed(k TEXT COLLATE german PRIMARY KEY, n REFERENCES indexed(k));
        INSERT INTO indexed VALUES ('a', 'b');
        CREATE TABLE keyed(k TEXT COLLATE german PRIMARY KEY) WITHOUT ROWID;
        CREATE TABLE computed(a, b AS (twice(a)));
        CREATE VIRTUAL TABLE text USING fts5(body);
        PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = replace(sql, 'fts5', 'spatial') WHERE name = 'text';
        """
    ).fetchall()
    writer.close()
    target = tmp_path / "d.sqlite"
    built = build_database(DatabaseRecord(db_id="d", sqlite_file=str(source)), target)
    rows = {table.table: table.rows for table in built.tables}
    assert rows.items() >= {"plain": 2, "indexed": 1}.items()
    assert not rows.keys() & {"keyed", "computed", "text"}
    said = {reject.table: reject.detail for reject in built.rejects}
    assert reasons(built) == [("statement", "unreadable_table")] * 3
    assert said.keys() == {"keyed", "computed", "text"}
    assert said["text"] == "no such module: spatial"
    assert count_rows(target).items() >= rows.items()
    with closing(open_read_only(target)) as connection:
        assert find_undecodable(connection) == []
    assert {table.name for table in read_schema_of(target).tables} >= rows.keys()


@pytest.mark.parametrize("words", ["AUTOINCREMENT", ""])
def test_a_row_past_the_largest_id_is_refused(file: Path, words: str) -> None:
    """SQLite calls an AUTOINCREMENT table full, and picks any other id at random."""
    largest = 2**63 - 1
    ddl = f"CREATE TABLE t(id INTEGER PRIMARY KEY {words}, n TEXT);"
    rows = [{"id": str(largest - 1)}, {"n": "last"}, {"n": "none"}, {"id": 3}, {"id": None}]
    built = build(file, ddl, {"t": rows})
    assert read(file, "SELECT id FROM t ORDER BY id") == [(3,), (largest - 1,), (largest,)]
    refused = [(r.index, r.reason) for r in built.rejects]
    assert refused == [(2, "no_id_left"), (4, "no_id_left")]


@pytest.mark.parametrize("words", ["INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER PRIMARY KEY"])
def test_a_statement_that_inserts_past_the_largest_id_is_refused(file: Path, words: str) -> None:
    ddl = (
        f"CREATE TABLE t(id {words}, n); INSERT INTO t VALUES (1, 'a');"
        "INSERT INTO t VALUES (5, 'b'), (9223372036854775807, 'c'), (NULL, 'd');"
        "INSERT INTO t VALUES (9223372036854775807, 'e'); INSERT INTO t(n) VALUES ('f');"
        "CREATE TABLE u(x); INSERT INTO u VALUES (1);"
    )
    built = build(file, ddl, {"t": [{"n": "g"}]})
    assert read(file, "SELECT n FROM t ORDER BY id") == [("a",), ("e",)]
    assert read(file, "SELECT x FROM u") == [(1,)]
    assert reasons(built) == [
        ("statement", "ddl_refused"),
        ("statement", "ddl_refused"),
        ("row", "no_id_left"),
    ]


def test_a_default_that_changes_is_fixed(file: Path) -> None:
    """The clock's and a random one's: the same payload gives the same bytes on another day."""
    ddl = (
        "CREATE TABLE t(id INT, at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, d DATE DEFAULT "
        "(date('now', '+1 day')), r INT DEFAULT (abs(random()) + 1), b DEFAULT (randomblob(2)), "
        "c DEFAULT 'now', y DEFAULT CURRENT_DATE);"
    )
    built = build(
        file, ddl, {"t": [{"id": 1}, {"id": 2, "at": "2020-01-01"}, [3, "x", 1, 2, 3, 4, 5]]}
    )
    fixed = "1970-01-01 00:00:00"
    assert read(file, "SELECT * FROM t") == [
        (1, fixed, "1970-01-02", 1, b"\0\0", "now", "1970-01-01"),
        (2, "2020-01-01", "1970-01-02", 1, b"\0\0", "now", "1970-01-01"),
        (3, "x", 1, 2, 3, 4, 5),
    ]
    said = {
        r.detail.partition(":")[0]: (r.index, r.detail.rpartition("; ")[2]) for r in built.rejects
    }
    assert {r.reason for r in built.rejects} == {"fixed_default"}
    assert said == {
        "at": (0, "1 cells"),
        "d": (0, "2 cells"),
        "r": (0, "2 cells"),
        "b": (0, "2 cells"),
        "y": (0, "2 cells"),
    }


def test_cells_that_affinity_changes_are_noted_once_a_column(file: Path) -> None:
    ddl = "CREATE TABLE t(zip INTEGER, r REAL, d DATETIME, n TEXT, a ANY);"
    zips = ["5", "-12", "007", 7, None, "+5", " 5", "1e3", "x", "1.50", "12345678901234567890"]
    rows: list[dict[str, Any]] = [{"zip": z, "r": "1.25", "d": "2020-01-01"} for z in zips]
    rows += [{"r": 2**53 + 1, "d": "0020"}, {"n": 0.1 + 0.2, "a": "1.0"}, {"n": 0.5, "a": "1"}]
    built = build(file, ddl, {"t": rows})
    assert built.database.rows == len(rows)
    assert [(r.index, r.reason, r.detail) for r in built.rejects] == [
        (2, "changed_by_affinity", "zip (integer): '007' is 7; 5 cells"),
        (11, "changed_by_affinity", "r (real): 9007199254740993 is 9007199254740992.0; 1 cells"),
        (11, "changed_by_affinity", "d (numeric): '0020' is 20; 1 cells"),
    ]


@pytest.mark.parametrize(
    "payload",
    [
        json.dumps(json.dumps({"t": [{"id": 1}]})),
        json.dumps({"t": json.dumps([{"id": 1}])}),
        '{"x": NaN, "t": "[{\\"id\\": 1}]"}',
    ],
)
def test_what_was_encoded_twice_is_read_through(file: Path, payload: str) -> None:
    build(file, "CREATE TABLE t(id INTEGER);", payload)
    assert read(file, "SELECT id FROM t") == [(1,)]


def test_rows_that_are_no_list_and_tables_nothing_can_enter_are_refused(file: Path) -> None:
    built = build(
        file,
        "CREATE TABLE t(a); CREATE TABLE u(a);\0CREATE TABLE broken(x);",
        '{"t": {"a": [1, 2]}, "u": 7}',
    )
    assert reasons(built) == [
        ("statement", "ddl_refused"),
        ("row", "rows_not_list"),
        ("row", "rows_not_list"),
    ]
    assert (built.database.rows_offered, built.database.rows_refused) == (2, 2)


def test_another_dialect_keeps_defaults_generated_and_untyped_columns(file: Path) -> None:
    built = build(
        file,
        "CREATE TABLE `t` (`a` int unsigned, `b` timestamp NOT NULL DEFAULT now(),"
        " `c` int GENERATED ALWAYS AS (a + 1), `d` varchar(9) CHECK (d <> '')) ENGINE=InnoDB;"
        "CREATE TABLE v(a, n int unsigned zerofill DEFAULT 5);",
        {"t": [{"a": 1, "d": "x"}, {"a": 2, "b": "2020"}], "v": [{"a": "text"}]},
    )
    assert read(file, "SELECT a, length(b), c, d FROM t") == [(1, 19, 2, "x"), (2, 4, 3, None)]
    assert read(file, "SELECT a, n FROM v") == [("text", 5)]
    assert {reason for _, reason in reasons(built)} == {"transpiled", "fixed_default"}


def left_out(built: Built) -> list[str]:
    """The clauses that were named as lost, without the statement behind them."""
    return [
        reject.detail.partition(": create table")[0].partition(": CREATE TABLE")[0]
        for reject in built.rejects
        if reject.reason == "clause_left_out"
    ]


def test_mysql_defaults_are_said_or_named(file: Path) -> None:
    ddl = r"""CREATE TABLE `t` (`id` int unsigned NOT NULL AUTO_INCREMENT, b bit(3) DEFAULT b'101',
      n varchar(9) DEFAULT N'x', h int DEFAULT 0x1F,
      u varchar(9) DEFAULT _utf8mb4'q', v varchar(36) DEFAULT (uuid()), m int DEFAULT -1,
      PRIMARY KEY (`id`), KEY k (n), CHECK (regexp_like(n, 'x')), CHECK (m < 5)) ENGINE=InnoDB;"""
    built = build(file, ddl, {"t": [{"id": 4}, {}]})
    assert read(file, "SELECT * FROM t") == [
        (4, 5, "x", None, "q", None, -1),
        (5, 5, "x", None, "q", None, -1),
    ]
    assert left_out(built) == [
        "\"h\": DEFAULT x'1F'",
        '"v": DEFAULT (UUID())',
        "CHECK (n REGEXP 'x')",
    ]
    (ddl_now,) = read(file, "SELECT sql FROM sqlite_schema WHERE name = 't'")
    assert "CHECK (m < 5)" in ddl_now[0]
    assert built.database.ddl_refused == 0


def test_postgres_defaults_are_said_or_named(file: Path) -> None:
    ddl = """create table t (primary key (id), id bigserial, a text default 'x'::text,
      e text default E'it\\'s', j int default (0), l bool default true, g uuid default f(),
      k text default NULL::character varying, c int check (c > 0), d text check (d ~ '^x'),
      r int references u (id) on delete cascade INITIALLY DEFERRED, n int default nextval('s'));
      create table u (id int default nextval('u_id'::regclass) primary key, x int);"""
    built = build(file, ddl, {"t": [{"c": 1}, {"c": 2}], "u": [{"x": 1}]})
    assert read(file, "SELECT id, a, e, j, l, g, k, c, n FROM t") == [
        (1, "x", "it's", 0, 1, None, None, 1, None),
        (2, "x", "it's", 0, 1, None, None, 2, None),
    ]
    assert read(file, "SELECT id FROM u") == [(1,)]
    assert left_out(built) == ['"g": DEFAULT F()', "\"d\": CHECK (d REGEXP '^x')", '"n": counts up']
    assert read(file, "SELECT \"table\", on_delete FROM pragma_foreign_key_list('t')") == [
        ("u", "CASCADE")
    ]


@pytest.mark.parametrize(
    "declared",
    [
        "id SERIAL PRIMARY KEY",
        "id BIGSERIAL, PRIMARY KEY (id)",
        "id INT AUTO_INCREMENT PRIMARY KEY",
        "id INT IDENTITY PRIMARY KEY",
        "[id] [int] IDENTITY(1,1) NOT NULL PRIMARY KEY",
        "id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        "id bigint DEFAULT nextval('s'::regclass) PRIMARY KEY",
    ],
)
def test_a_column_that_counts_elsewhere_counts_here(file: Path, declared: str) -> None:
    """SQLite takes SERIAL or AUTO_INCREMENT for a type's words, and would store NULL."""
    rows = [{"n": "a"}, {"id": 7, "n": "b"}, {"n": "c"}]
    build(file, f"CREATE TABLE t (n TEXT, {declared})", {"t": rows})
    assert read(file, "SELECT id, n FROM t") == [(1, "a"), (7, "b"), (8, "c")]


@pytest.mark.parametrize(
    "later",
    [
        "ALTER TABLE ONLY public.t ALTER COLUMN id SET DEFAULT nextval('t_id_seq'::regclass)",
        'ALTER TABLE public."t" ALTER COLUMN "id" ADD GENERATED BY DEFAULT AS IDENTITY (START 1)',
    ],
)
def test_a_column_that_a_later_statement_lets_count_counts(file: Path, later: str) -> None:
    """As pg_dump writes SERIAL and IDENTITY."""
    ddl = (
        f"CREATE TABLE public.t (id bigint NOT NULL, n text); {later};"
        "ALTER TABLE ONLY public.t ADD CONSTRAINT t_pkey PRIMARY KEY (id);"
    )
    built = build(file, ddl, {"t": [{"n": "a"}, {"n": "b"}]})
    assert read(file, "SELECT id, n FROM t") == [(1, "a"), (2, "b")]
    assert left_out(built) == []
    assert built.database.ddl_refused == 0


def test_a_column_called_like_a_counting_type_is_a_column(file: Path) -> None:
    ddl = "CREATE TABLE t(serial TEXT, identity INT, \"auto_increment\" VARCHAR(3) DEFAULT 'x')"
    built = build(file, ddl, {"t": [{"serial": "a"}]})
    assert built.rejects == ()
    assert read(file, "SELECT sql FROM sqlite_schema") == [(ddl,)]


def test_backslashes_of_mysql_swallow_nothing(file: Path) -> None:
    ddl = r"""-- dump
    # don't stop here
    CREATE TABLE `u` (`id` int COMMENT 'the user\'s id', p varchar(9) DEFAULT 'a\\',
      q varchar(9) DEFAULT "it's \"q\"") ENGINE=InnoDB;
    INSERT INTO `u` VALUES (1, 'it\'s\n', 'x'), (2, '\\', 'y\%');
    CREATE TABLE `w` (`id` int COMMENT 'a; b') ENGINE=InnoDB;"""
    built = build(file, ddl, {"w": [{"id": 1}], "u": [{"id": 3}]})
    assert read(file, "SELECT * FROM u ORDER BY id") == [
        (1, "it's\n", "x"),
        (2, "\\", "y\\%"),
        (3, "a\\", 'it\'s "q"'),
    ]
    assert read(file, "SELECT * FROM w") == [(1,)]
    assert built.database.ddl_refused == 0


def test_a_backslash_of_sqlite_is_a_character() -> None:
    for ddl in (
        r"CREATE TABLE `t`(a CHECK (a LIKE '%\_%' ESCAPE '\'), b DEFAULT 'it''s');",
        r"CREATE TABLE t(a DEFAULT 'c:\'); -- don't",
    ):
        assert read_dump(ddl).text == ddl


def test_what_pg_dump_writes_around_the_tables(file: Path) -> None:
    ddl = r"""\restrict token
CREATE TABLE public.a (id integer NOT NULL, n text);
COPY public.a (id, n) FROM stdin;
1	O'Brien
2	x; y
\.

CREATE FUNCTION f() RETURNS trigger AS $$ begin don't; end; $$ LANGUAGE plpgsql;
CREATE TABLE public.b (id integer DEFAULT 5 NOT NULL, e text);
COPY public.b FROM stdin;
\.
ALTER TABLE ONLY public.b ADD CONSTRAINT bc CHECK ((e ~ '^x'::text));
ALTER TABLE ONLY public.b ADD CONSTRAINT bd CHECK ((id > 3));
ALTER TABLE ONLY public.b ADD CONSTRAINT bp PRIMARY KEY (id);
\unrestrict token
"""
    built = build(file, ddl, {"a": [{"id": 5, "n": "q"}], "b": [{"id": 9}, {"e": "y"}]})
    assert read(file, "SELECT * FROM a") == [(5, "q")]
    assert read(file, "SELECT * FROM b") == [(9, None), (10, "y")]
    said = [(r.reason, r.detail.partition(":")[0]) for r in built.rejects if r.kind == "statement"]
    assert said.count(("copy_skipped", "2 lines of data were not read")) == 1
    assert said.count(("copy_skipped", "0 lines of data were not read")) == 1
    assert [reason for reason, _ in said].count("ddl_refused") == 2  # the function, one CHECK
    (now,) = read(file, "SELECT sql FROM sqlite_schema WHERE name = 'b'")
    assert '"bd" CHECK' in now[0] and "REGEXP" not in now[0]


def test_a_batch_of_sql_server_is_a_statement(file: Path) -> None:
    ddl = (
        "CREATE TABLE [dbo].[t]([id] [int] IDENTITY(1,1) NOT NULL, [a] [nvarchar](9) DEFAULT "
        "(N'x'), [b] int DEFAULT ((0)), CONSTRAINT [PK] PRIMARY KEY CLUSTERED ([id] ASC))\nGO\n"
        "CREATE TABLE [dbo].[u]([a] int)\nGO\n"
    )
    build(file, ddl, {"t": [{"a": "y"}, {"b": 1}], "u": [{"a": 1}]})
    assert read(file, "SELECT * FROM t") == [(1, "y", None), (2, None, 1)]
    assert read(file, "SELECT * FROM u") == [(1,)]
