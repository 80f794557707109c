"""Another dialect's DDL in SQLite's words, for statements that SQLite refused.

Through sqlglot's tree, not its SQLite writer alone: that one keeps ENUMs, key lists, schema
qualifiers and AUTO_INCREMENT, which SQLite refuses again.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from typing import NamedTuple

import apsw
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from envbuild.sql.connect import open_private, quote_name
from envbuild.sql.files.dump_text import look_of, stated_dialect
from envbuild.sql.names import fold_name

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # what it cannot say is ours to report

_TYPES = {
    "INTEGER": "INT BIGINT SMALLINT TINYINT MEDIUMINT UINT UBIGINT USMALLINT UTINYINT UMEDIUMINT "
    "SERIAL BIGSERIAL SMALLSERIAL INT128 INT256 BIT YEAR",
    "REAL": "FLOAT DOUBLE REAL UDOUBLE",
    "DECIMAL": "DECIMAL UDECIMAL BIGDECIMAL MONEY SMALLMONEY",
    "BLOB": "BINARY VARBINARY BLOB TINYBLOB MEDIUMBLOB LONGBLOB IMAGE",
    "DATE": "DATE",
    "TIME": "TIME",
    "BOOLEAN": "BOOLEAN",
    "DATETIME": "DATETIME DATETIME2 TIMESTAMP TIMESTAMPTZ TIMESTAMPLTZ TIMESTAMPNTZ SMALLDATETIME",
}
"""SQLite's word for the types sqlglot knows; every other one is TEXT."""
_WORD_OF = {name: word for word, names in _TYPES.items() for name in names.split()}
_UNREADABLE = (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError)
"""What sqlglot raises over what it cannot read or say."""
_NOW = {
    exp.CurrentTimestamp: "CURRENT_TIMESTAMP",
    exp.CurrentDate: "CURRENT_DATE",
    exp.CurrentTime: "CURRENT_TIME",
}
_NOW_NAMES = frozenset(("now", "getdate", "sysdate", "localtimestamp", "sysdatetime"))
_DEFAULTS = (exp.Literal, exp.Null, exp.Boolean, exp.Neg)
"""Default expressions that mean the same in SQLite."""
_COUNTING = frozenset(("SERIAL", "BIGSERIAL", "SMALLSERIAL"))


class Translation(NamedTuple):
    """A statement in SQLite's words."""

    text: str
    left_out: tuple[str, ...] = ()
    """What SQLite has no words for, or does not take: `column: clause` in SQLite's spelling."""


class _Clause(NamedTuple):
    """A clause that a table can do without; `words` are empty where SQLite has none."""

    words: str
    meant: str


class _Part(NamedTuple):
    """One column or constraint of a table."""

    words: str
    clauses: tuple[_Clause, ...] = ()
    is_column: bool = False
    counts: str = ""
    """The column's name, where it numbers itself."""

    def text(self, kept: list[_Clause]) -> str:
        """The part with those of its clauses that are kept."""
        return " ".join(filter(None, (self.words, *(c.words for c in self.clauses if c in kept))))


def guess_dialect(text: str, stated: str = "") -> str:
    """The dialect to read `text` in: the stated one, else by its look, else MySQL."""
    stated = stated_dialect(stated)
    if stated and sqlglot.Dialect.get(stated):
        return stated
    return look_of(text) or "mysql"


def to_sqlite(
    statement: str, dialect: str, *, added: Iterable[str] = (), counting: Iterable[str] = ()
) -> Translation | None:
    """`statement` in SQLite's words, or None where sqlglot cannot read it.

    Its strings are SQLite's already (`read_dump`). Of a CREATE TABLE, `added` are constraints that
    it gets besides, `counting` its columns (folded names) that a later statement lets count. A
    default, CHECK or computed column that SQLite cannot take is left out and named; the others
    stay.
    """
    tree = _parse(statement, dialect)
    if tree is None or isinstance(tree, exp.Command):
        return None
    try:
        for column in tree.find_all(exp.ColumnDef):
            if fold_name(column.name) in counting:
                kind = exp.AutoIncrementColumnConstraint()
                column.append("constraints", exp.ColumnConstraint(kind=kind))
        return _render(tree, list(added))
    except _UNREADABLE:
        return None


def _render(tree: exp.Expr, added: list[str]) -> Translation:
    if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Schema) and tree.kind == "TABLE":
        return _table(tree, added)
    for index in tree.find_all(exp.IndexParameters):
        index.set("using", None)
    return Translation(re.sub(r" NULLS (?:FIRST|LAST)\b", "", tree.sql("sqlite")))


