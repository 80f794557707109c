"""The engine belongs to the host's process: importing the package changes nothing in it."""

import subprocess
import sys


def test_the_import_leaves_the_engine_as_the_host_set_it() -> None:
    program = (
        "import apsw; c = apsw.Connection(':memory:'); c.execute('CREATE TABLE t (a)'); c.close()\n"
        "apsw.hard_heap_limit(512 * 1024 * 1024); apsw.soft_heap_limit(300 * 1024 * 1024)\n"
        "import envbuild.sql.connect, envbuild.env.environment\n"
        "print(apsw.hard_heap_limit(-1) >> 20, apsw.soft_heap_limit(-1) >> 20)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "512 300\n")
