"""Hostile statements, all contained: in time, in memory, without a trace in the file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

ATTACKS = [
    json.loads(line) for line in Path(__file__).with_name("attacks.jsonl").read_text().splitlines()
]
SECONDS = 1.0
SLACK = 4.0
"""Seconds for a busy machine, and for starting a worker."""
HEAVY = {"recursion", "join", "value", "opcode", "pattern", "json"}
"""Kinds that are there to last."""
PEAK_KIB = 400 * 1024
"""Bound on either process; a worker may hold 256 MiB of SQLite's own memory and its base."""


def build(path: Path) -> Path:
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE orders(id INTEGER PRIMARY KEY, amt INT, note TEXT);"
        "CREATE VIEW v AS SELECT 1 AS a;"
        "INSERT INTO orders WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r "
        "LIMIT 400) SELECT n, n % 37, 'abcdefghij' || n FROM r"
    )
    connection.close()
    return path


def contained(attacks: list[dict[str, object]], folder: Path, *, context: str) -> None:
    path = build(folder / "victim.db")
    before = path.read_bytes()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.sql.run_attacks", str(path), context, str(SECONDS)],
        input="".join(json.dumps(attack) + "\n" for attack in attacks),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent.parent,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    *found, peak = map(json.loads, ran.stdout.splitlines())
    assert [each["id"] for each in found] == [attack["id"] for attack in attacks]
    for attack, each in zip(attacks, found, strict=True):
        allowed = attack["outcomes"]
        assert isinstance(allowed, list) and each["outcome"] in allowed, each
        assert each["next"], f"the next query failed after {each}"
        assert each["seconds"] <= 2 * SECONDS + SLACK, each
        assert str(folder) not in each["error"] and "victim" not in each["error"], each
    assert peak["own_kib"] < PEAK_KIB and peak["workers_kib"] < PEAK_KIB, peak
    assert path.read_bytes() == before
    assert list(folder.iterdir()) == [path]


def test_there_are_enough_of_every_kind() -> None:
    kinds = {attack["kind"] for attack in ATTACKS}
    assert len(ATTACKS) >= 120 and len({attack["id"] for attack in ATTACKS}) == len(ATTACKS)
    assert kinds >= HEAVY | {"attach", "vacuum", "pragma", "pragma-table", "write", "ddl"}


def test_quick_attacks(tmp_path: Path) -> None:
    quick = [attack for attack in ATTACKS if attack["kind"] not in HEAVY]
    contained(quick, tmp_path, context="main")


@pytest.mark.slow
@pytest.mark.parametrize("context", ["main", "thread", "fork"])
def test_every_attack(tmp_path: Path, context: str) -> None:
    contained(ATTACKS, tmp_path, context=context)
