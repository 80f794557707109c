"""What can be told of a statement from its text: that it is text, in size, and alone."""

from envbuild.records.execution import Limits
from envbuild.sql.text.tokens import iter_code


def refuse_text(sql: object, limits: Limits) -> str:
    """Why this is not the text of one statement; empty where it may be."""
    if not isinstance(sql, str):
        return "the SQL is not text"
    if "\0" in sql:
        return "the SQL holds a NUL character"
    if not sql.isascii() or len(sql) > limits.sql_bytes:
        try:
            size = len(sql.encode())
        except UnicodeEncodeError:
            return "the SQL holds a lone surrogate"
        if size > limits.sql_bytes:
            return f"the SQL is longer than {limits.sql_bytes} bytes"
    if ";" in sql.rstrip("; \t\n\f\r") and _statements(sql) > 1:
        return "more than one statement"
    return ""


def _statements(sql: str) -> int:
    """Statements between semicolons; found before anything runs."""
    count, inside = 0, False
    for token in iter_code(sql):
        if token.end - token.start == 1 and sql[token.start] == ";":
            inside = False
        elif not inside:
            count, inside = count + 1, True
    return count
