"""The checks in order, each a function whose name is its finding's code, with its severity."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

import msgspec

from envbuild.corpora.wording import is_placeholder
from envbuild.errors import GoldError
from envbuild.io.json_stream import decode_json
from envbuild.preflight.subjects import RANDOM_WORDS, DatabaseSubject, Draft, GoldSubject, differ
from envbuild.query.nondeterminism import (
    INSTANTS,
    PLACEHOLDERS,
    ROW_ORDERS,
    limit_sites,
    named_columns,
    pin_bare_columns,
    same_numbers,
    shuffle_ties,
)
from envbuild.records.corpus import Question, Reject
from envbuild.records.execution import Outcome, QueryResult, Row, Rows, Value
from envbuild.records.preflight import RowStatistics, Severity
from envbuild.sql.files.inspect import KeyState, find_undecodable
from envbuild.sql.gold_tables import read_gold_tables
from envbuild.sql.names import fold_name
from envbuild.sql.tokens import iter_code, unquote
from envbuild.sql.verdicts import close_rows, equal_bag_within

# Checks of a corpus as a whole: too few rows, and what never became a database or question.


def few_rows(corpus: str, rows: RowStatistics) -> Iterator[Draft]:
    """Rows per table cross a threshold."""
    if rows.verdict is not None:
        yield Draft(
            corpus=corpus,
            code="few_rows",
            message="; ".join(rows.reasons),
            count=rows.tables,
            severity=rows.verdict,
        )


def refused(corpus: str, rejects: Iterable[Reject]) -> Iterator[Draft]:
    """Databases and questions of the source that were not taken."""
    for reject in rejects:
        if reject.kind in ("database", "question"):
            yield Draft(
                corpus=corpus,
                code=f"{reject.kind}_refused",
                message=f"{reject.kind} not taken: {reject.reason}",
                db_id=reject.db_id,
                question_id=reject.question_id,
                example=reject.detail,
            )


# Checks of a database's questions as texts: placeholders, and questions asked twice.


_SPACE = re.compile(r"\s+")


def placeholder_phrasing(database: DatabaseSubject) -> Iterator[Draft]:
    """Questions whose text asks nothing: `...`, `<string>`, `**Moderate**`, an empty text."""
    found: dict[str, list[Question]] = defaultdict(list)
    for question in database.given.questions:
        if is_placeholder(question.question):
            found[question.question_id].append(question)
    for question_id, phrasings in sorted(found.items()):
        styles = ", ".join(sorted({q.style for q in phrasings if q.style}))
        yield _about(
            database,
            "placeholder_phrasing",
            f"the question is a placeholder{f' ({styles})' if styles else ''}",
            question_id,
            count=len(phrasings),
            example=phrasings[0].question or "(empty)",
        )


def duplicate_questions(database: DatabaseSubject) -> Iterator[Draft]:
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
        draft = _about(
            database, "duplicate_questions", message, first, count=len(golds) - 1, example=text
        )
        yield draft if several else draft.as_note()


def _folded(text: str) -> str:
    return _SPACE.sub(" ", text).strip().rstrip(" ?.!;").casefold()


def _about(
    database: DatabaseSubject,
    code: str,
    message: str,
    question_id: str,
    *,
    count: int,
    example: str,
) -> Draft:
    return Draft(
        corpus=database.given.corpus,
        db_id=database.given.row.db_id,
        code=code,
        message=message,
        question_id=question_id,
        count=count,
        example=example,
    )


# Checks of one database: what was lost on the way in, keys that dangle, text nobody can read.


TAKEN_AFTER_ALL = ("transpiled", "folded", "clause_left_out")
"""Reasons of rejects that only say how a statement was taken, or without what."""


def unreadable_database(database: DatabaseSubject) -> Iterator[Draft]:
    """The file is no SQLite database, or a damaged one."""
    if database.given.row_counts is None:
        yield database.finding("unreadable_database", database.given.unreadable)


def no_rows(database: DatabaseSubject) -> Iterator[Draft]:
    """Every table is empty, so nearly every query gets the same result."""
    counts = database.given.row_counts
    if counts is not None and not any(counts.values()):
        tables = plural(len(counts), "table", "tables")
        yield database.finding("no_rows", f"none of its {tables} holds a row", count=len(counts))


def ddl_refused(database: DatabaseSubject) -> Iterator[Draft]:
    """Statements of the schema that SQLite refused: what they declare is missing."""
    for reject in database.given.rejects:
        if reject.kind == "statement":
            taken = reject.reason in TAKEN_AFTER_ALL
            draft = database.finding(
                "ddl_refused",
                f"a statement of the schema was {reject.reason}, then taken"
                if taken
                else f"SQLite refused a statement of the schema: {reject.reason}",
                table=reject.table,
                example=reject.detail,
            )
            yield draft.as_note() if taken else draft


def rows_refused(database: DatabaseSubject) -> Iterator[Draft]:
    """Payload rows that are not in the database, by table and reason."""
    for table, reason, count, example in _counted(database, "row"):
        message = f"rows not taken into the table: {reason}"
        yield database.finding("rows_refused", message, table=table, count=count, example=example)


def cells_changed(database: DatabaseSubject) -> Iterator[Draft]:
    """Payload cells that could not be stored as they were, by table and reason."""
    for table, reason, count, example in _counted(database, "cell"):
        message = f"cells not stored as they were: {reason}"
        yield database.finding("cells_changed", message, table=table, count=count, example=example)


def missing_parents(database: DatabaseSubject) -> Iterator[Draft]:
    """Foreign keys that point at a table the database does not have."""
    for check in database.key_checks:
        if check.state is KeyState.MISSING_PARENT:
            yield database.finding(
                "missing_parents",
                f"{check.render()}: there is no table {check.parent}",
                table=check.child,
                count=max(1, check.orphans),
                example=check.example,
            )


def fk_mismatch(database: DatabaseSubject) -> Iterator[Draft]:
    """Foreign keys whose parent columns are missing or not unique: SQLite cannot check them."""
    for check in database.key_checks:
        if check.state is KeyState.MISMATCH:
            yield database.finding(
                "fk_mismatch",
                f"{check.render()}: the parent columns are not a unique key",
                table=check.child,
                example=check.render(),
            )


def fk_orphans(database: DatabaseSubject) -> Iterator[Draft]:
    """Rows whose foreign key value no parent row has: joins along the key lose them."""
    for check in database.key_checks:
        if check.state is KeyState.CHECKED and check.orphans:
            rows = plural(check.orphans, "row points", "rows point")
            yield database.finding(
                "fk_orphans",
                f"{check.render()}: {rows} at no parent",
                table=check.child,
                count=check.orphans,
                example=check.example,
            )


def undecodable_text(database: DatabaseSubject) -> Iterator[Draft]:
    """Text cells that are not UTF-8: readers in Python fail on them or show something else."""
    if database.connection is None or database.given.decodable:
        return
    filled = [table for table, rows in (database.given.row_counts or {}).items() if rows]
    for column in find_undecodable(database.connection, filled):
        cells = plural(column.cells, "cell is", "cells are")
        yield database.finding(
            "undecodable_text",
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


def gold_error(gold: GoldSubject) -> Iterator[Draft]:
    """SQLite refuses the gold query, or it is not one statement: it cannot be scored."""
    if gold.result.outcome in (Outcome.ERROR, Outcome.INVALID):
        why = f"{gold.result.error}{_keyword_hint(gold)}"
        yield gold.finding("gold_error", f"the gold query fails: {why}")


def gold_timeout(gold: GoldSubject) -> Iterator[Draft]:
    """The gold query spends its budget before it ends."""
    if gold.result.outcome is Outcome.TIMEOUT:
        limits = gold.database.limits
        budget = f"{limits.vm_steps:,} steps of SQLite's machine, {limits.seconds:g} s"
        yield gold.finding("gold_timeout", f"{gold.result.error}; it may use {budget}")


def gold_denied(gold: GoldSubject) -> Iterator[Draft]:
    """The gold query asks for more than reading its database."""
    if gold.result.outcome is Outcome.DENIED:
        yield gold.finding("gold_denied", "the gold query asks for more than reading")


def gold_truncated(gold: GoldSubject) -> Iterator[Draft]:
    """The gold result is larger than what may be fetched: it cannot be scored."""
    if gold.result.outcome is Outcome.TRUNCATED:
        limits = gold.database.limits
        most = f"{limits.rows:,} rows or {limits.result_bytes:,} bytes"
        yield gold.finding(
            "gold_truncated",
            f"the gold result goes on after {len(gold.result.rows):,} rows; it may have {most}",
        )


def empty_gold(gold: GoldSubject) -> Iterator[Draft]:
    """The gold result is empty: every query that returns nothing is rewarded."""
    if gold.result.ok and not gold.result.rows:
        yield gold.finding("empty_gold", "the gold result has no row")


def trivial_gold(gold: GoldSubject) -> Iterator[Draft]:
    """The gold result is one cell that many wrong queries return too.

    Or one row of aggregates over no rows.
    """
    if not gold.result.ok or len(gold.result.rows) != 1:
        return
    (row,) = gold.result.rows
    if all(cell in (TRIVIAL_CELLS if len(row) == 1 else NOTHING_AGGREGATED) for cell in row):
        shown = ", ".join("NULL" if cell is None else repr(cell) for cell in row)
        what = "cell" if len(row) == 1 else "row"
        yield gold.finding("trivial_gold", f"the gold result is the single {what} {shown}")


def stored_result_differs(gold: GoldSubject) -> Iterator[Draft]:
    """The corpus's stored result is not what the query gives here: evidence, never gold."""
    for question in gold.questions:
        if question.stored_result is None or not gold.result.ok:
            continue
        stored = parse_stored(question.stored_result)
        if stored is None:
            yield gold.finding(
                "stored_result_differs",
                "the stored result is no list of rows",
                example=question.stored_result,
            )
        elif not agrees(gold.result.rows, stored):
            ours = len(gold.result.rows)
            yield gold.finding(
                "stored_result_differs",
                f"{ours} rows here, {len(stored)} stored, and they do not agree",
            )
        return  # phrasings of one question share the stored result


