"""A small manifest with real results: what every adapter's tests play."""

from collections.abc import Sequence
from pathlib import Path

from envbuild.records.manifest import Schedule
from envbuild.testing.policies import call
from envbuild.train.export import export_manifest
from envbuild.train.pool import PoolChoice, build_pool, write_schedule
from envbuild.train.schedule import Draws
from envbuild.train.trainer_env import TrainerEnv
from tests.small_manifest import manifest_row, write_database, write_manifest

DDL = """
CREATE TABLE town (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE shop (id INTEGER PRIMARY KEY, town INTEGER REFERENCES town(id), name TEXT, staff INT);
INSERT INTO town VALUES (1, 'Aix'), (2, 'Bonn'), (3, 'Cork');
INSERT INTO shop VALUES (1, 1, 'Pens', 3), (2, 1, 'Inks', 4), (3, 2, 'Pads', 9), (4, 3, 'Maps', 2);
"""
QUESTIONS = (
    ("Which towns are there?", "SELECT name FROM town"),
    ("How many shops are there?", "SELECT count(*) FROM shop"),
    ("Which shop has most staff?", "SELECT name FROM shop ORDER BY staff DESC LIMIT 1"),
    (
        "Name the shops of Aix.",
        "SELECT shop.name FROM shop JOIN town ON shop.town = town.id WHERE town.name = 'Aix'",
    ),
)


def make_manifest(folder: Path) -> Path:
    """Four questions over one database of two tables."""
    write_database(folder / "towns.sqlite", DDL)
    rows = [
        manifest_row(
            f"towns/q{number}",
            question=question,
            gold_sql=sql,
            sqlite_file="towns.sqlite",
            gold_tables=("shop", "town"),
            tables=("town", "shop"),
            gold_ordered="ORDER BY" in sql,
        )
        for number, (question, sql) in enumerate(QUESTIONS)
    ]
    return write_manifest(folder, rows)


def make_schedule(*, steps: int, questions: int, episodes: int, gate_steps: int = 0) -> Schedule:
    return Schedule(
        name="test", steps=steps, questions=questions, episodes=episodes, gate_steps=gate_steps
    )


def export_for(manifest: Path, out: Path, to: str, schedule: Schedule) -> Path:
    """The manifest scheduled and exported; returns the export's folder."""
    pool = build_pool(manifest, schedule, PoolChoice())
    write_schedule(
        manifest / "schedule.parquet",
        Draws(schedule, pool.rows, seed=0),
        pool,
        PoolChoice(),
        manifest,
    )
    export_manifest(out, to=to, env=TrainerEnv(manifest))
    return out


def right_answer(row_id: str) -> Sequence[str]:
    """Completions that look, test the gold and submit it."""
    sql = QUESTIONS[int(row_id.rpartition("q")[2])][1]
    return (
        f"<think>\nLet me look.\n</think>\n{call('list_tables')}",
        call("run_query", sql=sql),
        call("submit_sql", sql=sql),
    )


def wrong_answer(sql: str) -> Sequence[str]:
    return (call("submit_sql", sql=sql),)
