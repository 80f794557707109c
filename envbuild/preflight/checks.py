"""The checks in order, each a function whose name is its finding's code, with its severity."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import chain

import msgspec

from envbuild.corpora.wording import is_placeholder
from envbuild.errors import GoldError
from envbuild.io.json_stream import decode_json
from envbuild.preflight.subjects import RANDOM_WORDS, DatabaseSubject, GoldSubject, differ
from envbuild.query.nondeterminism import (
    INSTANTS,
    PLACEHOLDERS,
    ROW_ORDERS,
    pin_bare_columns,
    same_numbers,
)
from envbuild.records.corpus import Question
from envbuild.records.execution import Outcome, QueryResult, Rows, Value
from envbuild.records.preflight import Severity
from envbuild.sql.files.inspect import KeyState, find_undecodable
from envbuild.sql.gold_tables import read_gold_tables
from envbuild.sql.names import fold_name
from envbuild.sql.tokens import iter_code, unquote
from envbuild.sql.verdicts import close_rows, equal_bag


class Found(msgspec.Struct, frozen=True):
    """What a check has to say; where it looked, and how grave that is, its table knows."""

    message: str
    table: str = ""
    question_id: str = ""
    count: int = 1
    """How many cases it stands for."""
    example: str = ""
    severity: Severity | None = None
    """Instead of the check's own."""


# Checks of a database's questions as texts: placeholders, and questions asked twice.


_SPACE = re.compile(r"\s+")


def placeholder_phrasing(database: DatabaseSubject) -> Iterator[Found]:
    """Questions whose text asks nothing: `...`, `<string>`, `**Moderate**`, an empty text."""
    found: dict[str, list[Question]] = defaultdict(list)
    for question in database.given.questions:
        if is_placeholder(question.question):
            found[question.question_id].append(question)
    for question_id, phrasings in sorted(found.items()):
        styles = ", ".join(sorted({q.style for q in phrasings if q.style}))
        yield Found(
            f"the question is a placeholder{f' ({styles})' if styles else ''}",
            question_id=question_id,
            count=len(phrasings),
            example=phrasings[0].question or "(empty)",
        )


def duplicate_questions(database: DatabaseSubject) -> Iterator[Found]:
    """The same text asked twice of one database; with two different golds one of them is wrong."""
    asked: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for question in database.given.questions:
        if not is_placeholder(question.question):
            key = (_folded(question.question), _folded(question.evidence))
            asked[key].setdefault(question.question_id, question.gold_sql)
    for (text, _), golds in sorted(asked.items()):
        if len(golds) < 2:
            continue
        first = next(iter(golds))
        several = len({_folded(sql) for sql in golds.values()}) > 1
        others = ", ".join(list(golds)[1:6])
        message = f"asked again as {others}, " + (
            "with other gold SQL" if several else "with the same gold SQL"
        )
        yield Found(
            message,
            question_id=first,
            count=len(golds) - 1,
            example=text,
            severity=None if several else Severity.NOTE,
        )


def _folded(text: str) -> str:
    return _SPACE.sub(" ", text).strip().rstrip(" ?.!;").casefold()


# Checks of one database: what was lost on the way in, keys that dangle, text nobody can read.


TAKEN_AFTER_ALL = ("transpiled", "folded", "clause_left_out")
"""Reasons of rejects that only say how a statement was taken, or without what."""


def unreadable_database(database: DatabaseSubject) -> Iterator[Found]:
    """The file is no SQLite database, or a damaged one."""
    if database.given.counts is None:
        yield Found(database.given.unreadable)


def no_rows(database: DatabaseSubject) -> Iterator[Found]:
    """Every table is empty, so nearly every query gets the same result."""
    counts = database.given.counts
    if counts is not None and not any(counts.values()):
        tables = plural(len(counts), "table", "tables")
        yield Found(f"none of its {tables} holds a row", count=len(counts))


def ddl_refused(database: DatabaseSubject) -> Iterator[Found]:
    """Statements of the schema that SQLite refused: what they declare is missing."""
    for reject in database.given.rejects:
        if reject.kind == "statement":
            taken = reject.reason in TAKEN_AFTER_ALL
            yield Found(
                f"a statement of the schema was {reject.reason}, then taken"
                if taken
                else f"SQLite refused a statement of the schema: {reject.reason}",
                table=reject.table,
                example=reject.detail,
                severity=Severity.NOTE if taken else None,
            )


