"""Whether the order of a result's rows means anything."""

from envbuild.sql.text.tokens import Kind, iter_code


def order_matters(sql: str) -> bool:
    """True where the outermost query has ORDER BY (CONTRACT 4).

    Inner ones (subqueries, CTEs, windows, aggregates) always stand in parentheses.
    """
    depth, after_order = 0, False
    for kind, start, end in iter_code(sql):
        text = sql[start:end]
        if kind is Kind.OPERATOR:
            depth += (text == "(") - (text == ")")
        if kind is Kind.WORD and depth == 0:
            word = text.lower()
            if after_order and word == "by":
                return True
            after_order = word == "order"
        else:
            after_order = False
    return False
