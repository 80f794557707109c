"""The executor on real databases: what each kind of statement comes to, and that nothing stays."""

import itertools
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from envbuild.errors import CorpusError
from envbuild.records.execution import Limits, Outcome, QueryResult, Rows, UndecodableText
from envbuild.sql.execution.session import Session
from envbuild.sql.execution.worker import _pool
from envbuild.sql.verdicts import decode_rows, digest_rows, encode_rows

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT max(n) FROM r"
UNSTOPPABLE = "SELECT instr(zeroblob(999999), zeroblob(500000) || x'01')"
IN_WORKER = "SELECT instr(zeroblob(9000) || x'01', x'01')"
SHORT = Limits(seconds=0.4)


def build(path: Path) -> Path:
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE orders(id INTEGER PRIMARY KEY, amt INT);"
        "INSERT INTO orders VALUES(1,10),(2,20);"
        "CREATE TABLE texts(id INTEGER PRIMARY KEY, t TEXT);"
        "INSERT INTO texts VALUES(1, 'a'), (2, CAST(x'62ff' AS TEXT)), (3, NULL);"
        "CREATE TABLE dbstat(name TEXT); INSERT INTO dbstat VALUES('own');"
    )
    connection.close()
    return path


@pytest.fixture(params=["file", "image"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    path = build(tmp_path / "shop.sqlite")
    opened = (
        Session.open_file(path)
        if request.param == "file"
        else Session.open_image(path.read_bytes())
    )
    with opened as session:
        yield session


@pytest.mark.parametrize(
    ("sql", "outcome", "parsed"),
    [
        ("SELECT 1", Outcome.OK, True),
        (";;SELECT 1;", Outcome.OK, True),
        ("VALUES (1), (2)", Outcome.OK, True),
        ("EXPLAIN QUERY PLAN SELECT 1", Outcome.OK, True),
        ("SELECT name FROM sqlite_master", Outcome.OK, True),
        ("SELECT * FROM dbstat", Outcome.OK, True),
        ("SELECT value FROM json_each('[1]')", Outcome.OK, True),
        ("", Outcome.INVALID, False),
        (" ;; ", Outcome.INVALID, False),
        ("SELECT 1; SELECT 2", Outcome.INVALID, False),
        ("SELECT 1; nonsense", Outcome.INVALID, False),
        ("SELECT 'a\0b'", Outcome.INVALID, False),
        ("SELECT '\ud83d'", Outcome.INVALID, False),
        (b"SELECT 1", Outcome.INVALID, False),
        (None, Outcome.INVALID, False),
        ("SELECT " + "1" * 100_001, Outcome.INVALID, False),
        ("SELEC 1", Outcome.ERROR, False),
        ("SELECT 'open", Outcome.ERROR, False),
        ("SELECT 1 FROM orders UNION SELECT 1 ORDER BY 1 UNION SELECT 2", Outcome.ERROR, False),
        ("SELECT nope FROM orders", Outcome.ERROR, True),
        ("SELECT abs(-9223372036854775808)", Outcome.ERROR, True),
        ("SELECT ?", Outcome.ERROR, True),
        ("SELECT zeroblob(2000000)", Outcome.ERROR, True),
        ("DELETE FROM orders", Outcome.DENIED, True),
        ("UPDATE orders SET amt = 0 RETURNING amt", Outcome.DENIED, True),
        ("SELECT * FROM pragma_table_info('orders')", Outcome.DENIED, True),
        ("SELECT * FROM sqlite_dbpage", Outcome.ERROR, True),
        ("COMMIT", Outcome.DENIED, True),
        (ENDLESS, Outcome.TIMEOUT, True),
    ],
)
def test_outcomes(session: Session, sql: str, outcome: Outcome, parsed: bool) -> None:
    result = session.run(sql, SHORT)
    assert (result.outcome, result.parsed) == (outcome, parsed), result.error
    assert bool(result.error) == (not result.ok)
    assert session.run("SELECT sum(amt) FROM orders").rows == ((30,),)


def test_columns_are_known_for_empty_and_duplicate_results(session: Session) -> None:
    result = session.run("SELECT amt AS x, id AS x FROM orders WHERE 0")
    assert (result.columns, result.rows) == (("x", "x"), ())
    assert session.run("SELECT amt AS x, id AS x FROM orders").rows == ((10, 1), (20, 2))


def test_functions_in_a_tables_own_expressions_are_known_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "own.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE t(a, b DEFAULT CURRENT_TIMESTAMP, c DEFAULT (DATE('now')),"
        " d DEFAULT (ABS(-5)), e AS (UPPER(a)) STORED, f AS (Instr(a, 'x')));"
        "INSERT INTO t(a, b, c) VALUES ('x', 'now', 'today');"
        "CREATE VIEW v AS SELECT LOWER(e) AS h FROM t; CREATE INDEX i ON t(LENGTH(a))"
    )
    connection.close()
    with Session.open_file(path) as session:
        row = ("x", "now", "today", 5, "X", 1)
        assert session.run("SELECT a, b, c, d, e, f FROM t").rows == (row,)
        assert session.run("SELECT h FROM v, t WHERE LENGTH(a) = 1").rows == (("x",),)
        for refused in ("LOAD_EXTENSION('x')", "Load_Extension('x')", "FTS3_TOKENIZER('x')"):
            assert not session.run(f"SELECT {refused}").ok


def test_undecodable_text_is_shown_and_flagged(session: Session) -> None:
    result = session.run(
        "SELECT t, x'ff' AS b, t AS t FROM texts ORDER BY id DESC -- newest; first"
    )
    lost = UndecodableText(b"b\xff", "UTF-8")
    assert result.rows == ((None, b"\xff", None), (lost, b"\xff", lost), ("a", b"\xff", "a"))
    assert (f"{lost}", str(lost), lost[:9]) == ("b\ufffd",) * 3
    assert (result.lossy, result.columns) == (True, ("t", "b", "t"))
    assert not session.run("SELECT 1").lossy
    assert not session.run("SELECT CAST(t AS BLOB) FROM texts").lossy


def test_undecodable_text_of_a_utf16_database() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(a TEXT)")
    connection.execute("INSERT INTO t VALUES ('ä'), (CAST(x'00d841' AS TEXT)), ('z')")
    with Session.open_image(connection.serialize("main")) as session:
        result = session.run("SELECT a FROM t")
        odd = UndecodableText(b"\x00\xd8", "UTF-16-LE")
        assert result.rows == (("ä",), (odd,), ("z",))


def test_undecodable_texts_are_equal_by_their_bytes(session: Session) -> None:
    def rows(*cells: str) -> Rows:
        return session.run(f"SELECT {', '.join(cells)} FROM orders WHERE id = 1").rows

    one, other, shown = "CAST(x'62fe' AS TEXT)", "CAST(x'62ff' AS TEXT)", "'b' || char(65533)"
    every = [rows(one), rows(other), rows(shown), rows("x'62fe'")]
    for cells in every:
        assert decode_rows(encode_rows(cells)) == pickle.loads(pickle.dumps(cells)) == cells
    assert rows(one) == rows(one) and hash(rows(one)) == hash(rows(one))
    for first, second in itertools.permutations(every, 2):
        assert first != second and second not in [first] and len({first, second}) == 2
        assert digest_rows(first, ordered=False) != digest_rows(second, ordered=False)
    in_worker = "length(hex(zeroblob(9000)))"
    for cell, cells in zip((one, other, shown, "x'62fe'"), every, strict=True):
        assert rows(cell, in_worker)[0][:1] == cells[0]


def test_undecodable_column_names() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute('CREATE TABLE t("aXXb", x); INSERT INTO t VALUES (1, 2)')
    image = connection.serialize("main").replace(b"aXXb", b"a\xff\xfeb")
    with Session.open_image(image) as session:
        assert session.run("SELECT * FROM t").error == "a column's name is not valid text"
        assert session.run("SELECT x FROM t").rows == ((2,),)


def test_temporary_space_is_bounded(session: Session) -> None:
    limits = Limits(temporary_bytes=4_000_000, vm_steps=20_000_000)
    sort = ENDLESS.replace("max(n)", "n, printf('%.*c', 900, 'x')") + " ORDER BY -n"
    assert session.run(sort, limits).error == "the query ran out of temporary space"
    some = sort.replace("FROM r)", "FROM r LIMIT {})")
    assert session.run(some.format(2000), limits).ok
    # ends before anyone looks at the files, and is told by SQLite's own count
    assert session.run(some.format(9000), limits).error == "the query ran out of temporary space"


LASTING = ENDLESS.replace("FROM r)", "FROM r WHERE n < 1000000)")
"""Runs through several looks at the temporary files."""


def test_other_files_of_the_process_are_not_counted(session: Session) -> None:
    limits = Limits(temporary_bytes=1_000_000)
    with tempfile.TemporaryFile() as other:
        other.truncate(300_000_000)
        assert session.run(LASTING, limits).rows == ((1_000_000,),)
        other.truncate(900_000_000)
        assert session.run(LASTING, limits).rows == ((1_000_000,),)


@pytest.mark.parametrize("own", [False, True])
def test_what_another_thread_uses_is_not_counted(tmp_path: Path, own: bool) -> None:
    """Its sorting, and the images that it opens, while the statement runs."""
    path, limits = build(tmp_path / "shop.sqlite"), Limits(temporary_bytes=4_000_000)
    long = LASTING.replace("max(n)", "max(n), max(length(hex(zeroblob(2100))))")
    held: list[object] = []
    done = threading.Event()

    def use() -> None:
        while not session._authorizer.running:
            time.sleep(0.001)
        other = apsw.Connection(":memory:")
        held.append(other)
        other.deserialize("main", path.read_bytes() + bytes(20_000_000))
        sort = LASTING.replace("max(n)", "n, printf('%.*c', 90, 'x')") + " ORDER BY -n"
        cursor = other.execute(sort)
        held.append((cursor, next(cursor)))
        done.wait()

    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    session = Session(connection) if own else Session.open_file(path)
    with session:
        for sql, row in ((LASTING, (1_000_000,)), (long, (1_000_000, 4200))):
            thread = threading.Thread(target=use)
            thread.start()
            try:
                assert session.run(sql, limits).rows == (row,)
            finally:
                done.set()
                thread.join()
            held.clear()
            done.clear()


def test_caps_on_rows_and_bytes(session: Session) -> None:
    numbers = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r LIMIT {}) SELECT n"
    exact = session.run(numbers.format(50) + " FROM r", Limits(rows=50))
    assert (exact.outcome, len(exact.rows)) == (Outcome.OK, 50)
    over = session.run(numbers.format(51) + " FROM r", Limits(rows=50))
    assert (over.outcome, len(over.rows), over.rows[-1]) == (Outcome.TRUNCATED, 50, (50,))
    assert session.run("SELECT 1 FROM orders", Limits(rows=0)).outcome is Outcome.TRUNCATED
    texts = numbers.format(9000) + ", printf('%.*c', 1000, 'x') FROM r"
    long = session.run(texts, Limits(result_bytes=1_000_000))
    assert long.outcome is Outcome.TRUNCATED
    assert 980 < len(long.rows) < 1000
    longer = session.run(texts.replace("1000", "9000"), Limits(result_bytes=1_000_000))
    assert (longer.outcome, len(longer.rows)) == (Outcome.TRUNCATED, 111)  # of 9,005 bytes each