def gold_not_in_relevant_tables(gold: GoldSubject) -> Iterator[Draft]:
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
        yield gold.finding(
            "gold_not_in_relevant_tables", f"reads {', '.join(missing)}, not stated as relevant"
        )


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
        return equal_bag_within(rows, stored, 0.0)
    if len(stored) < STORED_ROWS or len(rows) < len(stored):
        return False
    exact = Counter(rows)
    rest = []
    for row in stored:
        if exact[row]:
            exact[row] -= 1
        else:
            rest.append(row)
    spare = list(exact.elements()) if rest else []
    return all(_taken(spare, row) for row in rest)


def _taken(spare: list[Row], row: Row) -> bool:
    """Removes one close row from `spare`; False where there is none."""
    for position, candidate in enumerate(spare):
        if close_rows(candidate, row, 0.0):
            del spare[position]
            return True
    return False


# Golds whose result the data do not determine: another engine, day or run gives another one.
#
# Each check runs the query again under one changed condition and compares the rows as multisets.
# A rerun that does not end well says nothing. What chance or the clock decides is not looked at
# for anything else: its reruns differ for that reason alone.


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


DatabaseCheck = Callable[[DatabaseSubject], Iterator[Draft]]
GoldCheck = Callable[[GoldSubject], Iterator[Draft]]

