"""Golds whose result the data do not determine: another engine, day or run gives another one.

Each check runs the query again under one changed condition and compares the rows as multisets.
A rerun that does not end well says nothing. What chance or the clock decides is not looked at for
anything else: its reruns differ for that reason alone.
"""

from collections.abc import Iterator

from envbuild.preflight.drafts import Draft
from envbuild.preflight.subjects import RANDOM_WORDS, GoldSubject, differ
from envbuild.records.execution import QueryResult
from envbuild.sql.comparing.tolerance import equal_bag_within
from envbuild.sql.names import fold_name
from envbuild.sql.text.tokens import iter_code, unquote
from envbuild.sql.undetermined.bare_columns import pin_bare_columns
from envbuild.sql.undetermined.conditions import INSTANTS, ROW_ORDERS
from envbuild.sql.undetermined.text_numbers import PLACEHOLDERS, named_columns, same_numbers
from envbuild.sql.undetermined.tie_breaks import limit_sites, shuffle_ties

SEEDS = tuple(range(12))
"""Seeds under which a query that calls random() runs."""
_GROUP_WORDS = frozenset(("group", "count", "sum", "avg", "min", "max", "total", "group_concat"))
_TEXT_WORDS = frozenset(
    (
        *("like", "glob", "substr", "substring", "instr", "replace", "length", "||"),
        *("printf", "format", "trim", "ltrim", "rtrim", "group_concat"),
    )
)
_ORDER_WORDS = frozenset(
    (
        *("over", "min", "max", "group_concat", "string_agg"),
        *("json_group_array", "json_group_object", "jsonb_group_array", "jsonb_group_object"),
    )
)
"""Windows, aggregates that join rows, and those that pick one row of several for other columns."""


def tie_sensitive_gold(gold: GoldSubject) -> Iterator[Draft]:
    """A LIMIT cuts through rows that tie or have no order, or a window counts through such rows."""
    if not gold.repeats:
        return
    up, down = gold.limits_broken("ASC"), gold.limits_broken("DESC")
    shuffled = shuffle_ties(gold.sql, limit_sites(gold.sql)) if up != down else None
    if (up != down and differ(*map(gold.database.sessions.plain.run, (up, down)))) or (
        shuffled is not None and gold.database.sessions.ordered.varies(shuffled)
    ):
        ordered = all(site.ordered for site in limit_sites(gold.sql))
        why = "rows tie under its ORDER BY" if ordered else "it has no ORDER BY"
        yield gold.finding("tie_sensitive_gold", f"LIMIT keeps another set of rows: {why}")
    elif gold.window_ties:
        message = "a window function gives rows that tie in its ORDER BY other values"
        yield gold.finding("tie_sensitive_gold", message)


def scan_order_gold(gold: GoldSubject) -> Iterator[Draft]:
    """The result changes when the tables hand out their rows in another order."""
    if not (gold.repeats and gold.result.rows):
        return
    backwards = gold.database.sessions.backwards.run(gold.sql)
    if differ(gold.result, backwards):
        yield _other_order(gold, gold.result, backwards, "tables scanned backwards")
    elif _may_follow_row_order(gold) and not gold.window_ties:
        ordered = gold.limits_broken("ASC")
        first = gold.result if ordered == gold.sql else gold.database.sessions.plain.run(ordered)
        for order in ROW_ORDERS[1:]:
            other = gold.database.sessions.rearranged.run_in(order, ordered)
            if differ(first, other):
                yield _other_order(gold, first, other, "the same rows in another order")
                return


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


def number_as_text(gold: GoldSubject) -> Iterator[Draft]:
    """Numbers stored as text are compared as text: read as numbers, they give another answer."""
    database = gold.database
    columns = database.number_columns
    texts = [unquote(gold.sql[start:end]) for _, start, end in iter_code(gold.sql)]
    folded = {fold_name(text) for text in texts}
    if not gold.repeats or not folded & named_columns(columns):
        return
    # a gold that takes such a text apart, or names what stands for no value, means it so
    if folded & (_TEXT_WORDS | set(PLACEHOLDERS) - set("-?.")) or database.schema is None:
        return
    read = database.sessions.as_numbers(database.schema, columns)
    tried = {gold.sql: None, gold.limits_broken("ASC"): None, gold.limits_broken("DESC"): None}
    here = [database.sessions.plain.run(sql) for sql in tried]
    there = [read.run(sql) for sql in tried]
    if not all(result.ok for result in (*here, *there)):
        return
    if not any(same_numbers(one.rows, other.rows) for one in here for other in there):
        shown = f"{_shown(here[0])}, read as numbers {_shown(there[0])}"
        yield gold.finding("number_as_text", f"numbers stored as text give {shown}")


def _shown(result: QueryResult) -> str:
    if len(result.rows) != 1:
        return f"{len(result.rows):,} rows"
    return ", ".join("NULL" if cell is None else repr(cell) for cell in result.rows[0])


def _may_follow_row_order(gold: GoldSubject) -> bool:
    """Whether a function or an inner query of the gold may show in which order rows came."""
    inner = "order" in gold.words and gold.sql.lower().count("select") > 1
    return inner or bool(gold.words & _ORDER_WORDS)


def _other_order(gold: GoldSubject, one: QueryResult, other: QueryResult, change: str) -> Draft:
    if equal_bag_within(one.rows, other.rows, 0.0):
        message = "the last digits of a float change with the order of summing"
        return gold.finding("scan_order_gold", message).as_note()
    return gold.finding("scan_order_gold", f"{change} give another result")
