"""Gold SQL with its ties broken: every LIMITed query ordered further by its own result columns.

Where rows tie under ORDER BY, LIMIT keeps whichever SQLite met first. Ordering the tied rows by all
result columns, once upwards and once downwards, keeps the first and the last of them: where the
two results differ, the data do not determine the gold's.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from envbuild.sql.text.tokens import Kind, iter_code

_FAR_TERM = 32_000
"""A column no query has; SQLite's refusal names the last one there is."""
_RANGE = re.compile(r"ORDER BY term out of range - should be between 1 and (\d+)")


class LimitSite(NamedTuple):
    """One LIMIT of a query, at any depth."""

    position: int
    """Where its keyword stands in the text."""
    ordered: bool
    """An ORDER BY stands before it in the same query."""


def limit_sites(sql: str) -> tuple[LimitSite, ...]:
    """Every LIMIT of `sql`, inner queries' and compound ones' too, in text order."""
    sites = []
    # One query (or compound of them) per pair of parentheses; windows never hold a LIMIT.
    ordered = [False]
    after_order = False
    for kind, start, end in iter_code(sql):
        text = sql[start:end]
        word = text.lower() if kind is Kind.WORD else ""
        if text == "(":
            ordered.append(False)
        elif text == ")" and len(ordered) > 1:
            ordered.pop()
        elif after_order and word == "by":
            ordered[-1] = True
        elif word == "limit":
            sites.append(LimitSite(start, ordered[-1]))
        after_order = word == "order"
    return tuple(sites)


def probe_columns(sql: str, site: LimitSite) -> str:
    """SQL that SQLite refuses to compile, naming how many result columns the site's query has."""
    return _spliced(sql, [(site, str(_FAR_TERM))])


def columns_named(error: str) -> int:
    """The number of columns in the refusal of a probe; 0 where it says something else."""
    found = _RANGE.search(error)
    return int(found.group(1)) if found else 0


def break_ties(sql: str, columns: Sequence[tuple[LimitSite, int]], *, direction: str) -> str:
    """`sql` with the ties at each site broken by its `n` result columns, `ASC` or `DESC`."""
    terms = [
        (site, ", ".join(f"{n} COLLATE BINARY {direction}" for n in range(1, count + 1)))
        for site, count in columns
        if count
    ]
    return _spliced(sql, terms)


def _spliced(sql: str, terms: Sequence[tuple[LimitSite, str]]) -> str:
    for site, text in sorted(terms, reverse=True):
        lead = ", " if site.ordered else " ORDER BY "
        sql = f"{sql[: site.position]}{lead}{text} {sql[site.position :]}"
    return sql
