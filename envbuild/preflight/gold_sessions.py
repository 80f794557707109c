"""The sessions on which a database's gold queries run: as it is, reordered, at other times."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from envbuild.records.execution import Limits, QueryResult
from envbuild.sql.executor import Session
from envbuild.sql.undetermined.conditions import (
    ClockedSession,
    RowOrder,
    open_ordered,
    open_rearranged,
    open_reversed,
    open_seeded,
)


class GoldSessions:
    """The sessions a gold query may be run on, each opened when first asked for."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._closers: list[Callable[[], None]] = []

    @cached_property
    def plain(self) -> Session:
        """The database as it is."""
        return self._kept(Session.open_file(self._path, limits=self._limits))

    @cached_property
    def backwards(self) -> Session:
        """Unordered scans walk from the other end."""
        return self._kept(open_reversed(self._path, limits=self._limits))

    @cached_property
    def ordered(self) -> tuple[Session, ...]:
        """`ORDER BY random()` puts rows in one order after the other."""
        return tuple(
            self._kept(open_ordered(self._path, order, limits=self._limits)) for order in RowOrder
        )

    @cached_property
    def rearranged(self) -> tuple[Session, ...]:
        """Every table hands out its rows in another order than its own."""
        return tuple(
            self._kept(open_rearranged(self._path, order, limits=self._limits))
            for order in (RowOrder.REVERSED, RowOrder.SHUFFLED)
        )

    @cached_property
    def clocked(self) -> ClockedSession:
        """The clock stands where it is told to."""
        session = ClockedSession(self._path, limits=self._limits)
        self._closers.append(session.close)
        return session

    def run_seeded(self, sql: str, seed: int) -> QueryResult:
        """The result when random() follows from `seed`."""
        with open_seeded(self._path, seed=seed, limits=self._limits) as session:
            return session.run(sql)

    def close(self) -> None:
        """Closes whatever was opened."""
        while self._closers:
            self._closers.pop()()

    def _kept(self, session: Session) -> Session:
        self._closers.append(session.close)
        return session
