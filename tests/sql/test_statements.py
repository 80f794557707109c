"""Splitting agrees with `sqlite3_complete` and loses nothing that means something."""

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.sql.from_names import order_matters
from envbuild.sql.tokens import iter_code, split_statements

TRIGGER = "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT ';'; UPDATE a SET x = 1; END"


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ;; -- only a comment\n;", []),
        ("CREATE TABLE a(x DEFAULT ';');SELECT 1", ["CREATE TABLE a(x DEFAULT ';')", "SELECT 1"]),
        (f"{TRIGGER};\nSELECT 2;", [TRIGGER, "SELECT 2"]),
        (f"{TRIGGER.replace('CREATE', 'CREATE TEMP')}; SELECT 2",
         [TRIGGER.replace("CREATE", "CREATE TEMP"), "SELECT 2"]),
        ("-- about a\nCREATE TABLE a(x); /* b; */ CREATE TABLE b(x -- y;\n)",
         ["-- about a\nCREATE TABLE a(x)", "/* b; */ CREATE TABLE b(x -- y;\n)"]),
        ("CREATE TRIGGER t BEFORE INSERT ON a EXECUTE PROCEDURE f(); CREATE TABLE b(x);",
         ["CREATE TRIGGER t BEFORE INSERT ON a EXECUTE PROCEDURE f()", "CREATE TABLE b(x)"]),
        ("CREATE TABLE `a;b`([c;d] INT, \"e;f\" INT); SELECT 1",
         ["CREATE TABLE `a;b`([c;d] INT, \"e;f\" INT)", "SELECT 1"]),
        ("SELECT 'no end; SELECT 2", ["SELECT 'no end; SELECT 2"]),
    ],
)  # fmt: skip
def test_split_statements(text: str, statements: list[str]) -> None:
    assert split_statements(text) == statements


PIECES = ["CREATE ", "TEMP ", "TRIGGER ", "EXPLAIN ", "END", "x ", ";", "';'", "-- ;\n", "[;]"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@settings(max_examples=300, deadline=None)
def test_whole_pieces_are_complete_for_sqlite(text: str) -> None:
    pieces = split_statements(text)
    kept = [text for piece in pieces for text in code(piece) if text != ";"]
    assert kept == [token for token in code(text) if token != ";"]
    for piece in pieces[:-1]:
        if "TRIGGER" not in piece:
            assert apsw.complete(piece + "\n;")
    if len(pieces) == 1 and apsw.complete(text):
        assert apsw.complete(pieces[0] + "\n;")


def code(text: str) -> list[str]:
    return [text[start:end] for _, start, end in iter_code(text)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n/* x */ by 1 limit 2", True),
        ("SELECT a FROM t", False),
        ("SELECT * FROM (SELECT a FROM t ORDER BY a)", False),
        ("WITH c AS (SELECT a FROM t ORDER BY a LIMIT 3) SELECT a FROM c", False),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", False),
        ("SELECT a, sum(b) OVER w FROM t WINDOW w AS (ORDER BY a)", False),
        ("SELECT group_concat(a ORDER BY a) FROM t", False),
        ("SELECT a FROM t UNION SELECT b FROM t ORDER BY 1", True),
        ("SELECT 'ORDER BY a' FROM t -- ORDER BY a", False),
        ('SELECT "order" by_x FROM t', False),
        ("VALUES (1),(2)", False),
        ("SELECT :order by_x FROM t", False),
        ("SELECT größe_order by_x FROM t", False),
        ("SELECT ')' FROM t ORDER/**/BY a", True),
        ("SELECT [(] FROM t ORDER--\nBY `)`", True),
        ("SELECT 'ORDER BY a", False),
        ("SELECT 1 /* ORDER BY a", False),
    ],
)
def test_order_matters(sql: str, expected: bool) -> None:
    assert order_matters(sql) is expected
