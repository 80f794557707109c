import random
from pathlib import Path

import pytest

from envbuild.manifest.read import open_manifest
from envbuild.records.corpus import Column, Schema, Table
from envbuild.train.pool import (
    NEAR,
    NearDuplicates,
    question_words,
    schema_fingerprint,
    untrainable_rows,
)
from envbuild.train.trainer_env import TrainerEnv
from tests.train.manifests import manifest_row, write_database, write_manifest


def schema(**tables: tuple[str, ...]) -> Schema:
    return Schema(
        tables=tuple(
            Table(name=name, columns=tuple(Column(name=c, type="") for c in columns), sql="")
            for name, columns in tables.items()
        ),
        foreign_keys=(),
    )


def test_the_fingerprint_ignores_order_and_case_and_sees_columns() -> None:
    one = schema(singer=("id", "name"), song=("title", "singer"))
    assert schema_fingerprint(one) == schema_fingerprint(
        schema(Song=("singer", "Title"), SINGER=("name", "id"))
    )
    assert schema_fingerprint(one) != schema_fingerprint(
        schema(singer=("id", "name", "age"), song=("title", "singer"))
    )
    assert schema_fingerprint(schema(a=("b", "c"))) != schema_fingerprint(schema(a=("b",), c=()))


@pytest.mark.parametrize(
    ("question", "near"),
    [
        ("How many singers from France are older than 30 years?", True),
        ("how many singers, from France, are older than 40 years", True),
        ("List the names of all stadiums.", False),
        ("How many singers?", False),
    ],
)
def test_reworded_questions_are_found(question: str, near: bool) -> None:
    held_out = NearDuplicates(["How many singers from France are older than 40 years?"])
    assert held_out.holds(question) is near


def test_prefix_filtering_agrees_with_comparing_everything() -> None:
    chance = random.Random(5)
    words = [f"w{i}" for i in range(14)]

    def some(count: int) -> list[str]:
        return [" ".join(chance.choices(words, k=chance.randint(1, 12))) for _ in range(count)]

    test, train = some(120), some(600)
    found = NearDuplicates(test)
    sets = [question_words(q) for q in test]
    hits = 0
    for question in train:
        own = question_words(question)
        expected = any(len(own & s) >= NEAR * len(own | s) for s in sets)
        assert found.holds(question) is expected, question
        hits += expected
    assert 20 < hits < 580


def test_a_row_that_must_not_be_trained_on_has_its_reason(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_database(folder / "copy.sqlite", "CREATE TABLE ITEM (NAME TEXT, id INTEGER);")
    write_database(folder / "town.sqlite", "CREATE TABLE town (name TEXT);")
    towns = {"gold_sql": "SELECT name FROM town", "sqlite_file": "town.sqlite"}
    rows = [
        manifest_row("a", sqlite_file="copy.sqlite", question="Who sings?"),
        manifest_row("b", question="Which town?", **towns),
        manifest_row("c", question="Why?", **towns),
        manifest_row("t", split="Dev", question="which TOWN"),
    ]
    manifest = open_manifest(write_manifest(folder, rows))
    reasons = {"a": "shares_schema_with_test", "b": "near_duplicate_of_test", "t": "test_split"}
    assert untrainable_rows(manifest) == reasons
    assert TrainerEnv(folder).splits == {"train": ["c"], "test": ["t"]}
