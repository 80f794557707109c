"""A database's tables, indexes, views and triggers from its published DDL.

Statement by statement; a refused one is tried once more through another dialect, and every
statement that was not taken as it stands is reported. Triggers wait until the rows are in.
"""

import re
from collections.abc import Iterator
from itertools import islice

import msgspec

from envbuild.records.corpus import Reject
from envbuild.sql.connect import Connection, quote_name
from envbuild.sql.files.create import RefusedStatementError, run_statement
from envbuild.sql.files.dump_text import read_dump
from envbuild.sql.from_names import MAX_VIEW_READS, oversized_views
from envbuild.sql.names import fold_name
from envbuild.sql.tokens import Kind, iter_code, split_statements, unquote

_HEAD = re.compile(r"(?:\s+|--[^\n]*|/\*[\s\S]*?\*/)*", re.UNICODE)
_TRIGGER = re.compile(r"CREATE\s+(?:TEMP\w*\s+)?TRIGGER\b", re.IGNORECASE)
_ALTERS = re.compile(
    r"ALTER\s+TABLE\b[\s\S]*?\b(?:ADD\s+(?:CONSTRAINT|FOREIGN|PRIMARY|UNIQUE)"
    r"|ADD\s+GENERATED|SET\s+DEFAULT\s+nextval)\b",
    re.IGNORECASE,
)
_COUNTS_LATER = re.compile(
    r"ALTER\s+TABLE\s+(?:ONLY\s+|IF\s+EXISTS\s+)*(?P<table>[\w.\"]+)\s+ALTER\s+(?:COLUMN\s+)?"
    r"(?P<column>\w+|\"[^\"]+\")\s+(?:ADD\s+GENERATED|SET\s+DEFAULT\s+nextval)\b",
    re.IGNORECASE,
)
_NOT_COUNTING = "it takes the counting column's word for a type"
_TEMPORARY = re.compile(r"CREATE\s+TEMP(?:ORARY)?\b", re.IGNORECASE)
_INTERNAL = re.compile(r"CREATE\s+TABLE\s+[\"'`\[]?sqlite_(?:sequence|stat\d)\b", re.IGNORECASE)
_COPY = re.compile(r"COPY\b[^;']*?\bFROM\s+stdin\b", re.IGNORECASE)
_COUNTS = re.compile(r"(?:BIG|SMALL)?SERIAL|AUTO_INCREMENT|IDENTITY", re.IGNORECASE)
_SHOWN = 200


class Statement(msgspec.Struct):
    """One statement on its way into the database."""

    index: int
    """Position within the DDL."""
    text: str
    constraints: list[str] = msgspec.field(default_factory=list)
    """Clauses of later ALTER statements that belong into this CREATE TABLE."""
    counting: set[str] = msgspec.field(default_factory=set)
    """Folded names of the columns that later ALTER statements let count."""

    def render(self) -> str:
        """The text, with the added constraints inside the column list."""
        if not self.constraints or (end := _end_of_columns(self.text)) is None:
            return self.text
        return self.text[:end] + "".join(f"\n, {c}" for c in self.constraints) + self.text[end:]


