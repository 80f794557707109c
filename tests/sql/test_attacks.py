"""Hostile statements, all contained: stopped, in memory, without a trace in the file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from envbuild.env.views import ViewCache
from tests.sql.run_attacks import statement

ATTACKS = [
    json.loads(line) for line in Path(__file__).with_name("attacks.jsonl").read_text().splitlines()
]
SECONDS = 0.4
"""The clock's limit for what is allowed to meet it, some 75th of the default; every other attack
must end by itself, so that a busy machine is no reason to fail."""
HANGS = 600
"""Seconds after which a run of attacks is killed: none of them was stopped."""
HEAVY = {"recursion", "join", "value", "opcode", "pattern", "json"}
"""Kinds that are there to last."""
PEAK_KIB = 640 * 1024
"""Bound on either process: 256 MiB of SQLite's own memory, 64 MiB of rows twice, and its base."""
HIDDEN, SECRET = "hidden_fees", "tell-no-one"
"""A table outside the episode's view, and the text in its rows."""


def build(path: Path) -> Path:
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE orders(id INTEGER PRIMARY KEY, amt INT, note TEXT);"
        f"CREATE TABLE {HIDDEN}(id INTEGER PRIMARY KEY, fee TEXT);"
        f"CREATE INDEX {HIDDEN}_by_fee ON {HIDDEN}(fee);"
        f"CREATE VIEW {HIDDEN}_view AS SELECT fee FROM {HIDDEN};"
        "CREATE VIEW v AS SELECT 1 AS a;"
        "INSERT INTO orders WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r "
        "LIMIT 400) SELECT n, n % 37, 'abcdefghij' || n FROM r;"
        f"INSERT INTO {HIDDEN} SELECT id, '{SECRET}' || id FROM orders"
    )
    connection.close()
    return path


def contained(attacks: list[dict[str, Any]], folder: Path, *, context: str, over: str) -> None:
    """Runs the attacks in one session over the database's file, or over an episode's view."""
    path = build(folder / "victim.db")
    before = path.read_bytes()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.sql.run_attacks", str(path), context, over, str(SECONDS)],
        input="".join(json.dumps(attack) + "\n" for attack in attacks),
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS,
        cwd=Path(__file__).parent.parent.parent,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    *found, peak = map(json.loads, ran.stdout.splitlines())
    assert [each["id"] for each in found] == [attack["id"] for attack in attacks]
    for attack, each in zip(attacks, found, strict=True):
        assert each["outcome"] in attack["outcomes"], each
        assert each["next"], f"the next query failed after {each}"
        assert str(folder) not in each["error"] and "victim" not in each["error"], each
        assert over == "file" or not each["leaks"], each
    assert peak["own_kib"] < PEAK_KIB and peak["workers_kib"] < PEAK_KIB, peak
    assert path.read_bytes() == before
    assert list(folder.iterdir()) == [path]


def test_there_are_enough_of_every_kind() -> None:
    kinds = {attack["kind"] for attack in ATTACKS}
    assert len(ATTACKS) >= 120 and len({attack["id"] for attack in ATTACKS}) == len(ATTACKS)
    assert kinds >= HEAVY | {"attach", "vacuum", "pragma", "pragma-table", "write", "ddl"}


@pytest.mark.parametrize("over", ["file", "view"])
def test_quick_attacks(tmp_path: Path, over: str) -> None:
    quick = [attack for attack in ATTACKS if attack["kind"] not in HEAVY]
    contained(quick, tmp_path, context="main", over=over)


@pytest.mark.parametrize(("context", "over"), [("thread", "view"), ("fork", "file")])
def test_heavy_attacks(tmp_path: Path, context: str, over: str) -> None:
    """Each of them once: every other one in a thread, the rest in a forked child."""
    heavy = [attack for attack in ATTACKS if attack["kind"] in HEAVY]
    contained(heavy[context == "fork" :: 2], tmp_path, context=context, over=over)


def test_a_table_outside_the_view_is_like_one_that_never_was(tmp_path: Path) -> None:
    """Every quick attack on `orders`, aimed at the hidden table and at a name of no table."""
    path = build(tmp_path / "victim.db")
    view = ViewCache().view(path, ("orders",))
    assert SECRET.encode() not in view.image and HIDDEN.encode() not in view.image
    aimed = [
        statement(attack)
        for attack in ATTACKS
        if attack["kind"] not in HEAVY and "orders" in statement(attack)
    ]
    aimed += [f"SELECT {what} FROM orders" for what in ("*", "count(*)", "1", "fee", "rowid")]
    aimed += ["SELECT * FROM pragma_table_info('orders')", "PRAGMA table_info(orders)"]
    assert len(aimed) >= 25
    with view.open().session as session:
        for sql in aimed:
            hidden = session.run(sql.replace("orders", HIDDEN))
            absent = session.run(sql.replace("orders", "absent_fees"))
            assert SECRET not in str(hidden)
            assert str(hidden).replace(HIDDEN, "absent_fees") == str(absent), sql
