"""What sqlglot does of the jobs that this folder does itself: measured beside us, used nowhere."""

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope


def mask_by_parsing(sql: str) -> str:
    """Parse, replace literals, generate: the usual way to mask; the text comes out respelled."""
    tree = sqlglot.parse_one(sql, dialect="sqlite")
    for literal in list(tree.find_all(exp.Literal)):
        literal.replace(exp.Placeholder())
    return tree.sql(dialect="sqlite")


def tables_by_scope(sql: str) -> set[str]:
    """The tables among every scope's sources; views are not followed."""
    tree = sqlglot.parse_one(sql, dialect="sqlite")
    return {
        source.name
        for scope in traverse_scope(tree)
        for source in scope.sources.values()
        if isinstance(source, exp.Table)
    }
