"""A synthetic database with its rows, its DDL and its SQLite file, and questions about it."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from envbuild.corpora.synthetic.columns import SampleTable, iter_rows
from envbuild.records.execution import Value
from envbuild.sql.connect import quote_name
from envbuild.sql.executor import Session
from envbuild.sql.files.insert import insert_rows, insert_sql
from envbuild.sql.files.new_database import finish, open_new, run_statement
from envbuild.sql.names import fold_name
from envbuild.sql.text.tokens import iter_code, unquote


class SampleDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """One database before it is written in some layout."""

    db_id: str
    tables: tuple[SampleTable, ...]
    rows: dict[str, list[dict[str, Value]]]
    """Table -> its rows."""

    @property
    def statements(self) -> list[str]:
        """One CREATE TABLE statement a table."""
        keys = {table.name: table.key for table in self.tables}
        return [_create_table(table, keys) for table in self.tables]

    @property
    def ddl(self) -> str:
        """All statements, as SQaLe writes them."""
        return ";\n".join(self.statements) + ";"


class SampleQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question about a sample database, in no layout yet."""

    db_id: str
    text: str
    sql: str
    difficulty: str = ""
    style: str = ""
    evidence: str = ""
    placeholder: str = ""
    """A SQaLe phrasing that was never written: it reads `...`."""


def make_database(
    db_id: str, tables: Sequence[SampleTable], *, seed: str, orphans: Sequence[str] = ()
) -> SampleDatabase:
    """The database with rows drawn by `seed`; each of `orphans` is `table.column count`.

    That many of the column's cells point past the last row of the parent.
    """
    generator = random.Random(seed)
    sizes = {table.name: table.rows for table in tables}
    rows = {table.name: list(iter_rows(table, sizes, generator)) for table in tables}
    for orphan in orphans:
        place, count = orphan.split()
        name, column = place.split(".")
        for row in generator.sample(rows[name], min(int(count), len(rows[name]))):
            row[column] = 900_000 + generator.randrange(1000)
    return SampleDatabase(db_id=db_id, tables=tuple(tables), rows=rows)


def write_sqlite(database: SampleDatabase, path: Path) -> None:
    """Writes the database as a SQLite file, orphans and all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    connection = open_new(path)
    try:
        for statement in database.statements:
            run_statement(connection, statement)
        for table in database.tables:
            names = [column.name for column in table.columns]
            rows = [tuple(row.values()) for row in database.rows[table.name]]
            for refusal in insert_rows(
                connection, insert_sql(table.name, names), rows, mend=lambda row: row
            ):
                raise ValueError(f"{table.name}: {refusal.detail}")
        finish(connection)
    finally:
        connection.close()


@contextmanager
def open_sample(database: SampleDatabase, folder: Path) -> Iterator[Session]:
    """A session on the database, in a file of `folder` that is removed afterwards."""
    path = folder / "sample.sqlite"
    write_sqlite(database, path)
    try:
        with Session.open_file(path) as session:
            yield session
    finally:
        path.unlink()


def tables_named(sql: str, database: SampleDatabase) -> list[str]:
    """The database's tables whose names stand in `sql`, in declared order."""
    words = {fold_name(unquote(sql[start:end])) for _, start, end in iter_code(sql)}
    return [table.name for table in database.tables if fold_name(table.name) in words]


def _create_table(table: SampleTable, keys: dict[str, str]) -> str:
    lines = [
        f"{quote_name(c.name)} {c.type}" + (" PRIMARY KEY" if c.rule == "pk" else "")
        for c in table.columns
    ]
    lines += [
        f"FOREIGN KEY ({quote_name(c.name)}) "
        f"REFERENCES {quote_name(c.parent)} ({quote_name(keys[c.parent])})"
        for c in table.columns
        if c.parent
    ]
    return f"CREATE TABLE {quote_name(table.name)} (\n  " + ",\n  ".join(lines) + "\n)"
