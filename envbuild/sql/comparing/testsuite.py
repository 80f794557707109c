"""What Spider's test-suite rule does to the SQL before it compares the results.

Its published verdicts ignore DISTINCT: the word is taken out of both queries, in aggregates too,
before they run, unless the user asks to keep it. The rows are then compared by `testsuite@1`.
"""

from envbuild.sql.text.tokens import Kind, iter_code


def without_distinct(sql: str) -> str:
    """The query with every DISTINCT quantifier left out; `IS DISTINCT FROM` stays."""
    kept, at, before = [], 0, ""
    for token in iter_code(sql):
        word = sql[token.start : token.end].lower() if token.kind is Kind.WORD else ""
        if word == "distinct" and before not in ("is", "not"):
            kept.append(sql[at : token.start])
            at = token.end
        before = word
    return "".join((*kept, sql[at:]))
