"""A dump's text brought into strings, comments and statements that SQLite's tokenizer reads alike.

What another database's client writes may hide every table behind it: MySQL's backslash before a
quote, Postgres' `E'…'` and `$$…$$`, the data lines of `COPY … FROM stdin`, SQL Server's GO.
"""

import re
from typing import NamedTuple

_ALIASES = {"postgresql": "postgres", "mssql": "tsql", "mariadb": "mysql"}
_CUES = {
    "mysql": r"\bAUTO_INCREMENT\b|\bENGINE\s*=|\bENUM\s*\(\s*'|\bON\s+UPDATE\s+CURRENT_"
    r"|\bDEFAULT\s+CHARSET\b|\bCOMMENT\s*=?\s*'|^/\*!\d",
    "tsql": r"\[dbo\]|(?<!\bAS )\bIDENTITY\b|\bNVARCHAR\s*\(|\b(?:NON)?CLUSTERED\b|^SET ANSI_",
    "postgres": r"::|\b(?:BIG|SMALL)?SERIAL\b|\bpublic\.|\bcharacter varying\b|\bnextval\s*\("
    r"|\bALTER TABLE ONLY\b|^COPY\s|\bAS\s+IDENTITY\b|\bwith(?:out)? time zone\b|\bUSING btree\b",
    "oracle": r"\bVARCHAR2\b|\bNUMBER\s*\(",
}
"""Words that a dialect has and SQLite has not; backticks are SQLite's too."""
_BACKSLASHES = frozenset(
    ("bigquery", "clickhouse", "databricks", "doris", "hive", "mysql", "snowflake", "spark",
     "starrocks")
)  # fmt: skip
"""Dialects whose strings have backslash escapes, by sqlglot's tokenizers."""
_COPY = re.compile(r"^COPY\b[^;']*?\bFROM\s+stdin\b[^;]*;", re.IGNORECASE | re.MULTILINE)
_PSQL = re.compile(r"^\\(?:c|connect|echo|(?:un)?restrict|set)\b.*$", re.MULTILINE)
_GO = re.compile(r"^[ \t]*GO[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_ESCAPED = r"'(?:[^'\\]+|\\[\s\S]|'')*(?:'|\Z)"
_COMMENTS = r"/\*[\s\S]*?(?:\*/|\Z)|--[^\n]*"
_NAMES = r"""`[^`]*(?:`|\Z)"""
_BACKSLASH_TOKENS = re.compile(
    rf"""(?P<string>{_ESCAPED}|"(?:[^"\\]+|\\[\s\S]|"")*(?:"|\Z))|{_NAMES}|{_COMMENTS}"""
    r"|(?P<hash>#)[^\n]*"
)
_POSTGRES_TOKENS = re.compile(
    rf"""\b[eE](?P<string>{_ESCAPED})|'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|{_COMMENTS}"""
    r"|\$(?P<tag>\w*)\$(?P<body>[\s\S]*?)\$(?P=tag)\$"
)
_ESCAPE = re.compile(r"\\([\s\S])|''")
_MEANT = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a", "'": "''"}
# in patterns the backslash stays, and SQL text cannot hold a NUL
_MEANT |= {"%": r"\%", "_": r"\_", "0": r"\0"}


class DumpText(NamedTuple):
    """A dump's statements as one text, and what was taken out of it."""

    text: str
    copied: tuple[int, ...]
    """Data lines behind each `COPY … FROM stdin;`, which itself stays in the text."""


def read_dump(text: str, dialect: str = "") -> DumpText:
    """The text with SQLite's spelling of strings and comments, for the stated dialect or its look.

    Text that neither states nor shows another dialect stays as it is.
    """
    text, copied = _without_data(text)
    if "\\" not in text and "$" not in text and not _GO.search(text) and "#" not in text:
        return DumpText(text, copied)
    dialect = stated_dialect(dialect) or look_of(text)
    if dialect in _BACKSLASHES:
        text = _BACKSLASH_TOKENS.sub(_standard, text)
    elif dialect == "postgres":
        text = _POSTGRES_TOKENS.sub(_standard, _PSQL.sub("", text))
    elif dialect == "tsql":
        text = _GO.sub(";", text)
    return DumpText(text, copied)


def stated_dialect(name: str) -> str:
    """sqlglot's name for a dialect that a source states; empty for none, and for SQLite."""
    name = _ALIASES.get(name.lower(), name.lower())
    return "" if name == "sqlite" else name


def look_of(text: str) -> str:
    """The dialect whose words the text has; empty where it has none of any."""
    for dialect, words in _CUES.items():
        if re.search(words, text, re.IGNORECASE | re.MULTILINE):
            return dialect
    return ""


def _without_data(text: str) -> tuple[str, tuple[int, ...]]:
    if "stdin" not in text.lower():
        return text, ()
    kept, copied, end = [], [], 0
    while head := _COPY.search(text, end):
        closed = text.find("\n\\.", head.end())
        data = text[head.end() : closed if closed >= 0 else len(text)]
        kept.append(text[end : head.end()])
        copied.append(data.strip("\r\n").count("\n") + 1 if data.strip() else 0)
        end = closed + 3 if closed >= 0 else len(text)
    return "".join(kept) + text[end:], tuple(copied)


def _standard(token: re.Match[str]) -> str:
    """A string with escapes as SQLite spells its value; `#` as `--`; any other token as it is."""
    found = token.groupdict()
    if found.get("hash"):
        return "--" + token[0][1:]
    if found.get("body") is not None:
        return "'" + found["body"].replace("'", "''") + "'"
    string = found.get("string")
    if string is None or ("\\" not in string and string == token[0]):
        return token[0]
    quote = string[0]
    inner = string[1:-1] if len(string) > 1 and string.endswith(quote) else string[1:]
    if quote == '"':
        inner = inner.replace('""', '"').replace("'", "''")
    return "'" + _ESCAPE.sub(lambda e: _MEANT.get(e[1], e[1]) if e[1] else "''", inner) + "'"