def rows_refused(database: DatabaseSubject) -> Iterator[Found]:
    """Payload rows that are not in the database, by table and reason."""
    for table, reason, count, example in _counted(database, "row"):
        message = f"rows not taken into the table: {reason}"
        yield Found(message, table=table, count=count, example=example)


def cells_changed(database: DatabaseSubject) -> Iterator[Found]:
    """Payload cells that could not be stored as they were, by table and reason."""
    for table, reason, count, example in _counted(database, "cell"):
        message = f"cells not stored as they were: {reason}"
        yield Found(message, table=table, count=count, example=example)


def missing_parents(database: DatabaseSubject) -> Iterator[Found]:
    """Foreign keys that point at a table the database does not have."""
    for check in database.key_checks:
        if check.state is KeyState.MISSING_PARENT:
            yield Found(
                f"{check.render()}: there is no table {check.parent}",
                table=check.child,
                count=max(1, check.orphans),
                example=check.example,
            )


def fk_mismatch(database: DatabaseSubject) -> Iterator[Found]:
    """Foreign keys whose parent columns are missing or not unique: SQLite cannot check them."""
    for check in database.key_checks:
        if check.state is KeyState.MISMATCH:
            yield Found(
                f"{check.render()}: the parent columns are not a unique key",
                table=check.child,
                example=check.render(),
            )


def fk_orphans(database: DatabaseSubject) -> Iterator[Found]:
    """Rows whose foreign key value no parent row has: joins along the key lose them."""
    for check in database.key_checks:
        if check.state is KeyState.CHECKED and check.orphans:
            rows = plural(check.orphans, "row points", "rows point")
            yield Found(
                f"{check.render()}: {rows} at no parent",
                table=check.child,
                count=check.orphans,
                example=check.example,
            )


def undecodable_text(database: DatabaseSubject) -> Iterator[Found]:
    """Text cells that are not UTF-8: readers in Python fail on them or show something else."""
    if database.connection is None:
        return
    filled = [table for table, rows in (database.given.counts or {}).items() if rows]
    for column in find_undecodable(database.connection, filled):
        cells = plural(column.cells, "cell is", "cells are")
        yield Found(
            f"{column.table}.{column.column}: {cells} not UTF-8",
            table=column.table,
            count=column.cells,
            example=f"x'{column.example}'",
        )


def _counted(database: DatabaseSubject, kind: str) -> list[tuple[str, str, int, str]]:
    """(table, reason, count, first detail) of the rejects of one kind, sorted."""
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for reject in database.given.rejects:
        if reject.kind == kind:
            counts[reject.table, reject.reason] += 1
            examples.setdefault((reject.table, reject.reason), reject.detail)
    return [(*key, count, examples[key]) for key, count in sorted(counts.items())]


