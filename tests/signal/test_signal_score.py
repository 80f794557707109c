"""signal@1 on a small database whose answers can be checked by hand."""

from pathlib import Path

import apsw
import pytest

from envbuild.records.corpus import Schema
from envbuild.schema.read import read_schema
from envbuild.signal.mutants import Mutant, draw_mutants
from envbuild.signal.score import score_question, try_mutants
from envbuild.sql.connect import open_image
from envbuild.sql.execution.session import Session

DDL = """
CREATE TABLE singer (singer_id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT, age INT);
CREATE TABLE concert (concert_id INTEGER PRIMARY KEY, title TEXT, year INT,
                      singer_id INT NOT NULL REFERENCES singer (singer_id));
"""
ROWS = """
INSERT INTO singer VALUES (1,'Ann','France',30),(2,'Bob','Spain',41),(3,'Cid','France',41),
                          (4,'Dee',NULL,19);
INSERT INTO concert VALUES (1,'Alpha',2014,1),(2,'Beta',2015,1),(3,'Gamma',2015,3);
"""


def image(script: str) -> bytes:
    connection = apsw.Connection(":memory:")
    connection.execute(script)
    return connection.serialize("main")


@pytest.fixture
def schema() -> Schema:
    return read_schema(open_image(image(DDL)))


def session(script: str) -> Session:
    return Session.open_image(image(script))


def test_the_draw_does_not_depend_on_rows(schema: Schema) -> None:
    filled = read_schema(open_image(image(DDL + ROWS)))
    gold = "SELECT name FROM singer WHERE age > 20 ORDER BY age LIMIT 2"
    assert draw_mutants(gold, schema) == draw_mutants(gold, filled)


def test_mutants_are_different_and_no_more_than_twelve(schema: Schema) -> None:
    gold = "SELECT name FROM singer WHERE age > 20 AND country = 'France' ORDER BY age LIMIT 2"
    mutants = draw_mutants(gold, schema).mutants
    assert len(mutants) == len({m.sql for m in mutants}) == 12
    # round-robin: no operator twice while another has not been asked
    assert len({m.operator for m in mutants[:8]}) == 8


def test_alive_is_what_gets_the_golds_own_result(schema: Schema) -> None:
    mutants = (
        Mutant(operator="cmp_bound", sql="SELECT name FROM singer WHERE age >= 40"),
        Mutant(operator="cmp_rev", sql="SELECT name FROM singer WHERE age < 40"),
        Mutant(operator="broken", sql="SELECT nothing FROM singer WHERE age < 40"),
    )
    trial = try_mutants(
        "SELECT name FROM singer WHERE age > 40", mutants, session=session(DDL + ROWS)
    )
    assert trial.alive == (0,)


def test_more_rows_tell_more_mutants_apart(schema: Schema) -> None:
    gold = "SELECT name FROM singer WHERE country = 'France' AND age > 35"
    empty = score_question(gold, session=session(DDL), schema=schema)
    full = score_question(gold, session=session(DDL + ROWS), schema=schema)
    assert empty.signal_high is not None and full.signal_high is not None
    assert empty.signal_high < 0.2 < 0.6 < full.signal_high
    assert empty.gold_rows == 0 and full.gold_rows == 1
    assert empty.mutants == full.mutants and empty.seed == full.seed


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("SELECT nothing FROM singer", "gold_error"),
        ("DELETE FROM singer", "gold_denied"),
        ("SELECT FROM WHERE", "gold_error"),
        ("VALUES (1)", "unparsed_gold"),
        ("SELECT name, random() FROM singer WHERE age > 20", "unstable_gold"),
    ],
)
def test_what_cannot_be_scored_is_null_with_a_reason(
    schema: Schema, gold: str, reason: str
) -> None:
    score = score_question(gold, session=session(DDL + ROWS), schema=schema)
    assert score.signal_low is None and score.signal_high is None
    assert score.reason == reason


def test_a_mutant_is_presumed_equivalent_on_four_variants_and_no_fewer(schema: Schema) -> None:
    """No variant holds a NULL country, so COUNT(country) never differs from COUNT(*)."""
    gold = "SELECT count(*) FROM singer"
    rows = DDL + "INSERT INTO singer VALUES (1,'A','F',1),(2,'B','F',1)"
    variants = [session(rows) for _ in range(4)]
    three = score_question(gold, session=session(rows), schema=schema, variants=variants[:3])
    four = score_question(gold, session=session(rows), schema=schema, variants=variants)
    assert three.presumed_equivalent == 0 and three.unknown > 0
    assert four.presumed_equivalent == three.unknown and four.unknown == 0
    assert four.signal_low == three.signal_low
    assert four.signal_high is not None and four.signal_low is not None
    assert four.signal_high > four.signal_low


def test_variants_with_an_empty_gold_are_no_evidence(schema: Schema) -> None:
    gold = "SELECT name FROM singer WHERE age > 20"
    score = score_question(
        gold,
        session=session(DDL + ROWS),
        schema=schema,
        variants=[session(DDL) for _ in range(6)],
    )
    assert score.variants == 0 and score.presumed_equivalent == 0


def test_double_quoted_strings_are_strings(schema: Schema, tmp_path: Path) -> None:
    gold = 'SELECT name FROM singer WHERE country = "France" AND age > 20'
    score = score_question(gold, session=session(DDL + ROWS), schema=schema)
    assert score.reason == "" and score.mutants == 12
    assert any("'France'" in m.sql for m in draw_mutants(gold, schema).mutants)
    assert not any('"France"' in m.sql for m in draw_mutants(gold, schema).mutants)


def test_what_is_nested_too_deeply_is_a_reason_and_no_crash(schema: Schema) -> None:
    gold = "SELECT name FROM singer WHERE age = " + "(" * 3000 + "1" + ")" * 3000
    score = score_question(gold, session=session(DDL + ROWS), schema=schema)
    assert score.signal_low is None and score.reason in ("gold_error", "unparsed_gold")
    wide = "SELECT name FROM singer WHERE " + " OR ".join(f"age = {n}" for n in range(900))
    wide_score = score_question(wide, session=session(DDL + ROWS), schema=schema)
    assert wide_score.signal_low is not None or wide_score.reason == "unparsed_gold"