DATABASE_CHECKS: tuple[DatabaseCheck, ...] = (
    unreadable_database,
    no_rows,
    ddl_refused,
    rows_refused,
    cells_changed,
    missing_parents,
    fk_mismatch,
    fk_orphans,
    undecodable_text,
    placeholder_phrasing,
    duplicate_questions,
)
GOLD_CHECKS: tuple[GoldCheck, ...] = (
    gold_error,
    gold_timeout,
    gold_denied,
    gold_truncated,
    empty_gold,
    trivial_gold,
    tie_sensitive_gold,
    scan_order_gold,
    clock_gold,
    random_gold,
    bare_group_column,
    number_as_text,
    stored_result_differs,
    gold_not_in_relevant_tables,
)

UNDETERMINED = frozenset(
    ("tie_sensitive_gold", "scan_order_gold", "clock_gold", "random_gold", "bare_group_column")
)
"""Codes (notes apart) of golds whose result the data do not determine."""

SEVERITIES: dict[str, Severity] = {
    "few_rows": Severity.ERROR,
    "corpus_signal": Severity.ERROR,
    "no_signal": Severity.ERROR,
    "weak_signal": Severity.WARNING,
    "database_refused": Severity.ERROR,
    "question_refused": Severity.WARNING,
    "crashed_database": Severity.ERROR,
    "unreadable_database": Severity.ERROR,
    "no_rows": Severity.ERROR,
    "ddl_refused": Severity.ERROR,
    "rows_refused": Severity.WARNING,
    "cells_changed": Severity.NOTE,
    "missing_parents": Severity.WARNING,
    "fk_mismatch": Severity.WARNING,
    "fk_orphans": Severity.WARNING,
    "undecodable_text": Severity.WARNING,
    "placeholder_phrasing": Severity.WARNING,
    "duplicate_questions": Severity.WARNING,
    "gold_error": Severity.ERROR,
    "gold_timeout": Severity.ERROR,
    "gold_denied": Severity.ERROR,
    "gold_truncated": Severity.ERROR,
    "empty_gold": Severity.ERROR,
    "trivial_gold": Severity.WARNING,
    "tie_sensitive_gold": Severity.WARNING,
    "scan_order_gold": Severity.WARNING,
    "clock_gold": Severity.WARNING,
    "random_gold": Severity.WARNING,
    "bare_group_column": Severity.WARNING,
    "number_as_text": Severity.WARNING,
    "stored_result_differs": Severity.NOTE,
    "gold_not_in_relevant_tables": Severity.WARNING,
}
"""Every code with the severity of its findings (a finding may be milder), in the report's order.

The first seven are about the corpus as a whole and no check of one database gives them."""

