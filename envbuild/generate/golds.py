"""Golds and their mutants on the growing database: which are emptied, tied or told apart."""

import re
from collections.abc import Iterator, Sequence

from envbuild.errors import GoldError
from envbuild.generate.scenarios import BoundFrame, Values
from envbuild.generate.tables import TableRows, Workspace
from envbuild.query.nondeterminism import (
    ReorderedSession,
    break_ties,
    break_window_ties,
)
from envbuild.records.execution import QueryResult, Value
from envbuild.records.signal import Site
from envbuild.signal.mutants import Mutant
from envbuild.signal.score import SIGNAL_LIMITS, try_mutants
from envbuild.sql.connect import Connection, iter_rows, quote_name
from envbuild.sql.execution.session import Session
from envbuild.sql.gold_tables import GoldTableReader
from envbuild.sql.verdicts import equal_bag

MAX_TIED = 40
"""Groups looked at when a tie is broken; more singles than that are left tied."""
MAX_ROWS_KEPT = 1000
"""Rows of a gold's result that is kept until its tables change."""
_PLAIN = ("=", "!=", "<", "<=", ">", ">=")
_RANDOM = re.compile("random", re.IGNORECASE)


class GoldMonitor:
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
        self.filled = {sql for sql, rows in self.before.items() if rows > 0}
        """Golds that have rows: none of them may be emptied."""

    def _read_tables(self, golds: Sequence[str]) -> Iterator[tuple[str, list[TableRows]]]:
        """The tables whose rows alone decide a gold's result; none for one that is not known."""
        tables = self.workspace.tables
        with GoldTableReader(self.workspace.connection) as reader:
            for sql in golds:
                try:
                    names = [name.lower() for name in reader.read(sql).tables]
                except GoldError:
                    continue
                if all(name in tables for name in names):
                    yield sql, [tables[name] for name in names]

    def run(self, sql: str) -> QueryResult:
        """The query's result now; the connection may be written again afterwards."""
        return self.session.run(sql)

    def gold(self, sql: str) -> QueryResult:
        """A gold's result now."""
        if sql not in self._tables:
            return self.run(sql)
        states = tuple([table.state for table in self._tables[sql]])
        known = self._results.get(sql)
        if known is not None and known[0] == states:
            return known[1]
        result = self.run(sql)
        if len(result.rows) <= MAX_ROWS_KEPT:
            self._results[sql] = states, result
        return result

    def rows(self, sql: str) -> int:
        """Rows of a gold's result; -1 where it does not run to its end."""
        result = self.gold(sql)
        return len(result.rows) if result.ok else -1

    def emptied(self) -> list[str]:
        """The golds that had rows and have none now, or ran and no longer end.

        Where there is none, golds that gained rows join those that may not be emptied.
        """
        counts = {sql: self.rows(sql) for sql in self.before}
        lost = [
            sql
            for sql, rows in counts.items()
            if (rows <= 0 and sql in self.filled) or rows < 0 <= self.before[sql]
        ]
        if not lost:
            self.filled = {sql for sql, rows in counts.items() if rows > 0}
        return lost

    def alive(
        self, sql: str, mutants: Sequence[Mutant], positions: Sequence[int]
    ) -> tuple[int, ...]:
        """Which of these mutants have the gold's own result now; all where the gold has none."""
        gold = self.gold(sql)
        trial = try_mutants(sql, mutants, session=self.session, only=positions, gold=gold)
        return trial.alive if trial.gold.ok else tuple(positions)

    def rests_on_tie(self, sql: str) -> bool:
        """True where breaking LIMIT's ties upwards and downwards gives two results (SIGNAL 4)."""
        # most golds have no LIMIT, and parsing costs more than running one
        ties = break_ties(sql, self.workspace.schema) if "limit" in sql.lower() else None
        if ties is None:
            return False
        up, down = self.run(ties.upwards), self.run(ties.downwards)
        return up.ok and down.ok and not equal_bag(up.rows, down.rows)

    def counts_through_ties(self, sql: str) -> bool:
        """True where a window gives rows that tie in its ORDER BY other values in another order."""
        broken = break_window_ties(sql) if "over" in sql.lower() else None
        if broken is None or _RANDOM.search(sql):
            return False
        if self._reordered is None:
            self._reordered = ReorderedSession(self.workspace.connection, limits=SIGNAL_LIMITS)
        return self._reordered.varies(broken)


def tied_groups(bound: BoundFrame, connection: Connection) -> list[Values]:
    """The groups that share the extreme count under a frame's `ORDER BY count(*) LIMIT`.

    All but the one that should win for `asc`, the winner alone for `desc`; empty without a tie.
    """
    frame, over = bound.frame, bound.frame.counted_over
    keys = [site for site in frame.group if site[0] in over]
    if not frame.counted or not keys:
        return []

    def named(site: Site) -> str:
        fillable = bound.column(site)[1] is not None
        return f"t{site[0]}.{quote_name(site[1])}" if fillable else "NULL"

    listed = ", ".join(map(named, keys))
    sources = ", ".join(f"{quote_name(bound.tables[at].table.name)} AS t{at}" for at in over)
    tests = [
        f"{named(left)} = {named(right)}"
        for left, right in frame.same
        if left[0] in over and right[0] in over
    ]
    literals: list[Value] = []
    for clause in frame.clauses:
        if len(clause) == 1 and len(clause[0]) == 1:
            condition = clause[0][0]
            known = condition.site[0] in over and condition.values and condition.expression == "v"
            if condition.op in _PLAIN and known:
                tests.append(f"{named(condition.site)} {condition.op} ?")
                literals.append(condition.values[0])
    sql = (
        f"SELECT count(*), {listed} FROM {sources} WHERE {' AND '.join(tests) or 'true'}"
        f" GROUP BY {listed} ORDER BY count(*) {frame.counted}, {listed} LIMIT {MAX_TIED}"
    )
    names = [bound.class_of(site) for site in keys]
    found = list(iter_rows(connection, sql, tuple(literals)))
    tied = [
        dict(zip(names, values, strict=True)) for count, *values in found if count == found[0][0]
    ]
    if len(tied) < 2:
        return []
    return tied[:1] if frame.counted == "desc" else tied[1:]
