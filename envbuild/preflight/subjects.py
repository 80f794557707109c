"""What a check looks at: one database, or one distinct gold query of it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from envbuild.records.corpus import DatabaseRow, Question, Reject
from envbuild.records.execution import Limits, QueryResult
from envbuild.records.finding import Finding, Severity
from envbuild.records.schema import Schema
from envbuild.schema.read import read_schema
from envbuild.sql.conditions import ClockedSession, open_reversed, open_seeded
from envbuild.sql.connect import Connection, open_read_only
from envbuild.sql.executor import Session
from envbuild.sql.foreign_key_check import KeyCheck, check_foreign_keys

EXAMPLE_CHARACTERS = 300
"""An example longer than this is cut, and says so with an ellipsis."""


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
    ) -> "Draft":
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

    def finding(self, code: str, message: str, *, example: str = "") -> "Draft":
        """A finding about this gold, whoever asks it."""
        return Draft(
            corpus=self.database.given.corpus,
            db_id=self.database.given.row.db_id,
            code=code,
            message=message,
            example=example or self.sql,
        )

    def for_each_question(self, draft: "Draft") -> "Iterator[Draft]":
        """The finding once for every question that shares the gold; its count is their phrasings.

        Whoever looks a question up must find what is wrong with its gold.
        """
        phrasings = Counter(question.question_id for question in self.questions)
        for question_id, count in phrasings.items():
            yield msgspec.structs.replace(draft, question_id=question_id, count=count)


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

    def as_note(self) -> "Draft":
        """The same, but only a note."""
        return msgspec.structs.replace(self, severity=Severity.NOTE)


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