class Ddl:
    """What became of one database's DDL."""

    def __init__(self, text: str, *, dialect: str = "") -> None:
        self.rejects: list[Reject] = []
        self.refused = 0
        self.wrote_rows = False
        """Some statement inserted rows, so counts cannot be taken from the payload alone."""
        self._stated = dialect
        text, copied = read_dump(text, dialect)
        self._copied = iter(copied)
        self._text = text
        statements = [
            Statement(index=index, text=statement)
            for index, statement in enumerate(split_statements(text))
        ]
        self.statements = len(statements)
        self._plan = self._fold_alterations(statements)
        self._triggers: list[Statement] = []

    def create(self, connection: Connection) -> None:
        """Runs everything but triggers."""
        for statement in self._plan:
            if _TRIGGER.match(statement.text, _start(statement.text)):
                self._triggers.append(statement)
            else:
                self._run(connection, statement)
        self._drop_oversized_views(connection)

    def create_triggers(self, connection: Connection) -> None:
        """Runs the triggers; the rows are in, so that none of them acts on one."""
        for statement in self._triggers:
            self._run(connection, statement)

    def _run(self, connection: Connection, statement: Statement) -> None:
        sql = statement.render()
        if _COPY.match(sql, _start(sql)):
            lines = next(self._copied, 0)
            self._reject(statement, "copy_skipped", f"{lines} lines of data were not read")
            return
        counts = statement.counting or _counts_in_another_dialect(sql)
        if counts and self._translate(connection, statement, _NOT_COUNTING):
            return
        try:
            self.wrote_rows |= run_statement(connection, sql) > 0
        except RefusedStatementError as e:
            if e.denied:
                temporary = _TEMPORARY.match(sql, _start(sql))
                reason = "temporary_object" if temporary else "not_schema"
                self._reject(statement, reason, str(e))
            elif _INTERNAL.match(sql, _start(sql)):
                self._reject(statement, "internal_table", "SQLite makes this table itself")
            elif not self._translate(connection, statement, str(e)):
                self._reject(statement, "ddl_refused", str(e))

    def _drop_oversized_views(self, connection: Connection) -> None:
        """Leaves out views that nobody could compile, each a reject of its statement."""
        views = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'view'"))
        oversized = oversized_views(views)
        for name in (name for name in views if fold_name(name) in oversized):
            connection.execute(f"DROP VIEW {quote_name(name)}")
            made = next(s for s in self._plan if _makes_view(s.text, name))
            reads = f"it stands for more than {MAX_VIEW_READS:,} reads of tables"
            self._reject(made, "oversized_view", reads)

    def _translate(self, connection: Connection, statement: Statement, complaint: str) -> bool:
        """Whether SQLite takes it through the dialect it looks like; what that loses is noted."""
        from envbuild.sql.files.transpile import (  # sqlglot only when needed
            guess_dialect,
            to_sqlite,
        )

        dialect = guess_dialect(statement.text, self._stated)
        translated = to_sqlite(
            statement.text, dialect, added=statement.constraints, counting=statement.counting
        )
        if translated is None:
            return False
        attempt = msgspec.structs.replace(statement, text=translated.text)
        try:
            self.wrote_rows |= run_statement(connection, attempt.render()) > 0
        except RefusedStatementError:
            return False
        self._note(statement, "transpiled", f"from {dialect}; SQLite said: {complaint}")
        for clause in translated.left_out:
            self._note(statement, "clause_left_out", clause)
        return True

    def _fold_alterations(self, statements: list[Statement]) -> list[Statement]:
        """SQLite cannot add a key or a counter to a table: they go into its CREATE TABLE."""
        alterations = [s for s in statements if _ALTERS.match(s.text, _start(s.text))]
        if not alterations:
            return statements
        from envbuild.sql.files.transpile import added_constraints, guess_dialect

        created = {name: s for s in statements if (name := created_table(s.text)) is not None}
        dialect = guess_dialect(self._text, self._stated)
        folded = set()
        for alteration in alterations:
            if counts := _COUNTS_LATER.match(alteration.text, _start(alteration.text)):
                table = counts["table"].rpartition(".")[2]
                if target := created.get(fold_name(unquote(table))):
                    target.counting.add(fold_name(unquote(counts["column"])))
                    folded.add(alteration.index)
                    self._note(alteration, "folded", f"into CREATE TABLE {table}")
                continue
            found = added_constraints(alteration.text, dialect)
            target = created.get(fold_name(found[0])) if found else None
            if found is None or target is None:
                continue
            target.constraints += found[1]
            folded.add(alteration.index)
            self._note(alteration, "folded", f"into CREATE TABLE {found[0]}")
        return [s for s in statements if s.index not in folded]

    def _note(self, statement: Statement, reason: str, detail: str) -> None:
        shown = " ".join(statement.text.split())[:_SHOWN]
        self.rejects.append(
            Reject(
                kind="statement", index=statement.index, reason=reason, detail=f"{detail}: {shown}"
            )
        )

    def _reject(self, statement: Statement, reason: str, detail: str) -> None:
        self.refused += 1
        self._note(statement, reason, detail)


def _makes_view(text: str, name: str) -> bool:
    words = [fold_name(unquote(word)) for word in islice(_words(text), 10)]
    return words[:1] == ["create"] and "view" in words and fold_name(name) in words


def _counts_in_another_dialect(text: str) -> bool:
    """Whether a CREATE TABLE has `id SERIAL`, `INT AUTO_INCREMENT` or `IDENTITY` for a type.

    SQLite takes these for a type's words, and then nothing counts.
    """
    lower = text.lower()  # cheaper than a regular expression that ignores case
    if not any(word in lower for word in ("serial", "auto_increment", "identity")):
        return False
    if created_table(text) is None:
        return False
    before = ""
    for kind, word, _ in iter_code(text):
        is_word = kind is Kind.WORD and before not in ("(", ",")  # there a column's name stands
        if is_word and _COUNTS.fullmatch(word):
            return True
        before = word
    return False


def created_table(text: str) -> str | None:
    """Folded name of the table that a CREATE TABLE statement makes, without a schema before it."""
    words = list(islice(_words(text), 12))
    if words[1:2] and words[1].upper() in ("TEMP", "TEMPORARY"):
        del words[1]
    if [word.upper() for word in words[:2]] != ["CREATE", "TABLE"]:
        return None
    if [word.upper() for word in words[2:5]] == ["IF", "NOT", "EXISTS"]:
        del words[2:5]
    while words[3:4] == ["."]:  # a schema's name
        del words[2:4]
    return fold_name(unquote("".join(words[2:3])))


def _words(text: str) -> Iterator[str]:
    return (token.text for token in iter_code(text))


def _end_of_columns(text: str) -> int | None:
    """Where the column list's closing parenthesis stands."""
    depth = 0
    for kind, word, start in iter_code(text):
        if kind is Kind.OPERATOR and word in ("(", ")"):
            depth += 1 if word == "(" else -1
            if depth == 0:
                return start
    return None


def _start(text: str) -> int:
    return _HEAD.match(text).end()  # type: ignore[union-attr]  # it matches everywhere
