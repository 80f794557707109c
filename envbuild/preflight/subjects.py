"""What a check looks at: one database, or one distinct gold query of it, on sessions of its own."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from envbuild.errors import CorpusError
from envbuild.query.nondeterminism import (
    INSTANTS,
    ClockedSession,
    ReorderedSession,
    TieBreaks,
    break_ties,
    break_window_ties,
    number_columns,
    open_as_numbers,
    open_reversed,
)
from envbuild.records.corpus import DatabaseRow, Question, Reject, Schema
from envbuild.records.execution import Limits, Outcome, QueryResult
from envbuild.schema.read import read_schema
from envbuild.sql.connect import Connection, SQLiteError, open_read_only
from envbuild.sql.execution.session import Session
from envbuild.sql.files.inspect import KeyCheck, check_foreign_keys
from envbuild.sql.tokens import Kind, iter_code
from envbuild.sql.verdicts import equal_bag

CLOCK_WORDS = frozenset(
    (
        *("date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff"),
        *("current_date", "current_time", "current_timestamp"),
    )
)
RANDOM_WORDS = frozenset(("random", "randomblob"))


class DatabaseInput(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to check one database, wherever the worker runs."""

    corpus: str
    row: DatabaseRow
    path: Path
    counts: dict[str, int] | None
    """Rows by table; None where the file is no readable database."""
    unreadable: str = ""
    """Why it is not."""
    rejects: tuple[Reject, ...] = ()
    questions: tuple[Question, ...] = ()


class _Closable(Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=_Closable)


class DatabaseSubject:
    """One database with what the corpus says about it; close it after use.

    The sessions on which its gold queries run are opened when first asked for.
    """

    def __init__(self, given: DatabaseInput, limits: Limits) -> None:
        self.given, self.limits = given, limits
        self._open = ExitStack()
        self.connection: Connection | None = (
            None if given.counts is None else self._closed_at_end(open_read_only(given.path))
        )

    @cached_property
    def schema(self) -> Schema | None:
        """The database's schema; None where it cannot be read."""
        return read_schema(self.connection) if self.connection else None

    @cached_property
    def key_checks(self) -> list[KeyCheck]:
        """Every declared foreign key and the rows that break it."""
        return check_foreign_keys(self.connection) if self.connection else []

    @cached_property
    def number_columns(self) -> dict[str, tuple[str, ...]]:
        """Columns of numbers that are stored as text, by table."""
        if self.connection is None or self.schema is None:
            return {}
        try:
            return number_columns(self.connection, self.schema)
        except (SQLiteError, UnicodeDecodeError):
            return {}

    @cached_property
    def plain(self) -> Session:
        """The database as it is."""
        return self._closed_at_end(Session.open_file(self.given.path, limits=self.limits))

    @cached_property
    def backwards(self) -> Session:
        """Unordered scans walk from the other end."""
        return self._closed_at_end(open_reversed(self.given.path, limits=self.limits))

    @cached_property
    def ordered(self) -> ReorderedSession:
        """`ORDER BY random()` puts rows in an order of one's choice."""
        return self._reordered(tables=False)

    @cached_property
    def rearranged(self) -> ReorderedSession:
        """Every table hands out its rows in an order of one's choice."""
        return self._reordered(tables=True)

    @cached_property
    def clocked(self) -> ClockedSession:
        """The clock stands where it is told to."""
        return self._closed_at_end(ClockedSession(self.given.path, limits=self.limits))

    @cached_property
    def as_numbers(self) -> Session:
        """Numbers stored as text are read as numbers."""
        schema = self.schema or Schema(tables=(), foreign_keys=())
        columns = self.number_columns
        return self._closed_at_end(
            open_as_numbers(self.given.path, schema, columns, limits=self.limits)
        )

    def golds(self) -> Iterator["GoldSubject"]:
        """Each distinct gold query with the questions that share it."""
        if self.connection is None:
            return
        by_sql: dict[str, list[Question]] = defaultdict(list)
        for question in self.given.questions:
            by_sql[question.gold_sql].append(question)
        for sql, questions in by_sql.items():
            yield GoldSubject(self, sql, tuple(questions))

    def close(self) -> None:
        """Releases every connection."""
        self._open.close()

    def _reordered(self, *, tables: bool) -> ReorderedSession:
        connection = open_read_only(self.given.path)
        opened = ReorderedSession(connection, tables=tables, limits=self.limits)
        return self._closed_at_end(opened)

    def _closed_at_end(self, opened: S) -> S:
        self._open.callback(opened.close)
        return opened


class ClockEffect(NamedTuple):
    """What the clock does to a query's result."""

    read: bool
    """The query asks for the time."""
    moved_at: str
    """An instant at which the result is another one than at the first; empty where none is."""


class GoldSubject:
    """One distinct gold query of a database and the questions that share it."""

    def __init__(
        self, database: DatabaseSubject, sql: str, questions: tuple[Question, ...]
    ) -> None:
        self.database, self.sql, self.questions = database, sql, questions

    @cached_property
    def result(self) -> QueryResult:
        """What the query gives on its database; an error where that cannot be opened again."""
        try:
            return self.database.plain.run(self.sql)
        except (SQLiteError, CorpusError) as e:
            return QueryResult(outcome=Outcome.ERROR, error=str(e))

    @cached_property
    def words(self) -> frozenset[str]:
        """The bare words of the query, in lower case: keywords, functions, unquoted names."""
        tokens = iter_code(self.sql.lower())
        return frozenset(token.text for token in tokens if token.kind is Kind.WORD)

    @cached_property
    def clock_effect(self) -> ClockEffect:
        """Whether the query reads the clock, and whether its result follows it."""
        if not (self.result.ok and self.words & CLOCK_WORDS):
            return ClockEffect(False, "")
        clocked = self.database.clocked
        first = clocked.run_at(INSTANTS[0], self.sql)
        if not clocked.read_clock:
            return ClockEffect(False, "")
        later = (at for at in INSTANTS[1:] if differ(first, clocked.run_at(at, self.sql)))
        return ClockEffect(True, next(later, ""))

    @cached_property
    def tie_breaks(self) -> TieBreaks | None:
        """The query with the ties at its LIMITs broken; None where it has none."""
        schema = self.database.schema if "limit" in self.words else None
        return break_ties(self.sql, schema) if schema else None

    @cached_property
    def window_ties(self) -> bool:
        """True where the result changes with the order of rows that tie inside a window.

        By more than the last digits of a float: `scan_order_gold` notes those.
        """
        windows = "over" in self.words and self.repeats
        sql = self.tie_breaks.upwards if self.tie_breaks else self.sql
        broken = break_window_ties(sql) if windows else None
        return broken is not None and self.database.ordered.varies(broken)

    @property
    def repeats(self) -> bool:
        """True where neither chance nor the clock keeps a second run from the same result."""
        chancy = self.words & RANDOM_WORDS
        return self.result.ok and not chancy and not self.clock_effect.moved_at


def differ(one: QueryResult, other: QueryResult) -> bool:
    """True where both ran to their end and gave different multisets of rows."""
    return one.ok and other.ok and not equal_bag(other.rows, one.rows)