def _table(tree: exp.Create, added: list[str]) -> Translation:
    """CREATE TABLE with as many of its clauses as SQLite takes; constraints after all columns."""
    parts = [part for e in tree.this.expressions for part in _part(e)]
    parts.sort(key=lambda part: not part.is_column)
    exists = "IF NOT EXISTS " if tree.args.get("exists") else ""
    head = f"CREATE TABLE {exists}{tree.this.this.sql('sqlite', identify=True)} (\n  "

    def text(kept: list[_Clause]) -> str:
        return head + ",\n  ".join(filter(None, (part.text(kept) for part in parts))) + "\n)"

    clauses = [clause for part in parts for clause in part.clauses]
    kept: list[_Clause] = []
    for clause in clauses:
        if clause.words and _compiles(text([*kept, clause])):
            kept.append(clause)
    left_out = [clause.meant for clause in clauses if clause not in kept]
    keys = "\n".join([*(part.words for part in parts), *added])
    for part in parts:
        alone = f"PRIMARY KEY ({part.counts})"
        if part.counts and " PRIMARY KEY" not in part.words and alone not in keys:
            left_out.append(f"{part.counts}: counts up")
    return Translation(text(kept), tuple(left_out))


def _compiles(statement: str) -> bool:
    with closing(open_private()) as connection, suppress(apsw.Error):
        connection.execute(statement).fetchall()
        return True
    return False


def added_constraints(statement: str, dialect: str) -> tuple[str, list[str]] | None:
    """(table, constraints) of an `ALTER TABLE … ADD` key or constraint, in SQLite's words.

    None where the statement is anything else. SQLite has no such ALTER: the constraints belong
    into the CREATE TABLE.
    """
    tree = _parse(statement, dialect)
    if not isinstance(tree, exp.Alter):
        return None
    actions = tree.args.get("actions") or []
    if not actions or not all(isinstance(action, exp.AddConstraint) for action in actions):
        return None
    parts = [part for a in actions for e in a.expressions for part in _part(e)]
    clauses = [part.words or part.clauses[0].words for part in parts]
    columns = {column.name: _name(column) for column in tree.find_all(exp.Column)}
    names = ", ".join(columns.values()) or "x"
    if any(part.clauses for part in parts) and not _compiles(
        f"CREATE TABLE t({names}, {', '.join(clauses)})"
    ):
        return None  # a CHECK that SQLite cannot say
    return (tree.this.name, clauses)


def _parse(statement: str, dialect: str) -> exp.Expr | None:
    if dialect == "tsql":
        statement = re.sub(r"\b(?:NON)?CLUSTERED\b", "", statement, flags=re.IGNORECASE)
    escapes = sqlglot.Dialect.get_or_raise(dialect).tokenizer_class.STRING_ESCAPES
    if "\\" in escapes:
        statement = statement.replace("\\", "\\\\")
    try:
        trees = sqlglot.parse(statement, read=dialect)
    except _UNREADABLE:
        return None
    tree = trees[0] if len(trees) == 1 else None
    for table in tree.find_all(exp.Table) if tree else ():
        table.set("db", None)
        table.set("catalog", None)
    return tree


def _part(element: exp.Expr) -> Iterator[_Part]:
    """One column or table constraint; nothing for what SQLite has no words for (an index list)."""
    if isinstance(element, exp.ColumnDef):
        yield _column(element)
    elif isinstance(element, exp.Identifier | exp.Column):  # a column without a type
        yield _Part(_name(element), is_column=True)
    elif isinstance(element, exp.Constraint):
        named = f"CONSTRAINT {_name(element.this)} "
        for part in (part for e in element.expressions[:1] for part in _part(e)):
            clauses = tuple(c._replace(words=named + c.words) for c in part.clauses)
            yield part._replace(words=part.words and named + part.words, clauses=clauses)
    elif isinstance(element, exp.PrimaryKey):
        yield _Part(f"PRIMARY KEY ({_columns(element.expressions)})")
    elif isinstance(element, exp.UniqueColumnConstraint) and element.this is not None:
        yield _Part(f"UNIQUE ({_columns(element.this.expressions)})")
    elif isinstance(element, exp.ForeignKey):
        target = _target(element.args["reference"])
        actions = "".join(
            f" ON {act.upper()} {element.args[act]}"
            for act in ("delete", "update")
            if element.args.get(act)
        )
        yield _Part(f"FOREIGN KEY ({_columns(element.expressions)}) {target}{actions}")
    elif isinstance(element, exp.CheckColumnConstraint):
        said = element.sql("sqlite")
        yield _Part("", (_Clause(said, said),))


