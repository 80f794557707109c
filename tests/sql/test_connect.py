"""Files whose rows lie in a log beside them are read whole; the host's engine is left alone."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from envbuild.corpora.folder import open_corpora
from envbuild.env.views import open_database
from envbuild.errors import SourceError
from envbuild.io.parquet import write_records
from envbuild.manifest.read import VARIANT_SCHEMA, VARIANTS_FILE
from envbuild.signal.cuts import cut_image
from envbuild.signal.variants import VariantStore, build_image, make_variants
from envbuild.sql.connect import open_writable_image, read_image
from envbuild.sql.verdicts import decode_rows
from tests.shared import envbuild

ROWS = [(number, f"lamp {number}") for number in range(1, 8)]


@pytest.fixture
def lamps(tmp_path: Path) -> Iterator[Path]:
    """Seven committed rows, all of them in the WAL of a writer that is still there."""
    path = tmp_path / "plain" / "lamps.sqlite"
    path.parent.mkdir()
    writer = apsw.Connection(str(path))
    writer.execute("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0")
    writer.execute("CREATE TABLE lamp (id INTEGER PRIMARY KEY, name TEXT)")
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    writer.executemany("INSERT INTO lamp VALUES (?, ?)", ROWS)
    yield path
    writer.close()


def rows_of(image: bytes) -> list[tuple[object, ...]]:
    connection = open_writable_image(image)
    try:
        return list(connection.execute("SELECT * FROM lamp ORDER BY id"))
    finally:
        connection.close()


def test_the_image_holds_what_the_log_holds(lamps: Path) -> None:
    assert b"lamp 7" not in lamps.read_bytes()
    assert rows_of(read_image(lamps)) == ROWS
    assert rows_of(cut_image(lamps, 10)) == ROWS
    with closing(open_database(lamps)) as database:
        assert len(database.session.run("SELECT * FROM lamp").rows) == 7


def test_folding_the_log_in_changes_no_digest(lamps: Path) -> None:
    before = hashlib.sha256(read_image(lamps)).digest()
    writer = apsw.Connection(str(lamps))
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    writer.close()
    assert b"lamp 7" in lamps.read_bytes()
    assert hashlib.sha256(read_image(lamps)).digest() == before


def test_amplify_keeps_the_rows_of_the_log(lamps: Path, tmp_path: Path) -> None:
    amplify = ("amplify", lamps.parent, "--out", tmp_path / "out", "--rows", "10:10", "--json")
    done = envbuild(*amplify)
    (grown,) = json.loads(done.stdout)["corpora"]
    assert (grown["rows_before"], grown["rows_added"]) == (7, 3)
    (corpus,) = open_corpora(tmp_path / "out")
    assert rows_of(corpus.database_path("lamps").read_bytes())[:7] == ROWS


def test_a_variant_is_made_and_rebuilt_over_the_rows_of_the_log(
    lamps: Path, tmp_path: Path
) -> None:
    golds = [("g", "SELECT name FROM lamp WHERE id > 3")]
    batch = make_variants(lamps, golds, corpus="c", db_id="lamps", count=1, seed=0)
    write_records(tmp_path / VARIANTS_FILE, batch.variants, VARIANT_SCHEMA)
    with VariantStore(tmp_path) as store:
        (gold,) = batch.golds
        assert store.session(gold.variant, lamps).run(golds[0][1]).rows == decode_rows(gold.result)
        image = build_image(store.row(gold.variant), read_image(lamps))
    assert rows_of(image)[:7] == ROWS


def test_a_view_sees_what_is_committed_to_the_log_later(lamps: Path) -> None:
    with closing(open_database(lamps, ["lamp"])) as database:
        assert len(database.session.run("SELECT * FROM lamp").rows) == 7
    writer = apsw.Connection(str(lamps))
    writer.execute("INSERT INTO lamp VALUES (8, 'late')")
    with closing(open_database(lamps, ["lamp"])) as database:
        assert len(database.session.run("SELECT * FROM lamp").rows) == 8
    writer.close()


def test_a_log_that_cannot_be_read_is_refused_by_name(lamps: Path, tmp_path: Path) -> None:
    alone = tmp_path / "torn.sqlite"
    shutil.copyfile(lamps, alone)
    alone.with_name("torn.sqlite-wal").mkdir()
    with pytest.raises(SourceError, match=r"torn\.sqlite"):
        read_image(alone)
    with pytest.raises(SourceError, match=r"nowhere\.sqlite"):
        read_image(tmp_path / "nowhere.sqlite")


def test_the_import_leaves_the_engine_as_the_host_set_it() -> None:
    program = (
        "import apsw; c = apsw.Connection(':memory:'); c.execute('CREATE TABLE t (a)'); c.close()\n"
        "apsw.hard_heap_limit(512 * 1024 * 1024); apsw.soft_heap_limit(300 * 1024 * 1024)\n"
        "import envbuild.sql.connect, envbuild.env.environment\n"
        "print(apsw.hard_heap_limit(-1) >> 20, apsw.soft_heap_limit(-1) >> 20)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "512 300\n")
