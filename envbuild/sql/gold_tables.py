"""The base tables a gold query reads, as SQLite's own compiler tells them (CONTRACT 4).

`EXPLAIN sql` compiles and stops; meanwhile the authorizer hears of every column that is read, views
followed, CTE and alias names never mentioned. Three things need care:

- A source of which no column is read (`COUNT(*)`, `EXISTS (SELECT 1 FROM t)`) is told as the name
  written, without a database, and that may be a CTE's name although a table is called the same.
  Then the root pages the program opens decide.
- Columns matched by USING and NATURAL are not told at all: there the names behind FROM and JOIN
  count too.
- A cached statement is not compiled again and tells nothing: `can_cache=False`.
"""

import apsw
import msgspec

from envbuild.errors import GoldError
from envbuild.sql.from_names import cte_names, iter_from_names
from envbuild.sql.names import declared_spelling, fold_name
from envbuild.sql.tokens import iter_code, split_statements

_NAMES = "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('table', 'view')"
_ROOTS = "SELECT rootpage, tbl_name FROM sqlite_schema WHERE rootpage > 0"
_OPENS = frozenset(("OpenRead", "ReopenIdx"))
_CATALOGUE = ("sqlite_master", "sqlite_schema", "pragma_", "dbstat")
_HARMLESS = frozenset((apsw.SQLITE_SELECT, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE))


class GoldTables(msgspec.Struct, frozen=True, kw_only=True):
    """What one query reads; every name in declared spelling, sorted."""

    tables: tuple[str, ...]
    """Base tables, those behind views included."""
    views: tuple[str, ...] = ()
    """Views it goes through."""
    columns: tuple[tuple[str, str], ...] = ()
    """(table or view, column) pairs it names; a rowid is told as `ROWID`."""
    reads_schema: bool = False
    """It looks at sqlite_schema, so its result hangs on which tables exist."""


def read_gold_tables(connection: apsw.Connection, sql: str) -> GoldTables:
    """The tables and views of `connection`'s main database that `sql` reads.

    Nothing is executed. Raises GoldError where it does not compile (`gold_error`), wants more than
    to read (`gold_denied`) or is not one statement (`gold_invalid`).
    """
    with GoldTableReader(connection) as reader:
        return reader.read(sql)


class GoldTableReader:
    """Asks one connection about many queries; its authorizer is the reader's until it is closed."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        names = [(kind, str(name), str(sql)) for kind, name, sql in connection.execute(_NAMES)]
        own = [entry for entry in names if not entry[1].lower().startswith("sqlite_")]
        self.tables = declared_spelling(name for kind, name, _ in own if kind == "table")
        self.views = declared_spelling(name for kind, name, _ in own if kind == "view")
        self.view_sql = {name: sql for kind, name, sql in own if kind == "view"}
        self.roots: dict[object, str] | None = None
        self.told: set[tuple[str, str, str | None, str | None]] = set()
        self.cursor = connection.cursor()
        self.previous = connection.authorizer
        connection.authorizer = self._authorize

    def read(self, sql: str) -> GoldTables:
        """As `read_gold_tables`."""
        if ";" in sql.rstrip("; \n\r\t") and len(split_statements(sql)) > 1:
            raise GoldError("gold_invalid", "more than one statement")
        self.told.clear()
        try:
            program = self.cursor.execute("EXPLAIN " + sql, can_cache=False)
            return self._resolve(sql, program)
        except apsw.AuthError:
            raise GoldError("gold_denied", "it does more than read") from None
        except (apsw.Error, RecursionError, ValueError) as e:
            if not split_statements(sql):
                raise GoldError("gold_invalid", "no statement") from None
            raise GoldError("gold_error", str(e).removeprefix("SQLError: ")) from e
        finally:
            self.cursor.close(True)
            self.cursor = self.connection.cursor()

    def close(self) -> None:
        """Gives the connection its own authorizer back."""
        self.connection.authorizer = self.previous

    def __enter__(self) -> "GoldTableReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _authorize(
        self,
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,
        by: str | None,
    ) -> int:
        if action == apsw.SQLITE_READ:
            self.told.add((first or "", second or "", database, by))
            return apsw.SQLITE_OK
        return apsw.SQLITE_OK if action in _HARMLESS else apsw.SQLITE_DENY

    def _resolve(self, sql: str, program: apsw.Cursor) -> GoldTables:
        tables: set[str] = set()
        views: set[str] = set()
        columns: set[tuple[str, str]] = set()
        unsure: set[str] = set()
        for name, column, database, by in self.told:
            folded = fold_name(name)
            if by is not None and (view := self.views.get(fold_name(by))):
                views.add(view)
            if table := self.tables.get(folded):
                (tables if database else unsure).add(table)
                if column:
                    columns.add((table, column))
            elif view := self.views.get(folded):
                views.add(view)
        texts = [sql, *(self.view_sql[view] for view in sorted(views))]
        for text in texts:  # grows while it is walked: views behind views
            self._add_silent(text, texts, views, unsure)
        unsure -= tables
        if unsure and any("with" in text.lower() for text in texts):
            ctes = frozenset[str]().union(*(cte_names(list(iter_code(text))) for text in texts))
            doubtful = {name for name in unsure if fold_name(name) in ctes}
            unsure -= doubtful
            tables |= doubtful & self._opened(program) if doubtful else set()
        return GoldTables(
            tables=tuple(sorted(tables | unsure)),
            views=tuple(sorted(views)),
            columns=tuple(sorted(columns)),
            reads_schema=any(word in text.lower() for text in texts for word in _CATALOGUE),
        )

    def _add_silent(self, text: str, texts: list[str], views: set[str], unsure: set[str]) -> None:
        """Adds what `text` reads through USING or NATURAL alone."""
        lowered = text.lower()
        if "using" not in lowered and "natural" not in lowered:
            return
        for name in iter_from_names(text):
            if table := self.tables.get(name):
                unsure.add(table)
            elif (view := self.views.get(name)) and view not in views:
                views.add(view)
                texts.append(self.view_sql[view])

    def _opened(self, program: apsw.Cursor) -> set[str]:
        """Tables whose b-tree, or an index's, the compiled program opens."""
        pages = {row[3] for row in program if row[1] in _OPENS}
        if self.roots is None:
            self.roots = {page: str(table) for page, table in self.connection.execute(_ROOTS)}
        return {self.roots[page] for page in pages if page in self.roots}
