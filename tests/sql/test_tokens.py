"""Tokens are SQLite's own: checked against what SQLite names in its syntax errors."""

import re

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envbuild.sql.tokens import Kind, iter_tokens, unquote

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
    assert "".join(text[start:end] for _, start, end in tokens) == text
    for kind, start, end in tokens:
        if kind in (Kind.SPACE, Kind.COMMENT):
            continue
        told = first_token_of_sqlite(text[start:])
        if told is not None:
            assert told == (text[start:end], kind is not Kind.ILLEGAL)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("'O''Brien; --'", Kind.STRING),
        ("x'00Ff'", Kind.BLOB),
        ("0x1F", Kind.NUMBER),
        ("1_000.5e-3", Kind.NUMBER),
        (".5", Kind.NUMBER),
        ("2.E3", Kind.NUMBER),
        ('"a""b"', Kind.QUOTED),
        ("`a``b`", Kind.QUOTED),
        ("[a b]", Kind.QUOTED),
        ("größe$1", Kind.WORD),
        ("?12", Kind.VARIABLE),
        ("$c::(x)", Kind.VARIABLE),
        ("@a", Kind.VARIABLE),
        ("#a", Kind.VARIABLE),
        ("-- to the end", Kind.COMMENT),
        ("/* no end", Kind.COMMENT),
        ("->>", Kind.OPERATOR),
        ("\ufeff", Kind.SPACE),
        ("'no end", Kind.ILLEGAL),
        ("x'abc'", Kind.ILLEGAL),
        ("12ab", Kind.ILLEGAL),
        ("\\", Kind.ILLEGAL),
    ],
)
def test_one_token_each(text: str, kind: Kind) -> None:
    assert list(iter_tokens(text)) == [(kind, 0, len(text))]


def test_unquote() -> None:
    assert [unquote(t) for t in ('"a""b"', "`a``b`", "[a b]", "'o''k'", "bare", "")] == [
        'a"b', "a`b", "a b", "o'k", "bare", "",
    ]  # fmt: skip
