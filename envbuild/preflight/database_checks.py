"""Checks of one database: what was lost on the way in, keys that dangle, text nobody can read."""

from collections import Counter
from collections.abc import Iterator

from envbuild.preflight.subjects import DatabaseSubject, Draft
from envbuild.sql.foreign_key_check import KeyState
from envbuild.sql.undecodable import find_undecodable


def unreadable_database(database: DatabaseSubject) -> Iterator[Draft]:
    """The file is no SQLite database, or a damaged one."""
    if database.given.row_counts is None:
        yield database.finding("unreadable_database", database.given.unreadable)


def no_rows(database: DatabaseSubject) -> Iterator[Draft]:
    """Every table is empty, so nearly every query gets the same result."""
    counts = database.given.row_counts
    if counts is not None and not any(counts.values()):
        tables = f"{len(counts)} table{'s' * (len(counts) != 1)}"
        yield database.finding("no_rows", f"none of its {tables} holds a row", count=len(counts))


def ddl_refused(database: DatabaseSubject) -> Iterator[Draft]:
    """Statements SQLite refused, also after a translation: their tables are missing."""
    for reject in database.given.rejects:
        if reject.kind == "statement":
            yield database.finding(
                "ddl_refused",
                f"SQLite refused a statement of the schema: {reject.reason}",
                table=reject.table,
                example=reject.detail,
            )


def rows_refused(database: DatabaseSubject) -> Iterator[Draft]:
    """Payload rows that are not in the database, by table and reason."""
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for reject in database.given.rejects:
        if reject.kind == "row":
            key = (reject.table, reject.reason)
            counts[key] += 1
            examples.setdefault(key, reject.detail)
    for (table, reason), count in sorted(counts.items()):
        yield database.finding(
            "rows_refused",
            f"rows not taken into the table: {reason}",
            table=table,
            count=count,
            example=examples[table, reason],
        )


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
            yield database.finding(
                "fk_orphans",
                f"{check.render()}: {check.orphans} rows point at no parent row",
                table=check.child,
                count=check.orphans,
                example=check.example,
            )


def undecodable_text(database: DatabaseSubject) -> Iterator[Draft]:
    """Text cells that are not UTF-8: readers in Python fail on them or show something else."""
    if database.connection is None or _known_decodable(database):
        return
    for column in find_undecodable(database.connection):
        yield database.finding(
            "undecodable_text",
            f"{column.table}.{column.column}: {column.cells} cells are not UTF-8",
            table=column.table,
            count=column.cells,
            example=f"x'{column.example}'",
        )


def _known_decodable(database: DatabaseSubject) -> bool:
    """True where materialize looked at every cell of these very bytes and found none."""
    tables = database.given.tables
    unchanged = database.given.path.stat().st_size == database.given.row.bytes
    return bool(tables) and unchanged and not any(table.undecodable_cells for table in tables)
