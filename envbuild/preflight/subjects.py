"""What a check looks at: one database, or one distinct gold query of it, on sessions of its own."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from envbuild.query.nondeterminism import (
    INSTANTS,
    ClockedSession,
    LimitSite,
    ReorderedSession,
    break_ties,
    break_window_ties,
    columns_named,
    limit_sites,
    number_columns,
    open_as_numbers,
    open_reversed,
    open_seeded,
    probe_columns,
)
from envbuild.records.corpus import DatabaseRow, Question, Reject, Schema, is_evaluation_split
from envbuild.records.execution import Limits, QueryResult
from envbuild.records.preflight import Finding, Severity
from envbuild.schema.read import read_schema
from envbuild.sql.connect import Connection, SQLiteError, open_read_only
from envbuild.sql.execution.session import Session
from envbuild.sql.files.inspect import KeyCheck, check_foreign_keys
from envbuild.sql.tokens import Kind, iter_code
from envbuild.sql.verdicts import equal_bag

# Findings as checks write them, before the table of codes gives them a severity.


EXAMPLE_CHARACTERS = 300
"""An example longer than this is cut, and says so with an ellipsis."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A finding whose severity the table of codes decides."""

    corpus: str
    code: str
    message: str
    db_id: str = ""
    table: str = ""
    question_id: str = ""
    count: int = 1
    example: str = ""
    severity: Severity | None = None
    """Instead of the code's own."""
    evaluation: bool = False
    """The question is asked in an evaluation split only: no reward is paid for it."""

    def as_note(self) -> "Draft":
        """The same, but only a note."""
        return msgspec.structs.replace(self, severity=Severity.NOTE)


def as_finding(draft: Draft, severity: Severity) -> Finding:
    """The draft with its severity, its example cut to a readable length."""
    example = " ".join(draft.example.split())
    if len(example) > EXAMPLE_CHARACTERS:
        example = example[: EXAMPLE_CHARACTERS - 1] + "…"
    return Finding(
        corpus=draft.corpus,
        code=draft.code,
        severity=severity,
        db_id=draft.db_id,
        table=draft.table,
        question_id=draft.question_id,
        count=draft.count,
        message=draft.message,
        example=example,
    )


# The sessions on which a database's gold queries run: as it is, reordered, at other times.


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


# What a check looks at: one database, or one distinct gold query of it.


CLOCK_WORDS = frozenset(
    (
        *("date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff"),
        *("current_date", "current_time", "current_timestamp"),
    )
)
RANDOM_WORDS = frozenset(("random", "randomblob"))


class ClockEffect(NamedTuple):
    """What the clock does to a query's result."""

    read: bool
    """The query asks for the time."""
    moved_at: str
    """An instant at which the result is another one than at the first; empty where none is."""


