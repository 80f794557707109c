"""Whether SQL compiles on a schema, asked of an empty database with that schema."""

from collections.abc import Iterable

import apsw

from envbuild.records.corpus import Schema


class Compiler:
    """An empty in-memory database; double quotes name identifiers only, as a mutant means them."""

    def __init__(self, statements: Iterable[str]) -> None:
        self._connection = apsw.Connection(":memory:")
        self._connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 1)
        # an application's own collation: nothing is ever compared here
        self._connection.collation_needed(lambda c, name: c.create_collation(name, lambda *_: 0))
        for statement in statements:
            try:
                self._connection.execute(statement)
            except apsw.Error:
                continue  # a virtual table's module, a view over it: its queries do not compile
        self._connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)

    @classmethod
    def of_schema(cls, schema: Schema) -> "Compiler":
        """The compiler for a schema's tables and views."""
        return cls([table.sql for table in schema.tables] + list(schema.view_sql))

    def compiles(self, sql: str) -> bool:
        """True where SQLite prepares the statement on this schema."""
        try:
            for _ in self._connection.execute(f"EXPLAIN {sql}", can_cache=False):
                break
        except (apsw.Error, RecursionError, UnicodeEncodeError):
            return False
        return True