EVALUATION_SEVERITIES: dict[str, Severity] = {"empty_gold": Severity.WARNING}
"""Codes that are milder where the split is for evaluation.

81 to 89 % of real wrong queries get an empty gold's result (SIGNAL 4), so training on one pays
for luck; a published benchmark asks such questions on purpose, and nothing is learnt from them."""

_CORPUS_MEANINGS = {
    "few_rows": "Rows per table cross a threshold: wrong queries get the gold's result by luck.",
    "corpus_signal": "On average the databases tell golds from too few of their wrong neighbours.",
    "no_signal": "The database tells the gold query from few of its wrong neighbours.",
    "weak_signal": "The database tells the gold query from only some of its wrong neighbours.",
    "database_refused": "Databases of the source that could not be built.",
    "question_refused": "Questions of the source that were not taken.",
    "crashed_database": "Checking the database ended the worker process.",
}


def severity_of(draft: Draft) -> Severity:
    """What the draft says itself, else what its code says for its split."""
    if draft.severity is not None:
        return draft.severity
    if draft.evaluation:
        return EVALUATION_SEVERITIES.get(draft.code, SEVERITIES[draft.code])
    return SEVERITIES[draft.code]


def meaning_of(code: str) -> str:
    """What a code says, in one sentence: the first line of its check's docstring."""
    for check in (*DATABASE_CHECKS, *GOLD_CHECKS):
        if check.__name__ == code:
            return (check.__doc__ or "").strip().splitlines()[0]
    return _CORPUS_MEANINGS[code]
