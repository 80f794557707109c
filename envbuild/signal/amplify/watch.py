"""Watching golds while rows are added: how many rows each returns, and which one was emptied."""

from collections.abc import Sequence

from envbuild.records.execution import Limits, QueryResult
from envbuild.signal.amplify.tables import Workspace
from envbuild.signal.mutants import Mutant
from envbuild.signal.score import try_mutants
from envbuild.sql.executor import Session

LIMITS = Limits(vm_steps=8_000_000, seconds=10.0, rows=20_000)
"""What a gold may use on generated rows (SIGNAL 7)."""


class Watch:
    """The golds of one database, run by the one executor on the growing database."""

    def __init__(self, workspace: Workspace, golds: Sequence[str]) -> None:
        self.session = Session(workspace.connection, limits=LIMITS)
        self.before = {sql: self.rows(sql) for sql in golds}
        self.filled = [sql for sql, rows in self.before.items() if rows > 0]
        """Golds that have rows: none of them may be emptied."""

    def run(self, sql: str) -> QueryResult:
        """The query's result now; the connection may be written again afterwards."""
        return self.session.run(sql)

    def alive(
        self, sql: str, mutants: Sequence[Mutant], positions: Sequence[int]
    ) -> tuple[int, ...]:
        """Which of these mutants have the gold's own result now; all where the gold has none."""
        trial = try_mutants(sql, mutants, session=self.session, limits=LIMITS, only=positions)
        return trial.alive if trial.gold.ok else tuple(positions)

    def rows(self, sql: str) -> int:
        """Rows of a gold's result; -1 where it does not run to its end."""
        result = self.run(sql)
        return len(result.rows) if result.ok else -1

    def emptied(self) -> list[str]:
        """The golds that had rows and have none now, or ran and no longer end.

        Golds that gained rows join the watched.
        """
        counts = {sql: self.rows(sql) for sql in self.before}
        filled = set(self.filled)
        lost = [
            sql
            for sql, rows in counts.items()
            if (rows <= 0 and sql in filled) or rows < 0 <= self.before[sql]
        ]
        if not lost:
            self.filled = [sql for sql, rows in counts.items() if rows > 0]
        return lost
