"""Checks of one gold query on its own database: does it run, and does its result say anything."""

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from envbuild.errors import GoldError
from envbuild.io.json_stream import decode_json
from envbuild.preflight.drafts import Draft
from envbuild.preflight.subjects import GoldSubject
from envbuild.records.execution import Outcome, Row, Rows, Value
from envbuild.sql.comparing.tolerance import close_rows, equal_bag_within
from envbuild.sql.gold_tables import read_gold_tables
from envbuild.sql.names import fold_name

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