def plural(count: int, one: str, many: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {one if count == 1 else many}"


# Checks of one gold query on its own database: does it run, and does its result say anything.


TRIVIAL_CELLS: tuple[Value, ...] = (None, 0, 1, "")
"""Single cells that many wrong queries return too; 0.0 and 1.0 equal 0 and 1."""
NOTHING_AGGREGATED: tuple[Value, ...] = (None, 0)
"""What aggregates return over no rows."""
STORED_ROWS = 50
"""How many rows of a result SQaLe stores."""
_NEAR = re.compile(r'near "(\w+)": syntax error')


def gold_error(gold: GoldSubject) -> Iterator[Found]:
    """SQLite refuses the gold query, or it is not one statement: it cannot be scored."""
    if gold.result.outcome in (Outcome.ERROR, Outcome.INVALID):
        why = f"{gold.result.error}{_keyword_hint(gold)}"
        yield Found(f"the gold query fails: {why}")


def gold_timeout(gold: GoldSubject) -> Iterator[Found]:
    """The gold query spends its budget before it ends."""
    if gold.result.outcome is Outcome.TIMEOUT:
        limits = gold.database.limits
        budget = f"{limits.vm_steps:,} steps of SQLite's machine, {limits.seconds:g} s"
        yield Found(f"{gold.result.error}; it may use {budget}")


def gold_denied(gold: GoldSubject) -> Iterator[Found]:
    """The gold query asks for more than reading its database."""
    if gold.result.outcome is Outcome.DENIED:
        yield Found("the gold query asks for more than reading")


def gold_truncated(gold: GoldSubject) -> Iterator[Found]:
    """The gold result is larger than what may be fetched: it cannot be scored."""
    if gold.result.outcome is Outcome.TRUNCATED:
        limits = gold.database.limits
        most = f"{limits.rows:,} rows or {limits.result_bytes:,} bytes"
        yield Found(
            f"the gold result goes on after {len(gold.result.rows):,} rows; it may have {most}",
        )


def empty_gold(gold: GoldSubject) -> Iterator[Found]:
    """The gold result is empty: every query that returns nothing is rewarded."""
    if gold.result.ok and not gold.result.rows:
        yield Found("the gold result has no row")


def trivial_gold(gold: GoldSubject) -> Iterator[Found]:
    """The gold result is one cell that many wrong queries return too.

    Or one row of aggregates over no rows.
    """
    if not gold.result.ok or len(gold.result.rows) != 1:
        return
    (row,) = gold.result.rows
    if all(cell in (TRIVIAL_CELLS if len(row) == 1 else NOTHING_AGGREGATED) for cell in row):
        shown = ", ".join("NULL" if cell is None else repr(cell) for cell in row)
        what = "cell" if len(row) == 1 else "row"
        yield Found(f"the gold result is the single {what} {shown}")


def stored_result_differs(gold: GoldSubject) -> Iterator[Found]:
    """The corpus's stored result is not what the query gives here: evidence, never gold."""
    for question in gold.questions:
        if question.stored_result is None or not gold.result.ok:
            continue
        stored = parse_stored(question.stored_result)
        if stored is None:
            yield Found(
                "the stored result is no list of rows",
                example=question.stored_result,
            )
        elif not agrees(gold.result.rows, stored):
            ours = len(gold.result.rows)
            yield Found(
                f"{ours} rows here, {len(stored)} stored, and they do not agree",
            )
        return  # phrasings of one question share the stored result


def gold_not_in_relevant_tables(gold: GoldSubject) -> Iterator[Found]:
    """The gold query reads tables that the corpus does not call relevant."""
    stated = {fold_name(name) for question in gold.questions for name in question.relevant_tables}
    connection = gold.database.connection
    if not stated or connection is None or not gold.result.ok:
        return
    try:
        read = read_gold_tables(connection, gold.sql).tables
    except GoldError:
        return  # gold_error has said so
    missing = [name for name in read if fold_name(name) not in stated]
    if missing:
        yield Found(f"reads {', '.join(missing)}, not stated as relevant")


def _keyword_hint(gold: GoldSubject) -> str:
    """What is wrong where the parser stumbles over one of the database's own names."""
    found = _NEAR.search(gold.result.error)
    schema = gold.database.schema
    if found is None or schema is None:
        return ""
    word = fold_name(found.group(1))
    names = {fold_name(c.name) for table in schema.tables for c in table.columns}
    names.update(fold_name(table.name) for table in schema.tables)
    return f" ({found.group(1)} is a name here and a keyword of SQLite: quote it)" * (word in names)


def parse_stored(text: str) -> Rows | None:
    """The rows of a stored result (a JSON list of lists or objects); None where it is none."""
    try:
        rows = decode_json(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    if not isinstance(rows, list):
        return None
    parsed = []
    for row in rows:
        cells = list(row.values()) if isinstance(row, dict) else row
        if not isinstance(cells, list):
            return None
        parsed.append(tuple(cells))
    return tuple(parsed)


def agrees(rows: Rows, stored: Rows) -> bool:
    """Whether a stored result may be the first rows of ours, as multisets of close rows.

    A longer result of ours needs the stored rows among its own, but not first: even under an
    ORDER BY ties make a prefix a matter of chance.
    """
    if len(stored) == len(rows):
        return equal_bag(rows, stored, tolerance=0.0)
    if len(stored) < STORED_ROWS or len(rows) < len(stored):
        return False
    ours, theirs = Counter(rows), Counter(stored)
    spare = list((ours - theirs).elements())
    for row in (theirs - ours).elements():
        near = next((one for one in spare if close_rows(one, row, 0.0)), None)
        if near is None:
            return False
        spare.remove(near)
    return True


# Golds whose result the data do not determine: another engine, day or run gives another one.
#
# Each check runs the query again under one changed condition and compares the rows as multisets.
# A rerun that does not end well says nothing. What chance or the clock decides is not looked at
# for anything else: its reruns differ for that reason alone.


_SHUFFLED = tuple(f"shuffled {seed}" for seed in range(12))
"""Orders in which a query that calls random() runs."""
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


def tie_sensitive_gold(gold: GoldSubject) -> Iterator[Found]:
    """A LIMIT cuts through rows that tie or have no order, or a window counts through such rows."""
    if not gold.repeats:
        return
    run, ties = gold.database.plain.run, gold.tie_breaks
    if ties and (
        differ(run(ties.upwards), run(ties.downwards))
        or (ties.shuffled and gold.database.ordered.varies(ties.shuffled))
    ):
        why = "rows tie under its ORDER BY" if ties.ordered else "it has no ORDER BY"
        yield Found(f"LIMIT keeps another set of rows: {why}")
    elif gold.window_ties:
        message = "a window function gives rows that tie in its ORDER BY other values"
        yield Found(message)


def scan_order_gold(gold: GoldSubject) -> Iterator[Found]:
    """The result changes when the tables hand out their rows in another order."""
    if not (gold.repeats and gold.result.rows):
        return
    backwards = gold.database.backwards.run(gold.sql)
    if differ(gold.result, backwards):
        yield _other_order(gold, gold.result, backwards, "tables scanned backwards")
    elif _may_follow_row_order(gold) and not gold.window_ties:
        ties = gold.tie_breaks
        ordered = ties.upwards if ties else gold.sql
        first = gold.database.plain.run(ordered) if ties else gold.result
        for order in ROW_ORDERS[1:]:
            other = gold.database.rearranged.run_in(order, ordered)
            if differ(first, other):
                yield _other_order(gold, first, other, "the same rows in another order")
                return


def clock_gold(gold: GoldSubject) -> Iterator[Found]:
    """The result changes with the day or the hour on which the query runs."""
    read, moved = gold.clock_effect
    if moved:
        message = f"at {INSTANTS[0]} and at {moved} it gives different results"
        yield Found(message)
    elif read:
        message = "it reads the clock, though no result on these rows depends on it"
        yield Found(message, severity=Severity.NOTE)


def random_gold(gold: GoldSubject) -> Iterator[Found]:
    """The result is drawn by lot."""
    if not (gold.result.ok and gold.words & RANDOM_WORDS):
        return
    first, *others = (gold.database.ordered.run_in(order, gold.sql) for order in _SHUFFLED)
    if any(differ(first, other) for other in others):
        yield Found("random() decides the result")


def bare_group_column(gold: GoldSubject) -> Iterator[Found]:
    """A column outside GROUP BY and outside any aggregate has several values in a group."""
    schema = gold.database.schema
    if schema is None or not (gold.result.rows and gold.words & _GROUP_WORDS and gold.repeats):
        return
    pinned = pin_bare_columns(gold.sql, schema)
    if pinned is None:
        return
    least, greatest = (gold.database.plain.run(sql) for sql in pinned)
    if differ(least, greatest):
        message = "SQLite picks any row's value for a column outside GROUP BY"
        yield Found(message)


def number_as_text(gold: GoldSubject) -> Iterator[Found]:
    """Numbers stored as text are compared as text: read as numbers, they give another answer."""
    database = gold.database
    columns = database.number_columns
    texts = [unquote(token.text) for token in iter_code(gold.sql)]
    folded = {fold_name(text) for text in texts}
    if not gold.repeats or not folded.intersection(map(fold_name, chain(*columns.values()))):
        return
    # a gold that takes such a text apart, or names what stands for no value, means it so
    if folded & (_TEXT_WORDS | set(PLACEHOLDERS) - set("-?.")) or database.schema is None:
        return
    read = database.as_numbers
    ties = gold.tie_breaks
    tried = (gold.sql, ties.upwards, ties.downwards) if ties else (gold.sql,)
    here = [database.plain.run(sql) for sql in tried]
    there = [read.run(sql) for sql in tried]
    if not all(result.ok for result in (*here, *there)):
        return
    if not any(same_numbers(one.rows, other.rows) for one in here for other in there):
        shown = f"{_shown(here[0])}, read as numbers {_shown(there[0])}"
        yield Found(f"numbers stored as text give {shown}")


def _shown(result: QueryResult) -> str:
    if len(result.rows) != 1:
        return f"{len(result.rows):,} rows"
    return ", ".join("NULL" if cell is None else repr(cell) for cell in result.rows[0])


def _may_follow_row_order(gold: GoldSubject) -> bool:
    """Whether a function or an inner query of the gold may show in which order rows came."""
    inner = "order" in gold.words and gold.sql.lower().count("select") > 1
    return inner or bool(gold.words & _ORDER_WORDS)


def _other_order(gold: GoldSubject, one: QueryResult, other: QueryResult, change: str) -> Found:
    if equal_bag(one.rows, other.rows, tolerance=0.0):
        message = "the last digits of a float change with the order of summing"
        return Found(message, severity=Severity.NOTE)
    return Found(f"{change} give another result")


DATABASE_CHECKS: dict[Callable[[DatabaseSubject], Iterator[Found]], Severity] = {
    unreadable_database: Severity.ERROR,
    no_rows: Severity.ERROR,
    ddl_refused: Severity.ERROR,
    rows_refused: Severity.WARNING,
    cells_changed: Severity.NOTE,
    missing_parents: Severity.WARNING,
    fk_mismatch: Severity.WARNING,
    fk_orphans: Severity.WARNING,
    undecodable_text: Severity.WARNING,
    placeholder_phrasing: Severity.WARNING,
    duplicate_questions: Severity.WARNING,
}
"""Each check of a database in order, with the severity of what it finds (which may be milder)."""

GOLD_CHECKS: dict[Callable[[GoldSubject], Iterator[Found]], Severity] = {
    gold_error: Severity.ERROR,
    gold_timeout: Severity.ERROR,
    gold_denied: Severity.ERROR,
    gold_truncated: Severity.ERROR,
    empty_gold: Severity.ERROR,
    trivial_gold: Severity.WARNING,
    tie_sensitive_gold: Severity.WARNING,
    scan_order_gold: Severity.WARNING,
    clock_gold: Severity.WARNING,
    random_gold: Severity.WARNING,
    bare_group_column: Severity.WARNING,
    number_as_text: Severity.WARNING,
    stored_result_differs: Severity.NOTE,
    gold_not_in_relevant_tables: Severity.WARNING,
}
"""Each check of a gold query, likewise."""

UNDETERMINED = frozenset(
    ("tie_sensitive_gold", "scan_order_gold", "clock_gold", "random_gold", "bare_group_column")
)
"""Codes (notes apart) of golds whose result the data do not determine."""

EVALUATION_SEVERITIES: dict[str, Severity] = {"empty_gold": Severity.WARNING}
"""Codes that are milder where the split is for evaluation.

81 to 89 % of real wrong queries get an empty gold's result (SIGNAL 4), so training on one pays
for luck; a published benchmark asks such questions on purpose, and nothing is learnt from them."""

_OTHER_CODES: dict[str, tuple[Severity, str]] = {
    "few_rows": (
        Severity.ERROR,
        "Rows per table cross a threshold: wrong queries get the gold's result by luck.",
    ),
    "corpus_signal": (
        Severity.ERROR,
        "On average the databases tell golds from too few of their wrong neighbours.",
    ),
    "no_signal": (
        Severity.ERROR,
        "The database tells the gold query from few of its wrong neighbours.",
    ),
    "weak_signal": (
        Severity.WARNING,
        "The database tells the gold query from only some of its wrong neighbours.",
    ),
    "database_refused": (Severity.ERROR, "Databases of the source that could not be built."),
    "question_refused": (Severity.WARNING, "Questions of the source that were not taken."),
    "crashed_database": (Severity.ERROR, "Checking the database ended the worker process."),
}
"""Findings about a corpus as a whole, and what no check of one database gives."""

_CHECKS = {
    check.__name__: (grave, check) for check, grave in (DATABASE_CHECKS | GOLD_CHECKS).items()
}

SEVERITIES: dict[str, Severity] = {
    code: severity for code, (severity, _) in (_OTHER_CODES | _CHECKS).items()
}
"""Every code with the severity of its findings, in the report's order."""

MEANINGS: dict[str, str] = {
    **{code: meaning for code, (_, meaning) in _OTHER_CODES.items()},
    **{code: (check.__doc__ or "").splitlines()[0] for code, (_, check) in _CHECKS.items()},
}
"""What a code says, in one sentence: the first line of its check's docstring."""
