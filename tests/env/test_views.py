"""Views are built once, shared, bounded, and survive threads, forks and many episodes."""

import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from envbuild.env.views import ViewCache, open_database
from envbuild.errors import CorpusError, SourceError
from envbuild.sql.files.subset import ViewBuilder
from tests.env.shop import VISIBLE


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Two tables of about 3 MB, so that views of one are files."""
    path = tmp_path / "large.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE a (t TEXT); CREATE TABLE b (t TEXT); CREATE TABLE c (n INT)")
    with connection:
        for name in "ab":
            rows = ((f"{name}{n}" * 50,) for n in range(20_000))
            connection.executemany(f"INSERT INTO {name} VALUES (?)", rows)
    connection.close()
    return path


def count(cache: ViewCache, path: Path, table: str, tables: tuple[str, ...] | None) -> object:
    database = cache.open(path, tables)
    result = database.session.run(f"SELECT count(*) FROM {table}")
    database.close()
    return result.rows[0][0] if result.ok else result.error


def test_a_group_in_threads_builds_its_view_once(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    original = ViewBuilder.image
    lock = threading.Lock()

    def counted(builder: ViewBuilder, tables: tuple[str, ...]) -> bytes:
        with lock:
            built.append(tables)
        return original(builder, tables)

    monkeypatch.setattr(ViewBuilder, "image", counted)
    cache = ViewCache()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: count(cache, shop, "sale", VISIBLE), range(64)))
    assert found == [9] * 64 and built == [VISIBLE]


def test_images_are_bounded_and_least_recently_used_go_first(shop: Path) -> None:
    names = ("sale", "customer", "lonely")
    sizes = [ViewCache().view(shop, (name,)).owned_bytes for name in names]
    cache = ViewCache(memory_bytes=max(sum(sizes) - sizes[1], sizes[0] + sizes[1]))
    first, second, _ = (cache.view(shop, (names[place],)) for place in (0, 1, 0))
    cache.view(shop, ("lonely",))
    assert cache.kept_bytes[0] <= cache.memory_bytes
    assert cache.view(shop, ("sale",)) is first
    assert cache.view(shop, ("customer",)) is not second
    assert cache.kept_bytes == (sum(view.owned_bytes for view in cache._views.values()), 0)


def test_large_views_are_files_within_their_own_budget(large: Path) -> None:
    cache = ViewCache(disk_bytes=6_000_000)
    database = cache.open(large, ("a",))
    assert database.session.run("SELECT count(*) FROM b").error == "no such table: b"
    file = cache.view(large, ("a",)).file
    assert file is not None and cache.kept_bytes == (0, file.stat().st_size)
    assert count(cache, large, "b", ("b",)) == 20_000
    assert count(cache, large, "b", ("b", "c")) == 20_000
    left = list(file.parent.iterdir())
    assert len(left) < 3 and cache.kept_bytes == (0, sum(one.stat().st_size for one in left))
    assert database.session.run("SELECT count(*) FROM a").rows == ((20_000,),), "still open"
    assert database.schema.tables == ("a",)
    database.close()


def test_a_view_of_everything_in_a_large_database_is_its_own_file(large: Path) -> None:
    cache = ViewCache()
    assert cache.view(large, ("b", "a", "c")).file == large
    assert cache.open(large, ("b", "a", "c")).schema.tables == ("b", "a", "c")
    assert cache.view(large).file == large
    assert cache.kept_bytes == (0, 0)


def test_a_changed_database_is_another_one(shop: Path) -> None:
    cache = ViewCache()
    assert count(cache, shop, "lonely", VISIBLE) == 3
    with closing(apsw.Connection(str(shop))) as connection:
        connection.execute("INSERT INTO lonely VALUES (9); CREATE TABLE later (n)")
    assert count(cache, shop, "lonely", VISIBLE) == 4


def test_a_forked_child_leaves_the_parents_files(large: Path) -> None:
    cache = ViewCache()
    file = cache.view(large, ("a",)).file
    assert file is not None
    child = os.fork()
    if child == 0:
        found = count(cache, large, "a", ("a",))
        del cache
        os._exit(0 if found == 20_000 else 1)
    assert os.waitpid(child, 0)[1] == 0 and file.exists()
    del cache
    assert not file.exists()


def test_a_child_waits_for_no_thread_of_its_parent(shop: Path) -> None:
    cache = ViewCache()
    cache.view(shop, ("sale",))
    (builder,) = cache._builders.values()
    with builder._lock, cache._lock:  # as another thread holds them that is building
        child = os.fork()
        if child == 0:
            signal.alarm(300)
            os._exit(0 if count(cache, shop, "lonely", ("lonely",)) == 3 else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_virtual_tables_and_views_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "fts.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, s TEXT);"
        "CREATE VIRTUAL TABLE f USING fts5(body); INSERT INTO f VALUES ('a fox');"
        "CREATE VIEW v AS SELECT 1 AS x"
    )
    connection.close()
    database = open_database(path)
    assert set(database.schema.tables) == {"t", "f", "v"}
    database.close()
    assert ViewCache().open(path, ("f",)).schema.find("F") == "f"


def test_what_is_no_database_or_lacks_a_table(shop: Path, tmp_path: Path) -> None:
    cache = ViewCache()
    with pytest.raises(SourceError, match="cannot read the database"):
        cache.open(tmp_path / "absent.sqlite", ("a",))
    (tmp_path / "text.sqlite").write_text("not a database " * 100)
    with pytest.raises((SourceError, CorpusError)):
        cache.open(tmp_path / "text.sqlite", ("a",))
    with pytest.raises((SourceError, CorpusError)):
        cache.open(tmp_path / "text.sqlite")
    with pytest.raises(CorpusError, match="no table 'nope'"):
        cache.open(shop, ("nope",))
    assert count(cache, shop, "sale", VISIBLE) == 9, "a failed build leaves no lock behind"


def test_a_view_that_made_room_serves_the_episodes_that_have_it_open(large: Path) -> None:
    """In the worker and after pickling too, which open a session's file again."""
    cache = ViewCache(disk_bytes=1)
    first = cache.open(large, ("a",))
    cache.open(large, ("b",)).close()
    in_worker = "SELECT instr(zeroblob(9000) || x'01', x'01') FROM a LIMIT 1"
    assert first.session.run(in_worker).rows == ((9001,),)
    copied = pickle.loads(pickle.dumps(first.session))
    assert copied.run("SELECT count(*) FROM a").rows == ((20_000,),)
    copied.close()
    first.close()
