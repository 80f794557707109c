"""SQL text without a parser: tokens as SQLite reads them, statements, order, differences."""

import re

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envbuild.sql.from_names import order_matters
from envbuild.sql.tokens import (
    Kind,
    changed_stretch,
    iter_code,
    iter_tokens,
    split_statements,
    unquote,
)

PIECES = [
    *"'\"`[]()@#:$?._-+*/%<>=!|&~,; \n\t\v\\{}xXeE019aü€\ufeff",
    "''", "--", "/*", "*/", "x'", "0x", "1e", ".5", "1_0", "::", "->>", "||", "<>", "SELECT",
    "x'0f'", "$a(b)", "日本",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
NAMED = re.compile(r'near "(.*)": syntax error|unrecognized token: "(.*)"', re.DOTALL)


def first_token_of_sqlite(text: str) -> tuple[str, bool] | None:
    """(text, legal) of the first token, where SQLite's error names it."""
    try:
        apsw.Connection(":memory:").execute("EXPLAIN QUERY/**/" + text)
    except apsw.SQLError as e:
        if found := NAMED.fullmatch(str(e).removeprefix("SQLError: ")):
            legal, illegal = found.groups()
            return (illegal, False) if legal is None else (legal, True)
    return None


@given(texts)
@example("'abc''")
@example("1.5x 1e5x 0xG 0x1G 1e+ 1.e5 .5e3")
@example("$c::(x) @(a $::(b #: :: :a:b")
@example("/*/ x */ /* /**/ -- y\n/*")
@settings(max_examples=400, deadline=None)
def test_every_token_is_what_sqlite_reads(text: str) -> None:
    tokens = list(iter_tokens(text))
    assert "".join(token.text for token in tokens) == text
    for kind, written, start in tokens:
        if kind in (Kind.SPACE, Kind.COMMENT):
            continue
        told = first_token_of_sqlite(text[start:])
        if told is not None:
            assert told == (written, kind is not Kind.ILLEGAL)


def test_unquote() -> None:
    assert [unquote(t) for t in ('"a""b"', "`a``b`", "[a b]", "'o''k'", "bare", "")] == [
        'a"b', "a`b", "a b", "o'k", "bare", "",
    ]  # fmt: skip


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
        ("\n" * 99 + "SELECT 1;" + " " * 99 + "SELECT 2", ["SELECT 1", "SELECT 2"]),
    ],
)  # fmt: skip
def test_split_statements(text: str, statements: list[str]) -> None:
    assert split_statements(text) == statements


PARTS = ["CREATE ", "TEMP ", "TRIGGER ", "EXPLAIN ", "END", "x ", ";", "';'", "-- ;\n", "[;]"]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join))
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
    return [token.text for token in iter_code(text)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n/* x */ by 1 limit 2", True),
        ("SELECT * FROM (SELECT a FROM t ORDER BY a)", False),
        ("WITH c AS (SELECT a FROM t ORDER BY a LIMIT 3) SELECT a FROM c", False),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", False),
        ("SELECT a, sum(b) OVER w FROM t WINDOW w AS (ORDER BY a)", False),
        ("SELECT a FROM t UNION SELECT b FROM t ORDER BY 1", True),
        ("SELECT 'ORDER BY a' FROM t -- ORDER BY a", False),
        ('SELECT "order" by_x FROM t', False),
        ("SELECT :order by_x FROM t", False),
        ("SELECT [(] FROM t ORDER--\nBY `)`", True),
        ("SELECT 'ORDER BY a", False),
        ("SELECT 1 /* ORDER BY a", False),
    ],
)
def test_order_matters(sql: str, expected: bool) -> None:
    assert order_matters(sql) is expected


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("select a from t where x = 1;", 'SELECT "a" FROM t WHERE x <> 1', "<>"),
        ("SELECT a FROM t", "SELECT DISTINCT a FROM t", "DISTINCT"),
        ("SELECT a FROM t LIMIT 1", "SELECT a FROM t", ""),
        ("SELECT a, a FROM t", "SELECT a, a, a FROM t", ", a"),
        ("SELECT a FROM t", "SELECT a  FROM  t", ""),
        (
            "SELECT a FROM t x JOIN u ON x.a != 1",
            "SELECT a FROM t AS x INNER JOIN u ON x.b <> 1",
            "b",
        ),
    ],
)
def test_changed_stretch(before: str, after: str, changed: str) -> None:
    start, end = changed_stretch(before, after)
    assert after[start:end] == changed
