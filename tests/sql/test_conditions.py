"""A query under another clock: the file may be reached through a link."""

from pathlib import Path

import apsw

from envbuild.query.nondeterminism import ClockedSession


def test_a_linked_file_has_a_clock_too(tmp_path: Path) -> None:
    real = tmp_path / "real.sqlite"
    connection = apsw.Connection(str(real))
    connection.execute("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    connection.close()
    link = tmp_path / "folder" / "link.sqlite"
    link.parent.mkdir()
    link.symlink_to(real)
    clocked = ClockedSession(link)
    found = clocked.run_at("2004-02-29 12:00", "SELECT date('now'), a FROM t")
    clocked.close()
    assert found.rows == (("2004-02-29", 1),)
