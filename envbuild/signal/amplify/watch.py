"""Watching golds while rows are added: how many rows each returns, and which one was emptied."""

import re
from collections.abc import Iterator, Sequence

from envbuild.errors import GoldError
from envbuild.records.execution import QueryResult
from envbuild.signal.amplify.tables import TableRows, Workspace
from envbuild.signal.mutants import Mutant
from envbuild.signal.score import SIGNAL_LIMITS, try_mutants
from envbuild.sql.executor import Session
from envbuild.sql.gold_tables import GoldTableReader
from envbuild.sql.undetermined.conditions import ReorderedSession
from envbuild.sql.undetermined.windows import break_window_ties

_RANDOM = re.compile("random", re.IGNORECASE)
MOST_ROWS_KEPT = 1000
"""Rows of a gold's result that is kept until its tables change."""


class Watch:
    """The golds of one database, run by the one executor on the growing database.

    A gold is run again only where a table that it reads has other rows than the last time.
    """

    def __init__(self, workspace: Workspace, golds: Sequence[str]) -> None:
        self.workspace = workspace
        self.session = Session(workspace.connection, limits=SIGNAL_LIMITS)
        self._reordered: ReorderedSession | None = None
        self._tables = dict(self._read_tables(golds))
        self._results: dict[str, tuple[tuple[int, ...], QueryResult]] = {}
        """Gold to its last result, and the states of its tables then."""
        self.before = {sql: self.rows(sql) for sql in golds}
        self.filled = [sql for sql, rows in self.before.items() if rows > 0]
        """Golds that have rows: none of them may be emptied."""

    def run(self, sql: str) -> QueryResult:
        """The query's result now; the connection may be written again afterwards."""
        return self.session.run(sql)

    def gold(self, sql: str) -> QueryResult:
        """A watched gold's result now."""
        tables = self._tables.get(sql)
        if tables is None:
            return self.run(sql)
        states = tuple([table.state for table in tables])
        known = self._results.get(sql)
        if known is not None and known[0] == states:
            return known[1]
        result = self.run(sql)
        if len(result.rows) <= MOST_ROWS_KEPT:
            self._results[sql] = states, result
        return result

    def counts_through_ties(self, sql: str) -> bool:
        """True where a window gives rows that tie in its ORDER BY other values in another order."""
        spliced = break_window_ties(sql) if "over" in sql.lower() else None
        if spliced is None or _RANDOM.search(sql):
            return False
        if self._reordered is None:
            self._reordered = ReorderedSession(self.workspace.connection, limits=SIGNAL_LIMITS)
        return self._reordered.varies(spliced)

    def alive(
        self, sql: str, mutants: Sequence[Mutant], positions: Sequence[int]
    ) -> tuple[int, ...]:
        """Which of these mutants have the gold's own result now; all where the gold has none."""
        trial = try_mutants(
            sql,
            mutants,
            session=self.session,
            limits=SIGNAL_LIMITS,
            only=positions,
            gold=self.gold(sql),
        )
        return trial.alive if trial.gold.ok else tuple(positions)

    def rows(self, sql: str) -> int:
        """Rows of a gold's result; -1 where it does not run to its end."""
        result = self.gold(sql)
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

    def _read_tables(self, golds: Sequence[str]) -> Iterator[tuple[str, list[TableRows]]]:
        """The tables whose rows alone decide a gold's result; none for one that is not known."""
        with GoldTableReader(self.workspace.connection) as reader:
            for sql in golds:
                try:
                    names = reader.read(sql).tables
                except GoldError:
                    continue
                tables = [self.workspace.tables.get(name.lower()) for name in names]
                known = [table for table in tables if table is not None]
                if len(known) == len(tables):
                    yield sql, known