def test_steps_decide_before_the_clock(session: Session) -> None:
    counts = {
        session.run(
            ENDLESS.replace("FROM r)", f"FROM r WHERE n < {n})"), Limits(vm_steps=1_000_000)
        ).outcome
        for n in (10_000, 50_000)
    }
    assert counts == {Outcome.OK}
    assert session.run(ENDLESS, Limits(vm_steps=1_000_000)).error == (
        "the query ran out of its step budget"
    )
    assert session.run(ENDLESS, SHORT).error == "the query ran out of time"


def test_long_values_give_what_short_ones_do(session: Session) -> None:
    """Statements that leave the quick mode: long values, slow functions on them, long SQL."""
    assert session.run("SELECT length(hex(zeroblob(40000)))").rows == ((80000,),)
    assert session.run("SELECT length(replace(hex(zeroblob(40000)), '0', 'a'))").rows == ((80000,),)
    assert session.run("SELECT hex(zeroblob(4000)) LIKE '%1%'").rows == ((0,),)
    assert session.run("SELECT median(amt) FROM orders").rows == ((15.0,),)
    literal = "x" * 50_000
    assert session.run(f"SELECT '{literal}' AS a").rows == ((literal,),)
    assert session.run(f"SELECT trim('{literal}', 'y') FROM orders").rows == ((literal,),) * 2


