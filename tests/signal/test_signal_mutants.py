"""Every operator against its golden file: a gold, then each mutant it makes, then a blank line."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from envbuild.errors import GoldError
from envbuild.query.parse import render
from envbuild.records.corpus import Schema
from envbuild.schema.read import read_schema
from envbuild.signal.mutants import draw_mutants
from envbuild.signal.operators import OPERATORS
from envbuild.signal.tree import GoldTree, compiler_for
from envbuild.sql.connect import open_private, open_read_only
from envbuild.sql.execution.session import Session
from tests.shared import shared_data

GOLDEN = Path(__file__).parents[1] / "golden" / "mutants"
BLOCKS = [
    pytest.param(path.stem, block.splitlines(), id=f"{path.stem}-{number}")
    for path in sorted(GOLDEN.glob("*.sql"))
    for number, block in enumerate(path.read_text().strip().split("\n\n"))
]


@cache
def golden_schema() -> Schema:
    connection = open_private()
    connection.execute((GOLDEN / "schema.ddl").read_text())
    return read_schema(connection)


@cache
def golden_compiler() -> Callable[[str], bool]:
    return compiler_for(golden_schema())


def test_every_operator_has_golden_pairs() -> None:
    assert {path.stem for path in GOLDEN.glob("*.sql")} == set(OPERATORS)


@pytest.mark.parametrize(("name", "lines"), BLOCKS)
def test_an_operator_makes_its_mutants_and_they_compile(name: str, lines: list[str]) -> None:
    tree = GoldTree(lines[0], golden_schema())
    before = render(tree.root)
    assert [edit.render(tree.root) for edit in OPERATORS[name](tree)] == lines[1:]
    assert render(tree.root) == before, "an edit was not undone"
    assert all(golden_compiler()(sql) for sql in (before, *lines[1:]))


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ('SELECT "name" FROM singer', 'SELECT "name" FROM singer'),
        ('SELECT name FROM singer WHERE country = "France"', "country = 'France'"),
        ('SELECT name AS "n m" FROM singer ORDER BY "n m"', 'ORDER BY "n m"'),
        ('SELECT name FROM singer WHERE name = "o\'x"', "name = 'o''x'"),
        ('SELECT "order" FROM stadium', 'SELECT "order" FROM stadium'),
        ('SELECT name FROM (SELECT * FROM singer) WHERE "country" = "x"', "\"country\" = 'x'"),
        (
            'WITH c(n) AS (SELECT name FROM singer) SELECT "n" FROM c WHERE n = "m"',
            "SELECT \"n\" FROM c WHERE n = 'm'",
        ),
        (
            'SELECT name FROM singer AS s WHERE EXISTS (SELECT 1 FROM concert WHERE "height" > 1)',
            'WHERE "height" > 1',
        ),
        ('SELECT `name` FROM singer WHERE [country] = "x"', "\"country\" = 'x'"),
    ],
)
def test_quoted_names_are_told_from_strings(gold: str, expected: str) -> None:
    assert expected in render(GoldTree(gold, golden_schema()).root)


@pytest.mark.parametrize("sql", ["", "PRAGMA x", "UPDATE singer SET age = 1", "((("])
def test_what_is_no_query_is_a_gold_error(sql: str) -> None:
    with pytest.raises(GoldError):
        GoldTree(sql, golden_schema())


REAL = {
    "spider": ("spider/dev.json", "query", "spider/database"),
    "bird": ("bird/dev.json", "SQL", "bird/dev_databases"),
    "machinespider_de": ("machinespider_de/dev.json", "query", "machinespider_de/database"),
    "synsql": ("synsql/data.json", "sql", "synsql/databases"),
}


@pytest.mark.slow
@pytest.mark.parametrize("corpus", sorted(REAL))
def test_real_golds_render_to_the_same_result_and_have_mutants(corpus: str) -> None:
    """Golds re-rendered without a change give identical rows; mutants a query >= 9."""
    file, key, databases = REAL[corpus]
    golds = json.loads(shared_data(*file.split("/")).read_text())
    folder = shared_data(*databases.split("/"))
    opened: dict[str, tuple[Session, Schema, Callable[[str], bool]]] = {}
    drawn = []
    for gold in golds:
        db_id = gold["db_id"]
        if db_id not in opened:
            path = folder / db_id / f"{db_id}.sqlite"
            schema = read_schema(open_read_only(path))
            opened[db_id] = Session.open_file(path), schema, compiler_for(schema)
        session, schema, compiles = opened[db_id]
        own = session.run(gold[key])
        if not own.ok:
            continue
        mutants = draw_mutants(gold[key], schema, compiles=compiles)
        drawn.append(len(mutants.mutants))
        assert compiles(mutants.gold_sql), gold[key]
        assert session.run(mutants.gold_sql).rows == own.rows, gold[key]
    assert sum(drawn) / len(drawn) >= 9


def test_a_gold_that_would_keep_the_parser_for_hours_has_no_mutants() -> None:
    """Its time doubles with each JOIN without ON."""
    gold = "SELECT count(*) FROM singer" + "".join(f" JOIN singer AS s{n}" for n in range(40))
    with pytest.raises(GoldError, match="not soon"):
        draw_mutants(gold, golden_schema())
