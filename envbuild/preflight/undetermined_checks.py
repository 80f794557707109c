"""Golds whose result the data do not determine: another engine, day or run gives another one.

Each check runs the query again under one changed condition and compares the rows as multisets.
A rerun that does not end well says nothing. What chance or the clock decides is not looked at for
anything else: its reruns differ for that reason alone.
"""

from collections.abc import Iterator

from envbuild.preflight.drafts import Draft
from envbuild.preflight.subjects import RANDOM_WORDS, GoldSubject, differ
from envbuild.sql.comparing.tolerance import equal_bag_within
from envbuild.sql.names import fold_name
from envbuild.sql.undetermined.bare_columns import pin_bare_columns
from envbuild.sql.undetermined.conditions import INSTANTS
from envbuild.sql.undetermined.tie_breaks import (
    LimitSite,
    break_ties,
    columns_named,
    limit_sites,
    probe_columns,
)

SEEDS = tuple(range(12))
"""Seeds under which a query that calls random() runs."""
_GROUP_WORDS = frozenset(("group", "count", "sum", "avg", "min", "max", "total", "group_concat"))


def tie_sensitive_gold(gold: GoldSubject) -> Iterator[Draft]:
    """A LIMIT cuts through rows that tie, or through rows in no order at all."""
    sites = limit_sites(gold.sql) if "limit" in gold.words and gold.repeats else ()
    columns = [(site, _columns_of(gold, site)) for site in sites]
    if not any(count for _, count in columns):
        return
    run = gold.database.sessions.plain.run
    up, down = (run(break_ties(gold.sql, columns, direction=d)) for d in ("ASC", "DESC"))
    if differ(up, down):
        ordered = all(site.ordered for site, _ in columns)
        why = "rows tie under its ORDER BY" if ordered else "it has no ORDER BY"
        yield gold.finding("tie_sensitive_gold", f"LIMIT keeps another set of rows: {why}")


def scan_order_gold(gold: GoldSubject) -> Iterator[Draft]:
    """The result changes when SQLite walks its tables from the other end."""
    if not (gold.repeats and gold.result.rows):
        return
    other = gold.database.sessions.backwards.run(gold.sql)
    if not differ(gold.result, other):
        return
    if equal_bag_within(gold.result.rows, other.rows, 0.0):
        message = "the last digits of a float change with the order of summing"
        yield gold.finding("scan_order_gold", message).as_note()
    else:
        yield gold.finding("scan_order_gold", "tables scanned backwards give another result")


def clock_gold(gold: GoldSubject) -> Iterator[Draft]:
    """The result changes with the day or the hour on which the query runs."""
    read, moved = gold.clock_effect
    if moved:
        message = f"at {INSTANTS[0]} and at {moved} it gives different results"
        yield gold.finding("clock_gold", message)
    elif read:
        message = "it reads the clock, though no result on these rows depends on it"
        yield gold.finding("clock_gold", message).as_note()


def random_gold(gold: GoldSubject) -> Iterator[Draft]:
    """The result is drawn by lot."""
    if not (gold.result.ok and gold.words & RANDOM_WORDS):
        return
    first, *others = (gold.database.sessions.run_seeded(gold.sql, seed) for seed in SEEDS)
    if any(differ(first, other) for other in others):
        yield gold.finding("random_gold", "random() decides the result")


def bare_group_column(gold: GoldSubject) -> Iterator[Draft]:
    """A column outside GROUP BY and outside any aggregate has several values in a group."""
    schema = gold.database.schema
    if schema is None or not (gold.result.rows and gold.words & _GROUP_WORDS and gold.repeats):
        return
    names = frozenset(fold_name(column.name) for t in schema.tables for column in t.columns)
    pinned = pin_bare_columns(gold.sql, names)
    if pinned is None:
        return
    least, greatest = (gold.database.sessions.plain.run(sql) for sql in pinned)
    if differ(least, greatest):
        message = "SQLite picks any row's value for a column outside GROUP BY"
        yield gold.finding("bare_group_column", message)


def _columns_of(gold: GoldSubject, site: LimitSite) -> int:
    return columns_named(gold.database.sessions.plain.run(probe_columns(gold.sql, site)).error)
