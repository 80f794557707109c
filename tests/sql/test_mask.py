"""Masks: golden pairs, real golds, and odd texts token by token."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envbuild.sql.connect import Connection, open_read_only
from envbuild.sql.mask import mask_sql
from envbuild.sql.names import read_identifiers
from envbuild.sql.tokens import Kind, iter_tokens
from tests.shared import shared_data

NAMES = frozenset(("name", "singer", "sid", "last"))


def golden_pairs(file: str) -> list[tuple[str, str]]:
    text = (Path(__file__).parent.parent / "golden" / file).read_text()
    return [(a, b) for a, b in (pair.split("\n") for pair in text.strip("\n").split("\n\n"))]


@pytest.mark.parametrize(("sql", "masked"), golden_pairs("mask.sql"))
def test_mask_literals(sql: str, masked: str) -> None:
    assert mask_sql(sql, identifiers=NAMES).text == masked
    assert mask_sql(masked, identifiers=NAMES).text == masked


@pytest.mark.parametrize(("sql", "masked"), golden_pairs("skeleton.sql"))
def test_mask_skeleton(sql: str, masked: str) -> None:
    assert mask_sql(sql, identifiers=NAMES, mode="skeleton").text == masked


def test_literals_are_as_written_and_in_order() -> None:
    sql = "SELECT 'a''b', 1e5, x'0f', \"lit\", \"name\" FROM singer LIMIT 3"
    masked = mask_sql(sql, identifiers=NAMES)
    assert masked.literals == ("'a''b'", "1e5", "x'0f'", '"lit"', "3")
    assert masked.length == len(masked.text)
    assert mask_sql(sql).literals == ("'a''b'", "1e5", "x'0f'", "3")


def test_identifiers_of_a_database_include_columns_of_views() -> None:
    connection = Connection(":memory:")
    connection.execute(
        'CREATE TABLE Größe(ID, "a b"); CREATE VIEW v AS SELECT id AS Alias FROM größe;'
        "CREATE VIEW broken AS SELECT * FROM nowhere"
    )
    assert read_identifiers(connection) == {"größe", "id", "a b", "v", "alias", "broken"}


PIECES = [
    *"'\"`[]?:@$#.,;()=-+*/%<>!| \n\t\v\x01\x1c\\_015exX",
    " AS ", "x'0f'", "''", "--", "/*", "*/", "name", "t1.c2", "1.5", ".5", "5.",
    "f(", "rows ", " first", "NULLS LAST", "end.x", " as (", ")as(", "materialized(", ".row",
    "1e3", "0x1F", "1_0", "ü", "\u00a0", "SELECT ", " FROM ", "'it''s'", "'a -- b'", '"name"',
]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=8))
@example(["\ufeff-- x\n1", "+\ufeffa", "a - -1--", "a/*/b*/.5", ".x'0'"])
@example(["t.5x", "1..5", "1.5x", "a'b'5", "'abc''", "\"it's\" 5 'x'", "-- it's 5\n'x'"])
@example([])
@settings(max_examples=400, deadline=None)
def test_a_mask_is_the_tokens_less_literals_and_gaps(texts: list[str]) -> None:
    for text in texts:
        masked = mask_sql(text)
        assert (masked.text, masked.literals) == by_tokens(text)


def by_tokens(sql: str) -> tuple[str, tuple[str, ...]]:
    """The mask of a text without CAST, whose double-quoted tokens are names."""
    out, literals, gap = "", [], False
    for kind, text, _ in iter_tokens(sql):
        if kind in (Kind.SPACE, Kind.COMMENT):
            gap = True
            continue
        is_literal = kind in (Kind.STRING, Kind.NUMBER, Kind.BLOB)
        if is_literal:
            literals.append(text)
        out += (" " if gap and out else "") + ("?" if is_literal else text)
        gap = False
    return out.rstrip(" ;"), tuple(literals)


def test_a_double_quoted_value_of_spider_is_a_literal() -> None:
    folder = shared_data("spider")
    for record in json.loads((folder / "dev.json").read_text()):
        path = folder / "database" / record["db_id"] / f"{record['db_id']}.sqlite"
        if '"' not in record["query"] or not path.exists():
            continue
        names = read_identifiers(open_read_only(path))
        assert '"' not in mask_sql(record["query"], identifiers=names).text
