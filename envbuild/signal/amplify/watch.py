"""Watching golds while rows are added: how many rows each returns, and which one was emptied."""

from collections.abc import Sequence

from envbuild.records.execution import Limits, QueryResult
from envbuild.signal.amplify.tables import Workspace
from envbuild.sql.executor import Session

LIMITS = Limits(vm_steps=8_000_000, seconds=10.0, rows=20_000)
"""What a gold may use on generated rows (SIGNAL 7)."""


class Watch:
    """The golds of one database, run by the one executor on the growing database."""

    def __init__(self, workspace: Workspace, golds: Sequence[str]) -> None:
        self.connection = workspace.connection
        self.session = Session(self.connection, limits=LIMITS)
        self.before = {sql: self.rows(sql) for sql in golds}
        self.filled = [sql for sql, rows in self.before.items() if rows > 0]
        """Golds that have rows: none of them may be emptied."""

    def run(self, sql: str) -> QueryResult:
        """The query's result now; the connection may be written again afterwards."""
        kept = self.connection.authorizer
        try:
            return self.session.run(sql)
        finally:
            self.connection.authorizer = kept

    def rows(self, sql: str) -> int:
        """Rows of a gold's result; -1 where it does not run to its end."""
        result = self.run(sql)
        return len(result.rows) if result.ok else -1

    def emptied(self) -> bool:
        """True where a gold that had rows has none now; golds that gained rows join the watched."""
        counts = {sql: self.rows(sql) for sql in self.before}
        if any(counts[sql] == 0 for sql in self.filled):
            return True
        self.filled = [sql for sql, rows in counts.items() if rows > 0 or sql in set(self.filled)]
        return False
