"""The sessions on which a database's gold queries run: as it is, reordered, at other times."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from envbuild.records.corpus import Schema
from envbuild.records.execution import Limits, QueryResult
from envbuild.sql.executor import Session
from envbuild.sql.undetermined.conditions import (
    ClockedSession,
    ReorderedSession,
    open_reversed,
    open_seeded,
)
from envbuild.sql.undetermined.text_numbers import open_as_numbers

S = TypeVar("S", Session, ClockedSession, ReorderedSession)


class GoldSessions:
    """The sessions a gold query may be run on, each opened when first asked for."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._closers: list[Callable[[], None]] = []
        self._numbers: Session | None = None

    @cached_property
    def plain(self) -> Session:
        """The database as it is."""
        return self._closed_at_end(Session.open_file(self._path, limits=self._limits))

    @cached_property
    def backwards(self) -> Session:
        """Unordered scans walk from the other end."""
        return self._closed_at_end(open_reversed(self._path, limits=self._limits))

    @cached_property
    def ordered(self) -> ReorderedSession:
        """`ORDER BY random()` puts rows in an order of one's choice."""
        return self._closed_at_end(
            ReorderedSession.open(self._path, tables=False, limits=self._limits)
        )

    @cached_property
    def rearranged(self) -> ReorderedSession:
        """Every table hands out its rows in an order of one's choice."""
        return self._closed_at_end(
            ReorderedSession.open(self._path, tables=True, limits=self._limits)
        )

    @cached_property
    def clocked(self) -> ClockedSession:
        """The clock stands where it is told to."""
        return self._closed_at_end(ClockedSession(self._path, limits=self._limits))

    def as_numbers(self, schema: Schema, columns: dict[str, tuple[str, ...]]) -> Session:
        """Numbers stored as text are read as numbers."""
        if self._numbers is None:
            opened = open_as_numbers(self._path, schema, columns, limits=self._limits)
            self._numbers = self._closed_at_end(opened)
        return self._numbers

    def run_seeded(self, sql: str, seed: int) -> QueryResult:
        """The result when random() follows from `seed`."""
        with open_seeded(self._path, seed=seed, limits=self._limits) as session:
            return session.run(sql)

    def close(self) -> None:
        """Closes whatever was opened."""
        while self._closers:
            self._closers.pop()()

    def _closed_at_end(self, session: S) -> S:
        self._closers.append(session.close)
        return session
