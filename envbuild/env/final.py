"""The final turn's SQL, out of what the policy wrote.

The rule is CONTRACT 10's: behind `</think>` and before a stop text, the `sql` of the last call;
else the last fenced block that starts a statement; else what stands behind the last line-leading
`Answer:`, `SQL:` or `Final …:`; else the text from its first statement on. Nothing is run here.
"""

import re
from typing import Any

from envbuild.env.chat import cut_at_stop, opens_thinking
from envbuild.env.parse import Parsed, UnreadableError, iter_objects, parse_completion, read_json
from envbuild.env.render import storable
from envbuild.records.episode import ChatFormat
from envbuild.sql.tokens import iter_code

_NAME = r'(?:\w+|"[^"\n]{1,99}"|`[^`\n]{1,99}`|\[[^\]\n]{1,99}\])'
_AS = r"AS\s*(?:(?:NOT\s+)?MATERIALIZED\s*)?\("
_WITH = rf"WITH\s+(?:RECURSIVE\s+)?{_NAME}\s*(?:\([^()]*\)\s*)?{_AS}"
_QUERY = rf"(?:SELECT\b|VALUES\s*\(|{_WITH})"
_STATEMENT = re.compile(
    rf"{_QUERY}|(?:EXPLAIN|INSERT|REPLACE|UPDATE|DELETE|CREATE|DROP|ALTER|PRAGMA|ATTACH)\s+\w",
    re.IGNORECASE,
)
_IN_PROSE = re.compile(rf"(?:^|[:>`*])[ \t]*(?=(?i:{_QUERY}))|(?<![\w.])(?={_QUERY})", re.MULTILINE)
"""Where a query starts: at a line's start or behind a mark; elsewhere in capitals only."""
_FENCE = re.compile(r"```(?P<body>.*?)(?:```|\Z)", re.DOTALL)
_TAG = re.compile(r"[ \t]*[\w+-]*")
_ANNOUNCED = re.compile(r"^[ \t>*_#-]*(?:answer|sql|final\b[^:\n]{0,60})[*_]*:", re.I | re.M)
_OPENED = re.compile(r"(`|\*\*|<\w+>)\s*\Z")
_CALL_KEYS = ("function", "args", "arguments", "parameters")


def final_sql(parsed: Parsed) -> str:
    """The SQL of a final answer; empty where there is none."""
    return storable(_called(parsed.answer) or _fenced(parsed.answer) or _said(parsed.answer))


def read_final(completion: str, *, chat: ChatFormat) -> str:
    """The SQL of a completion that is a final turn as a whole; empty where there is none."""
    said, _ = cut_at_stop(chat, storable(completion))
    return final_sql(parse_completion(said, opened_thinking=opens_thinking(chat)))


def _called(text: str) -> str:
    """The `sql` of the last object that has one, in itself or in its arguments."""
    found = [sql for call in iter_objects(text) if (sql := _sql(call))]
    return found[-1] if found else ""


def _sql(call: Any) -> str:
    for _ in range(3):  # function, arguments, and what those hold
        if isinstance(call, str):
            try:
                call = read_json(call)
            except UnreadableError:
                return ""
        if not isinstance(call, dict):
            return ""
        if isinstance(sql := call.get("sql"), str):
            return sql.strip()
        call = next((call[key] for key in _CALL_KEYS if key in call), None)
    return ""


def _fenced(text: str) -> str:
    """The last fenced block that starts a statement, without the fence's tag."""
    for fence in reversed(list(_FENCE.finditer(text))):
        for body in (fence["body"], _TAG.sub("", fence["body"], count=1)):
            if _starts_statement(body):
                return body.strip()
    return ""


def _said(text: str) -> str:
    """What is announced last, else the text from its first statement on."""
    announced = [match.end() for match in _ANNOUNCED.finditer(text)][-1:]
    for place in (*announced, 0):
        said = text[place:].strip()
        if _starts_statement(said):
            return _to_its_end(said)
        if match := _IN_PROSE.search(said):
            statement = said[match.end() :]
            if opened := _OPENED.search(said, 0, match.end()):
                closing = "</" if opened[1].startswith("<") else opened[1]
                statement = statement.partition(closing)[0]
            return _to_its_end(statement)
    return ""


def _starts_statement(text: str) -> bool:
    """Whether a statement starts here, comments before it allowed."""
    first = next(iter_code(text), None)
    return first is not None and _STATEMENT.match(text, first.start) is not None


def _to_its_end(text: str) -> str:
    """The statement up to the semicolon that no other statement follows."""
    for token in iter_code(text):
        if token.text == ";" and not _starts_statement(text[token.end :]):
            return text[: token.end].strip()
    return text.strip()
