"""Checks of one database: what was lost on the way in, keys that dangle, text nobody can read."""

from collections import Counter
from collections.abc import Iterator

from envbuild.preflight.drafts import Draft
from envbuild.preflight.subjects import DatabaseSubject
from envbuild.sql.files.foreign_key_check import KeyState
from envbuild.sql.files.undecodable import find_undecodable

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