def _column(column: exp.ColumnDef) -> _Part:
    # not `.kind`: sqlglot's compiled property refuses some of its own constraints
    constraints = [c.args.get("kind") for c in column.args.get("constraints") or []]
    declared = column.args.get("kind")
    counts = _type_name(declared) in _COUNTING or any(map(_numbers_itself, constraints))
    # only the type INTEGER makes a primary key number itself
    kind = "INTEGER" if counts else _type(declared)
    name = _name(column.this)
    words, clauses = [name, kind], []
    for constraint in constraints:
        said = _said(constraint)
        if not isinstance(constraint, _LEFT_OUT):
            words.append(said)
        elif not _numbers_itself(constraint):
            clauses.append(_Clause(said, f"{name}: {said or constraint.sql('sqlite')}"))
    said = " ".join(filter(None, words))
    return _Part(said, tuple(clauses), is_column=True, counts=name if counts else "")


_LEFT_OUT = (
    exp.DefaultColumnConstraint,
    exp.CheckColumnConstraint,
    exp.ComputedColumnConstraint,
    exp.GeneratedAsIdentityColumnConstraint,
)
"""What a column can do without."""


def _numbers_itself(constraint: exp.Expr) -> bool:
    if isinstance(constraint, exp.DefaultColumnConstraint):
        return any(f.name.lower() == "nextval" for f in constraint.find_all(exp.Anonymous))
    return isinstance(constraint, exp.AutoIncrementColumnConstraint) or (
        isinstance(constraint, exp.GeneratedAsIdentityColumnConstraint)
        and constraint.args.get("expression") is None
    )


def _said(constraint: exp.Expr) -> str:
    """A column's constraint in SQLite's words; empty where it has none."""
    match constraint:
        case exp.NotNullColumnConstraint():
            return "NULL" if constraint.args.get("allow_null") else "NOT NULL"
        case exp.PrimaryKeyColumnConstraint():
            return "PRIMARY KEY"
        case exp.UniqueColumnConstraint():
            return "UNIQUE"
        case exp.Reference():
            return _target(constraint)
        case exp.DefaultColumnConstraint():
            default = _default(constraint.this)
            return default and f"DEFAULT {default}"
        case exp.CheckColumnConstraint():
            return constraint.sql("sqlite")
        case exp.ComputedColumnConstraint() | exp.GeneratedAsIdentityColumnConstraint():
            computed = constraint.args.get("expression") or constraint.this
            return f"AS ({computed.sql('sqlite')})" if isinstance(computed, exp.Expr) else ""
    return ""


def _target(reference: exp.Expr) -> str:
    """REFERENCES with its actions; SQLite has no words for some of the ways to defer a key."""
    options = reference.args.get("options") or []
    reference.set("options", [o for o in options if str(o).upper().startswith("ON ")])
    return reference.sql("sqlite", identify=True)


def _default(value: exp.Expr) -> str:
    """The default in SQLite's words where it means the same there; else empty."""
    if isinstance(value, exp.Introducer):  # the name of a character set
        return _default(value.expression)
    in_utc = isinstance(value, exp.AtTimeZone) and value.args["zone"].name.lower() == "utc"
    if in_utc or isinstance(value, exp.Paren | exp.Cast):  # SQLite's now is in UTC
        return _default(value.this)
    if isinstance(value, exp.Anonymous) and value.name.lower() in _NOW_NAMES:
        return "CURRENT_TIMESTAMP"
    if isinstance(value, exp.National | exp.ByteString):  # N'…', E'…'
        return exp.Literal.string(value.name).sql("sqlite")
    if isinstance(value, exp.BitString):
        return str(int(value.name, 2))
    same = value.sql("sqlite") if isinstance(value, _DEFAULTS) else ""
    return next((word for moment, word in _NOW.items() if isinstance(value, moment)), same)


def _type(kind: exp.Expr | None) -> str:
    if not isinstance(kind, exp.DataType):
        return ""
    word = _WORD_OF.get(_type_name(kind), "TEXT")
    sizes = ", ".join(e.sql("sqlite") for e in kind.expressions)
    return f"DECIMAL({sizes})" if word == "DECIMAL" and sizes else word


def _type_name(kind: exp.Expr | None) -> str:
    name = kind.this if isinstance(kind, exp.DataType) else ""
    return str(name.value if hasattr(name, "value") else name)


def _columns(expressions: list[exp.Expr]) -> str:
    return ", ".join(_name(e) for e in expressions)


def _name(expression: exp.Expr) -> str:
    return quote_name(expression.name)
