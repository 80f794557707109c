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
    skips: bool
    """It skips rows: OFFSET, or a comma."""


def limit_sites(sql: str) -> tuple[LimitSite, ...]:
    """Every LIMIT of `sql`, inner queries' and compound ones' too, in text order."""
    sites: list[LimitSite] = []
    # The last LIMIT at each depth, one of which an OFFSET or a comma may belong to.
    open_limits: list[int | None] = [None]
    # One query (or compound of them) per pair of parentheses; windows never hold a LIMIT.
    ordered = [False]
    after_order = False
    for kind, start, end in iter_code(sql):
        text = sql[start:end]
        word = text.lower() if kind is Kind.WORD else ""
        if text == "(":
            ordered.append(False)
            open_limits.append(None)
        elif text == ")" and len(ordered) > 1:
            ordered.pop()
            open_limits.pop()
        elif after_order and word == "by":
            ordered[-1] = True
        elif word == "limit":
            open_limits[-1] = len(sites)
            sites.append(LimitSite(start, ordered[-1], False))
        elif (word == "offset" or text == ",") and (at := open_limits[-1]) is not None:
            sites[at] = sites[at]._replace(skips=True)
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


def shuffle_ties(sql: str, sites: Sequence[LimitSite]) -> str | None:
    """`sql` with the ties of LIMITs that skip rows in the order of `random()`; None without one.

    What lies between the skipped rows and the cut may be the same from both ends, and another
    in between. A LIMIT of several queries together (UNION) takes no such term: that SQL fails.
    """
    terms = [(site, "random()") for site in sites if site.skips]
    return _spliced(sql, terms) if terms else None


def _spliced(sql: str, terms: Sequence[tuple[LimitSite, str]]) -> str:
    for site, text in sorted(terms, reverse=True):
        lead = ", " if site.ordered else " ORDER BY "
        sql = f"{sql[: site.position]}{lead}{text} {sql[site.position :]}"
    return sql
