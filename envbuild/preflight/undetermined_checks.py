"""Golds whose result the data do not determine: another engine, day or run gives another one.

Each check runs the query again under one changed condition and compares the rows as multisets.
A rerun that does not end well says nothing. What chance or the clock decides is not looked at for
anything else: its reruns differ for that reason alone.
"""

from collections.abc import Iterator

from envbuild.preflight.subjects import Draft, GoldSubject
from envbuild.records.execution import QueryResult
from envbuild.sql.bare_columns import pin_bare_columns
from envbuild.sql.conditions import INSTANTS
from envbuild.sql.names import fold_name
from envbuild.sql.tie_breaks import LimitSite, break_ties, columns_named, limit_sites, probe_columns
from envbuild.sql.tokens import Kind, iter_code
from envbuild.sql.tolerance import equal_bag_within
from envbuild.sql.verdicts import equal_bag

SEEDS = tuple(range(12))
"""Seeds under which a query that calls random() runs."""
CLOCK_WORDS = frozenset(
    (
        *("date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff"),
        *("current_date", "current_time", "current_timestamp"),
    )
)
RANDOM_WORDS = frozenset(("random", "randomblob"))
_GROUP_WORDS = frozenset(("group", "count", "sum", "avg", "min", "max", "total", "group_concat"))


def tie_sensitive_gold(gold: GoldSubject) -> Iterator[Draft]:
    """A LIMIT cuts through rows that tie, or through rows in no order at all."""
    sites = limit_sites(gold.sql) if _repeats(gold) else ()
    columns = [(site, _columns_of(gold, site)) for site in sites]
    if not any(count for _, count in columns):
        return
    run = gold.database.sessions.plain.run
    up, down = (run(break_ties(gold.sql, columns, direction=d)) for d in ("ASC", "DESC"))
    if _differ(up, down):
        ordered = all(site.ordered for site, _ in columns)
        why = "rows tie under its ORDER BY" if ordered else "it has no ORDER BY"
        yield gold.finding("tie_sensitive_gold", f"LIMIT keeps another set of rows: {why}")


def scan_order_gold(gold: GoldSubject) -> Iterator[Draft]:
    """The result changes when SQLite walks its tables from the other end."""
    if not (_repeats(gold) and gold.result.rows):
        return
    other = gold.database.sessions.backwards.run(gold.sql)
    if not _differ(gold.result, other):
        return
    if equal_bag_within(gold.result.rows, other.rows, 0.0):
        message = "the last digits of a float change with the order of summing"
        yield gold.finding("scan_order_gold", message).as_note()
    else:
        yield gold.finding("scan_order_gold", "tables scanned backwards give another result")


def clock_gold(gold: GoldSubject) -> Iterator[Draft]:
    """The result changes with the day or the hour on which the query runs."""
    moved, read = _clock_effect(gold)
    if moved:
        message = f"at {INSTANTS[0]} and at {moved} it gives different results"
        yield gold.finding("clock_gold", message)
    elif read:
        message = "it reads the clock, though no result on these rows depends on it"
        yield gold.finding("clock_gold", message).as_note()


def random_gold(gold: GoldSubject) -> Iterator[Draft]:
    """The result is drawn by lot."""
    if not (gold.result.ok and _says(gold.sql, RANDOM_WORDS)):
        return
    first, *others = (gold.database.sessions.run_seeded(gold.sql, seed) for seed in SEEDS)
    if any(_differ(first, other) for other in others):
        yield gold.finding("random_gold", "random() decides the result")


def bare_group_column(gold: GoldSubject) -> Iterator[Draft]:
    """A column outside GROUP BY and outside any aggregate has several values in a group."""
    schema = gold.database.schema
    if schema is None or not (
        gold.result.rows and _says(gold.sql, _GROUP_WORDS) and _repeats(gold)
    ):
        return
    names = frozenset(fold_name(column.name) for t in schema.tables for column in t.columns)
    pinned = pin_bare_columns(gold.sql, names)
    if pinned is None:
        return
    least, greatest = (gold.database.sessions.plain.run(sql) for sql in pinned)
    if _differ(least, greatest):
        message = "SQLite picks any row's value for a column outside GROUP BY"
        yield gold.finding("bare_group_column", message)


def _clock_effect(gold: GoldSubject) -> tuple[str, bool]:
    """(an instant at which the result is another one, or nothing; whether the clock was read)."""
    if not (gold.result.ok and _says(gold.sql, CLOCK_WORDS)):
        return "", False
    clocked = gold.database.sessions.clocked
    first = clocked.run_at(INSTANTS[0], gold.sql)
    read = clocked.read_clock
    for instant in INSTANTS[1:] if read else ():
        if _differ(first, clocked.run_at(instant, gold.sql)):
            return instant, True
    return "", read


def _repeats(gold: GoldSubject) -> bool:
    """True where neither chance nor the clock keeps a second run from giving the same result."""
    return gold.result.ok and not _says(gold.sql, RANDOM_WORDS) and not _clock_effect(gold)[0]


def _columns_of(gold: GoldSubject, site: LimitSite) -> int:
    return columns_named(gold.database.sessions.plain.run(probe_columns(gold.sql, site)).error)


def _differ(one: QueryResult, other: QueryResult) -> bool:
    """True where both ran to their end and gave different multisets of rows."""
    return one.ok and other.ok and not equal_bag(other.rows, one.rows)


def _says(sql: str, words: frozenset[str]) -> bool:
    """Whether one of these stands in the query as a bare word."""
    folded = sql.lower()
    return any(word in folded for word in words) and any(
        kind is Kind.WORD and folded[start:end] in words for kind, start, end in iter_code(sql)
    )
