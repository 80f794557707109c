"""What connections share: room to compile statements in, taken only where nobody is disturbed."""

import subprocess
import sys

import apsw

from envbuild.sql.connect import open_image, open_private

WIDE_JOIN = "SELECT * FROM " + " JOIN ".join(f"t{number} USING (id)" for number in range(8))
WIDE_JOIN = WIDE_JOIN.replace("FROM t0 USING (id)", "FROM t0")


def test_a_join_compiles_without_asking_for_memory() -> None:
    with open_private() as built:
        for number in range(8):
            built.execute(f"CREATE TABLE t{number} (id INTEGER PRIMARY KEY, name TEXT)")
        connection = open_image(built.serialize("main"))
    connection.execute(WIDE_JOIN, can_cache=False).fetchall()
    connection.status(apsw.SQLITE_DBSTATUS_LOOKASIDE_MISS_FULL, True)
    connection.execute(WIDE_JOIN, can_cache=False).fetchall()
    assert connection.status(apsw.SQLITE_DBSTATUS_LOOKASIDE_MISS_FULL)[1] == 0


def test_connections_opened_before_the_import_go_on() -> None:
    program = (
        "import apsw; c = apsw.Connection(':memory:'); c.execute('CREATE TABLE t (a)')\n"
        "import envbuild.sql.connect\n"
        "c.execute('INSERT INTO t VALUES (7)'); print(c.execute('SELECT a FROM t').fetchall())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "[(7,)]\n")
