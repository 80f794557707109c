"""On real databases, a view of the gold tables gives every gold the whole database's result."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from envbuild.sql.connect import open_read_only, quote_name
from envbuild.sql.execution.session import Session
from envbuild.sql.files.subset import build_view_image
from envbuild.sql.gold_tables import read_gold_tables
from tests.shared import shared_data


def questions(file: Path, databases: Path, key: str) -> Iterator[tuple[Path, str]]:
    for question in json.loads(file.read_text()):
        db_id = question["db_id"]
        yield databases / db_id / f"{db_id}.sqlite", question[key]


def check_golds(asked: list[tuple[Path, str]]) -> tuple[int, list[str]]:
    """How many golds were compared, and those whose result differs on the view."""
    images: dict[tuple[Path, tuple[str, ...]], bytes] = {}
    differing, compared = [], 0
    for path, gold in asked:
        with Session.open_file(path) as whole:
            expected = whole.run(gold)
            if not expected.ok:
                continue
            tables = tuple(read_gold_tables(whole.connection, gold).tables)
        if (path, tables) not in images:
            images[path, tables] = build_view_image(path, tables)
        compared += 1
        with Session.open_image(images[path, tables]) as view:
            if view.run(gold) != expected:
                differing.append(gold)
    return compared, differing


def test_spider_golds() -> None:
    root = shared_data("spider")
    asked = list(questions(root / "dev.json", root / "database", "query"))
    compared, differing = check_golds(asked)
    assert compared == len(asked) == 597 and not differing


@pytest.mark.slow
def test_bird_golds() -> None:
    root = shared_data("bird")
    asked = list(questions(root / "dev.json", root / "dev_databases", "SQL"))
    compared, differing = check_golds(asked)
    assert compared == 287 and not differing


@pytest.mark.slow
def test_every_table_of_a_large_database_is_copied_value_for_value() -> None:
    path = next(shared_data("large", "pokedex").rglob("*.sqlite"))
    with closing(open_read_only(path)) as source:
        names = [
            str(name)
            for (name,) in source.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            )
        ]
        assert len(names) == 172
        for start in range(0, len(names), 16):
            some = names[start : start + 16]
            with closing(apsw.Connection(":memory:")) as view:
                view.deserialize("main", build_view_image(path, some))
                ((sound,),) = view.execute("PRAGMA integrity_check(1)")
                assert sound == "ok"
                for name in some:
                    query = f"SELECT rowid, * FROM {quote_name(name)}"
                    assert list(view.execute(query)) == list(source.execute(query)), name
