"""What golds ask of rows: tables, keys and predicates, through CTEs, subqueries and aggregates."""

from itertools import pairwise

import apsw
import pytest

from envbuild.query.demand import read_demand
from envbuild.records.corpus import Schema
from envbuild.records.signal import Demand, Frame
from envbuild.schema.read import read_schema

DDL = """
CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT, age INT, city TEXT, born DATE);
CREATE TABLE song (id INTEGER PRIMARY KEY, singer_id INT REFERENCES singer, title TEXT, sales REAL);
CREATE TABLE prize (song_id INT, year INT)
"""


@pytest.fixture(scope="module")
def schema() -> Schema:
    connection = apsw.Connection(":memory:")
    connection.execute(DDL)
    return read_schema(connection)


def first(sql: str, schema: Schema) -> Frame:
    return read_demand(sql, schema).frames[0]


def shown(frame: Frame) -> list[list[str]]:
    """Each clause as its alternatives, `table.column op values`."""
    return [
        [
            " and ".join(
                f"{frame.sources[c.site[0]]}.{c.site[1]} {c.op} {', '.join(map(repr, c.values))}"
                + (f" [{c.form}]" if c.form else "")
                for c in way
            )
            for way in clause
        ]
        for clause in frame.clauses
    ]


@pytest.mark.parametrize(
    ("where", "clauses"),
    [
        ("age > 40 AND city = 'Rome'", [["singer.age > 40"], ["singer.city = 'Rome'"]]),
        ("age > 4 OR city = 'Rome'", [["singer.age > 4", "singer.city = 'Rome'"]]),
        (
            "NOT (age > 4 OR city = 'Rome')",
            [["singer.age <= 4"], ["singer.city != 'Rome'"]],
        ),
        (
            "age > 4 OR (city = 'Rome' AND age < 2)",
            [["singer.age > 4", "singer.city = 'Rome' and singer.age < 2"]],
        ),
        ("name LIKE '%x_'", [["singer.name like '%x_'"]]),
        ('city = "Rome"', [["singer.city = 'Rome'"]]),
        ("strftime('%Y', born) = '1999'", [["singer.born = '1999' [strftime:%Y]"]]),
        ("substr(name, 1, 1) = 'A'", [["singer.name = 'A' [substr:1:1]"]]),
        ("CAST(age AS REAL) >= 2", [["singer.age >= 2"]]),
        ("age + 1 > 3", []),
    ],
)
def test_predicates(where: str, clauses: list[list[str]], schema: Schema) -> None:
    assert shown(first(f"SELECT name FROM singer WHERE {where}", schema)) == clauses


def test_joins_are_equalities_and_left_sides_stay(schema: Schema) -> None:
    frame = first(
        "SELECT * FROM singer s LEFT JOIN song g ON s.id = g.singer_id WHERE g.sales > 5", schema
    )
    assert frame.sources == ("singer", "song")
    assert frame.same == (((0, "id"), (1, "singer_id")),)
    assert frame.optional == (1,)


def test_ctes_and_derived_tables_are_followed_to_base_columns(schema: Schema) -> None:
    sql = """
    WITH hits AS (SELECT singer_id AS who, sales AS sold FROM song WHERE title = 'x')
    SELECT d.n FROM (SELECT id AS i, name AS n FROM singer) AS d JOIN hits ON d.i = hits.who
    WHERE hits.sold > 9"""
    frame = first(sql, schema)
    assert frame.sources == ("singer", "song")
    assert frame.same == (((0, "id"), (1, "singer_id")),)
    assert shown(frame) == [["song.title = 'x'"], ["song.sales > 9"]]


def test_a_count_bound_is_a_number_of_siblings(schema: Schema) -> None:
    frame = first(
        "SELECT city FROM singer GROUP BY city HAVING count(*) > 3 ORDER BY count(*) DESC LIMIT 2",
        schema,
    )
    assert (frame.group, frame.siblings, frame.limit) == (((0, "city"),), 4, 2)
    assert (frame.counted, frame.counted_over) == ("desc", (0,))


def test_subqueries_join_in_where_a_match_is_wanted_and_stand_apart_where_not(
    schema: Schema,
) -> None:
    wanted = first("SELECT name FROM singer WHERE id IN (SELECT singer_id FROM song)", schema)
    assert (wanted.sources, wanted.same) == (
        ("singer", "song"),
        (((0, "id"), (1, "singer_id")),),
    )
    demand = read_demand(
        "SELECT name FROM singer s WHERE NOT EXISTS (SELECT 1 FROM song WHERE singer_id = s.id)",
        schema,
    )
    assert [frame.sources for frame in demand.frames] == [("singer",), ("singer", "song")]


def test_a_correlated_union_keeps_the_rows_around_it(schema: Schema) -> None:
    demand = read_demand(
        "SELECT name FROM prize, singer s WHERE EXISTS (SELECT 1 FROM song WHERE singer_id = s.id "
        "UNION SELECT 1 FROM prize WHERE year = s.age)",
        schema,
    )
    assert [frame.sources[:2] for frame in demand.frames] == [("prize", "singer")] * 2
    assert (("prize", "year"), ("singer", "age")) in demand.joined


@pytest.mark.parametrize("sql", ["SELEC 1", "DROP TABLE singer", "", "SELECT 1 FROM nowhere"])
def test_what_cannot_be_read_asks_for_nothing(sql: str, schema: Schema) -> None:
    assert not any(frame.clauses for frame in read_demand(sql, schema).frames)


def test_a_cte_used_many_times_over_does_not_grow_without_end(schema: Schema) -> None:
    names = [f"c{n}" for n in range(12)]
    ctes = ["c0 AS (SELECT id FROM singer)"]
    ctes += [
        f"{name} AS (SELECT a.id FROM {before} a JOIN {before} b ON a.id = b.id)"
        for before, name in pairwise(names)
    ]
    demand: Demand = read_demand(f"WITH {', '.join(ctes)} SELECT id FROM c11", schema)
    assert len(demand.frames[0].sources) <= 40
