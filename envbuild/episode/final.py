"""The final turn's SQL, out of whatever the policy wrote around it."""

import re

from envbuild.episode.parse import Parsed
from envbuild.sql.text.tokens import iter_code

_FENCE = re.compile(r"```[ \t]*(?:sql|sqlite)?[ \t]*\n?(.*?)(?:```|\Z)", re.IGNORECASE | re.DOTALL)
_STARTS = (
    r"(?:select|with|values|explain|insert|replace|update|delete|create|drop|alter|pragma|attach)\b"
)
_STATEMENT = re.compile(rf"(?:^|\n)[ \t]*(?:sql\s*:\s*)?({_STARTS}.*)", re.I | re.DOTALL)
_STARTS_STATEMENT = re.compile(_STARTS, re.IGNORECASE)


def final_sql(parsed: Parsed) -> str:
    """The SQL of a final answer; empty where there is none.

    The last of: a call's `sql` argument, a code fence's content, else the text from the first line
    that starts a statement, without prose behind its semicolon.
    """
    for call in reversed(parsed.calls):
        sql = call.arguments.get("sql")
        if isinstance(sql, str) and sql.strip():
            return sql.strip()
    if parsed.calls:
        return ""
    fences = [str(body).strip() for body in _FENCE.findall(parsed.answer)]
    if fences := [body for body in fences if body]:
        return fences[-1]
    found = _STATEMENT.search(parsed.answer.strip().strip("`"))
    return _without_prose(found[1]).strip() if found else ""


def _without_prose(text: str) -> str:
    """`text` up to a semicolon behind which no other statement starts."""
    for token in iter_code(text):
        if text[token.start : token.end] == ";":
            rest = text[token.end :].lstrip()
            return text if _STARTS_STATEMENT.match(rest) else text[: token.end]
    return text
