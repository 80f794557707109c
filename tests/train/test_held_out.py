import random

import pytest

from envbuild.records.corpus import Column, Schema, Table
from envbuild.train.pool import (
    NEAR,
    NearDuplicates,
    question_words,
    schema_fingerprint,
)


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