def test_what_no_handler_stops_is_killed_and_replaced(session: Session) -> None:
    result = session.run(UNSTOPPABLE, SHORT)
    assert (result.outcome, result.error) == (Outcome.TIMEOUT, "the query ran out of time")
    assert session.run(IN_WORKER).rows == ((9001,),)


def test_from_threads_at_once(session: Session) -> None:
    found: list[QueryResult] = []

    def work() -> None:
        for _ in range(50):
            found.append(session.run("SELECT sum(amt) FROM orders"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {result.rows for result in found} == {((30,),)} and len(found) == 200


def test_pickled_and_forked(session: Session) -> None:
    with pickle.loads(pickle.dumps(session)) as other:
        assert other.run("SELECT sum(amt) FROM orders").rows == ((30,),)
        assert other.limits == session.limits
    assert session.run(IN_WORKER).ok  # a worker is running
    child = os.fork()
    if not child:
        good = session.run("SELECT sum(amt) FROM orders").rows == ((30,),)
        good &= session.run(IN_WORKER).ok
        session.close()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.run(IN_WORKER).ok


def test_nothing_is_left(tmp_path: Path) -> None:
    path = build(tmp_path / "shop.sqlite")
    before = path.read_bytes()
    before_descriptors = descriptors()
    threads = threading.active_count()
    others = children()  # of tests that ran before in this process
    for _ in range(3):
        with Session.open_file(path) as session:
            session.run(UNSTOPPABLE, Limits(seconds=0.1))
            session.run(IN_WORKER)
            session.run(ENDLESS, Limits(seconds=0.1))
    assert descriptors() == before_descriptors
    assert threading.active_count() == threads
    assert children() <= others
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    path = build(tmp_path / "shop.sqlite")
    program = (
        "import os, signal, sys\n"
        "from envbuild.sql.execution.session import Session\n"
        "from envbuild.sql.execution.worker import _pool\n"
        f"session = Session.open_file({str(path)!r})\n"
        "session.run(\"SELECT instr(zeroblob(9000) || x'01', x'01')\")\n"
        "print(_pool.places[0].worker.child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    worker = Path("/proc", ran.stdout.strip())
    for _ in range(6000):
        if not worker.exists() or worker.joinpath("cmdline").read_bytes() == b"":
            return
        threading.Event().wait(0.05)
    pytest.fail(f"worker {worker} outlived its parent")


def test_a_connection_of_ones_own_is_left_as_it_was() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1)")
    session = Session(connection)
    assert session.run(IN_WORKER).rows == ((9001,),)
    assert session.run("DELETE FROM t").outcome is Outcome.DENIED
    connection.execute("ATTACH ':memory:' AS other; CREATE TABLE other.u(b); DELETE FROM t")
    assert session.run("SELECT count(*) FROM t").rows == ((0,),)


def test_a_connection_of_ones_own_may_gain_tables_called_like_built_in_ones() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t(a)")
    session = Session(connection)
    assert session.run("SELECT * FROM carray").outcome is Outcome.DENIED
    connection.execute("CREATE TABLE dbstat(a)")
    assert session.run("SELECT * FROM dbstat").ok
    connection.execute("DROP TABLE dbstat")
    assert session.run("SELECT * FROM dbstat").outcome is Outcome.DENIED


@pytest.mark.parametrize("more", ["", ", length(hex(zeroblob(9000)))"])
def test_virtual_tables_can_be_read_at_once(more: str) -> None:
    """Here, and in a worker."""
    with apsw.Connection(":memory:") as built:
        built.execute(
            "CREATE VIRTUAL TABLE f USING fts5(body); INSERT INTO f VALUES ('a fox'), ('a dog');"
            "CREATE VIRTUAL TABLE r USING rtree(id, low, high); INSERT INTO r VALUES (7, 1, 2)"
        )
        image = built.serialize("main")
    with Session.open_image(image) as session:
        assert session.run(f"SELECT id{more} FROM r WHERE low > 0").rows[0][0] == 7
        found = session.run(f"SELECT highlight(f, 0, '[', ']'){more} FROM f WHERE f MATCH 'fox'")
        assert found.rows[0][0] == "a [fox]"
        for sql in (
            "PRAGMA data_version",
            "INSERT INTO r VALUES (8, 1, 2)",
            "INSERT INTO f(f) VALUES ('optimize')",
            "DELETE FROM r_node",
            "SELECT data_version FROM pragma_data_version, f WHERE f MATCH 'fox'",
        ):
            assert session.run(sql).outcome is Outcome.DENIED, sql


def test_bytes_of_utf16_text_are_counted_as_utf8() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(s)")
    connection.executemany("INSERT INTO t VALUES (?)", [("漢" * 2000,)] * 4)
    cut = Session(connection).run("SELECT s FROM t", Limits(result_bytes=16_416))
    assert (cut.outcome, len(cut.rows)) == (Outcome.TRUNCATED, 2)  # of 6,004 bytes each


def test_limits_without_an_end() -> None:
    limits = Limits(seconds=float("inf"), value_bytes=2**40, vm_steps=2**62)
    image = apsw.Connection(":memory:").serialize("main")
    with Session.open_image(image, limits=limits) as session:
        for size in (9, 9000):
            found = session.run(f"SELECT instr(zeroblob({size}) || x'01', x'01')")
            assert found.rows == ((size + 1,),)


def test_a_child_waits_for_no_lock_of_its_parent(session: Session) -> None:
    with ExitStack() as held:  # as other threads hold them that run statements
        for lock in (session._lock, *(place.lock for place in _pool.places)):
            held.enter_context(lock)
        child = os.fork()
        if not child:
            signal.alarm(300)
            good = session.run("SELECT sum(amt) FROM orders").rows == ((30,),)
            good &= session.run(IN_WORKER).rows == ((9001,),)
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_closing_breaks_off_what_another_thread_runs(session: Session) -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(session.run(ENDLESS)))
    thread.start()
    while not session._authorizer.running:
        time.sleep(0.01)
    session.close()
    thread.join()
    assert [result.error for result in found] == ["interrupted"]


class RungError(Exception):
    """What a signal's handler raises: Ctrl-C, a trainer's alarm."""


def run_until_rung(session: Session, sql: str, seconds: float) -> None:
    """Runs the statement again and again until a signal's handler raises in the midst of it."""

    def ring(*_: object) -> None:
        raise RungError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            session.run(sql)
    except RungError:
        pass
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_signal_that_raises_anywhere_leaves_nothing_behind(session: Session) -> None:
    for turn in range(200):
        run_until_rung(session, "SELECT * FROM orders", 0.00002 * (turn % 100 + 1))
        connection = session.connection
        assert connection.authorizer is None
        assert connection.limit(apsw.SQLITE_LIMIT_LENGTH) > 1_000_000


def test_a_signal_never_leaves_one_query_the_answer_of_another(session: Session) -> None:
    in_worker = "SELECT {}, length(hex(zeroblob(9000)))"
    for turn in range(12):
        assert session.run(in_worker.format(turn)).rows == ((turn, 18_000),)
        # what is broken off is the asking, the waiting or the reading
        run_until_rung(session, in_worker.format("'broken off'"), 0.00005 * turn + 0.00002)
        for number in range(3):
            assert session.run(in_worker.format(number)).rows == ((number, 18_000),)
    assert not any(place.lock.locked() for place in _pool.places)


def test_files_that_are_no_database(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("not a database at all, but long enough" * 40)
    for name in ("text.sqlite", "absent.sqlite"):
        with pytest.raises(CorpusError, match="database_unreadable") as raised:
            Session.open_file(tmp_path / name)
        assert str(tmp_path) not in str(raised.value)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> int:
    own = str(os.getpid())
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found += stat.read_text().rpartition(")")[2].split()[1] == own
        except OSError:
            continue
    return found