class DatabaseInput(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to check one database, wherever the worker runs."""

    corpus: str
    row: DatabaseRow
    path: Path
    row_counts: dict[str, int] | None
    """Rows by table; None where the file is no readable database."""
    unreadable: str = ""
    """Why it is not."""
    decodable: bool = False
    """The catalogue says that every text cell of this file is UTF-8."""
    rejects: tuple[Reject, ...] = ()
    questions: tuple[Question, ...] = ()


class DatabaseSubject:
    """One open database with what the corpus says about it; close it after use."""

    def __init__(self, given: DatabaseInput, limits: Limits) -> None:
        self.given = given
        self.limits = limits
        self.connection: Connection | None = (
            None if given.row_counts is None else open_read_only(given.path)
        )
        self.sessions = GoldSessions(given.path, limits)

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

    def golds(self) -> Iterator["GoldSubject"]:
        """Each distinct gold query, run once, with the questions that share it."""
        if self.connection is None:
            return
        by_sql: dict[str, list[Question]] = defaultdict(list)
        for question in self.given.questions:
            by_sql[question.gold_sql].append(question)
        for sql, questions in by_sql.items():
            yield GoldSubject(self, sql, tuple(questions))

    def finding(
        self, code: str, message: str, *, table: str = "", count: int = 1, example: str = ""
    ) -> Draft:
        """A finding about this database, still without a severity."""
        return Draft(
            corpus=self.given.corpus,
            db_id=self.given.row.db_id,
            code=code,
            message=message,
            table=table,
            count=count,
            example=example,
        )

    def close(self) -> None:
        """Releases every connection."""
        self.sessions.close()
        if self.connection is not None:
            self.connection.close()


class GoldSubject:
    """One distinct gold query of a database, its result and the questions that share it."""

    def __init__(
        self, database: DatabaseSubject, sql: str, questions: tuple[Question, ...]
    ) -> None:
        self.database = database
        self.sql = sql
        self.questions = questions
        self.result: QueryResult = database.sessions.plain.run(sql)

    @cached_property
    def words(self) -> frozenset[str]:
        """The bare words of the query, in lower case: keywords, functions, unquoted names."""
        folded = self.sql.lower()
        return frozenset(
            folded[start:end] for kind, start, end in iter_code(folded) if kind is Kind.WORD
        )

    @cached_property
    def clock_effect(self) -> ClockEffect:
        """Whether the query reads the clock, and whether its result follows it."""
        if not (self.result.ok and self.words & CLOCK_WORDS):
            return ClockEffect(False, "")
        clocked = self.database.sessions.clocked
        first = clocked.run_at(INSTANTS[0], self.sql)
        if not clocked.read_clock:
            return ClockEffect(False, "")
        later = (at for at in INSTANTS[1:] if differ(first, clocked.run_at(at, self.sql)))
        return ClockEffect(True, next(later, ""))

    def limits_broken(self, direction: str) -> str:
        """The query with the ties at its LIMITs broken, `ASC` or `DESC`; as it is without any."""
        columns = self._limit_columns
        return break_ties(self.sql, columns, direction=direction) if columns else self.sql

    @cached_property
    def window_ties(self) -> bool:
        """True where the result changes with the order of rows that tie inside a window.

        By more than the last digits of a float: `scan_order_gold` notes those.
        """
        windows = "over" in self.words and self.repeats
        spliced = break_window_ties(self.limits_broken("ASC")) if windows else None
        return spliced is not None and self.database.sessions.ordered.varies(spliced)

    @cached_property
    def _limit_columns(self) -> tuple[tuple[LimitSite, int], ...]:
        """Each LIMIT of the query with the number of result columns it may be ordered by."""
        sites = limit_sites(self.sql) if "limit" in self.words else ()
        run = self.database.sessions.plain.run
        probed = ((site, columns_named(run(probe_columns(self.sql, site)).error)) for site in sites)
        return tuple((site, columns) for site, columns in probed if columns)

    @property
    def repeats(self) -> bool:
        """True where neither chance nor the clock keeps a second run from the same result."""
        chancy = self.words & RANDOM_WORDS
        return self.result.ok and not chancy and not self.clock_effect.moved_at

    def finding(self, code: str, message: str, *, example: str = "") -> Draft:
        """A finding about this gold, whoever asks it."""
        return Draft(
            corpus=self.database.given.corpus,
            db_id=self.database.given.row.db_id,
            code=code,
            message=message,
            example=example or self.sql,
        )

    def for_each_question(self, draft: Draft) -> Iterator[Draft]:
        """The finding once for every question that shares the gold; its count is their phrasings.

        Whoever looks a question up must find what is wrong with its gold.
        """
        phrasings = Counter(question.question_id for question in self.questions)
        trained = {q.question_id for q in self.questions if not is_evaluation_split(q.split)}
        for question_id, count in phrasings.items():
            yield msgspec.structs.replace(
                draft,
                question_id=question_id,
                count=count,
                evaluation=question_id not in trained,
            )


def differ(one: QueryResult, other: QueryResult) -> bool:
    """True where both ran to their end and gave different multisets of rows."""
    return one.ok and other.ok and not equal_bag(other.rows, one.rows)
