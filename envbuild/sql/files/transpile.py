"""Another dialect's DDL in SQLite's words, for statements that SQLite refused.

Through sqlglot's tree, not its SQLite writer alone: that one keeps ENUMs, key lists, schema
qualifiers and AUTO_INCREMENT, which SQLite refuses again.
"""

import logging
import re
from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # what it cannot say is ours to report

_CUES = (
    ("tsql", r"\[dbo\]|\bIDENTITY\s*\(\s*\d|\bNVARCHAR\s*\(\s*MAX|\b(?:NON)?CLUSTERED\b"),
    (
        "postgres",
        r"::|\b(?:BIG|SMALL)?SERIAL\b|\bpublic\.|\bcharacter varying\b|\bwith(?:out)? time zone\b"
        r"|\bnextval\s*\(|\bUSING btree\b|\bALTER TABLE ONLY\b"
        r"|\bGENERATED \w+ (?:BY DEFAULT )?AS IDENTITY",
    ),
    ("mysql", r"`|\bAUTO_INCREMENT\b|\bENGINE\s*=|\bUNSIGNED\b|\bENUM\s*\(|\bON UPDATE CURRENT"),
    ("oracle", r"\bVARCHAR2\b|\bNUMBER\s*\("),
)
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
"""Default expressions that mean the same in SQLite; others are left out."""


def guess_dialect(text: str, stated: str = "") -> str:
    """The dialect to read `text` in: the stated one, else by its look, else MySQL."""
    stated = {"postgresql": "postgres", "mssql": "tsql", "mariadb": "mysql"}.get(
        stated.lower(), stated.lower()
    )
    if stated and stated != "sqlite" and sqlglot.Dialect.get(stated):
        return stated
    for dialect, cues in _CUES:
        if re.search(cues, text, re.IGNORECASE):
            return dialect
    return "mysql"


def to_sqlite(statement: str, dialect: str, *, bare: bool = False) -> str | None:
    """`statement` in SQLite's words, or None where sqlglot cannot read it.

    `bare` leaves DEFAULTs and CHECKs out of a CREATE TABLE, as a last resort.
    """
    tree = _parse(statement, dialect)
    if tree is None or isinstance(tree, exp.Command):
        return None
    try:
        return _render(tree, bare)
    except _UNREADABLE:
        return None


def _render(tree: exp.Expr, bare: bool) -> str:
    for table in tree.find_all(exp.Table):
        table.set("db", None)
        table.set("catalog", None)
    if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Schema) and tree.kind == "TABLE":
        parts = [part for e in tree.this.expressions for part in _part(e, bare)]
        name = tree.this.this.sql("sqlite", identify=True)
        exists = "IF NOT EXISTS " if tree.args.get("exists") else ""
        return f"CREATE TABLE {exists}{name} (\n  " + ",\n  ".join(parts) + "\n)"
    for index in tree.find_all(exp.IndexParameters):
        index.set("using", None)
    return re.sub(r" NULLS (?:FIRST|LAST)\b", "", tree.sql("sqlite"))


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
    for table in tree.find_all(exp.Table):
        table.set("db", None)
        table.set("catalog", None)
    parts = [part for a in actions for e in a.expressions for part in _part(e, False)]
    return (tree.this.name, parts)


def _parse(statement: str, dialect: str) -> exp.Expr | None:
    if dialect == "tsql":
        statement = re.sub(r"\b(?:NON)?CLUSTERED\b", "", statement, flags=re.IGNORECASE)
    try:
        trees = sqlglot.parse(statement, read=dialect)
    except _UNREADABLE:
        return None
    return trees[0] if len(trees) == 1 else None


def _part(element: exp.Expr, bare: bool) -> Iterator[str]:
    """One column or table constraint; nothing for what SQLite has no words for (an index list)."""
    if isinstance(element, exp.ColumnDef):
        yield _column(element, bare)
    elif isinstance(element, exp.Identifier | exp.Column):  # a column without a type
        yield _name(element)
    elif isinstance(element, exp.Constraint):
        inner = [part for e in element.expressions for part in _part(e, bare)]
        if inner:
            yield f"CONSTRAINT {_name(element.this)} {inner[0]}"
    elif isinstance(element, exp.PrimaryKey):
        yield f"PRIMARY KEY ({_columns(element.expressions)})"
    elif isinstance(element, exp.UniqueColumnConstraint) and element.this is not None:
        yield f"UNIQUE ({_columns(element.this.expressions)})"
    elif isinstance(element, exp.ForeignKey):
        target = element.args["reference"].sql("sqlite", identify=True)
        actions = "".join(
            f" ON {act.upper()} {element.args[act]}"
            for act in ("delete", "update")
            if element.args.get(act)
        )
        yield f"FOREIGN KEY ({_columns(element.expressions)}) {target}{actions}"
    elif isinstance(element, exp.CheckColumnConstraint) and not bare:
        yield element.sql("sqlite")


def _column(column: exp.ColumnDef, bare: bool) -> str:
    # not `.kind`: sqlglot's compiled property refuses some of its own constraints
    kinds = [c.args.get("kind") for c in column.args.get("constraints") or []]
    # only the type INTEGER makes a primary key number itself
    kind = "INTEGER" if any(map(_numbers_itself, kinds)) else _type(column.args.get("kind"))
    words = [_name(column.this), kind, *(_constraint(kind, bare) for kind in kinds)]
    return " ".join(word for word in words if word)


def _numbers_itself(kind: exp.Expr) -> bool:
    return isinstance(kind, exp.AutoIncrementColumnConstraint) or (
        isinstance(kind, exp.GeneratedAsIdentityColumnConstraint)
        and kind.args.get("expression") is None
    )


def _constraint(kind: exp.Expr, bare: bool) -> str:
    """A column's constraint; empty for what SQLite has no words for."""
    if isinstance(kind, exp.PrimaryKeyColumnConstraint):
        return "PRIMARY KEY"
    if isinstance(kind, exp.NotNullColumnConstraint):
        return "NULL" if kind.args.get("allow_null") else "NOT NULL"
    if isinstance(kind, exp.UniqueColumnConstraint):
        return "UNIQUE"
    if isinstance(kind, exp.Reference):
        return kind.sql("sqlite", identify=True)
    if bare:
        return ""
    if isinstance(kind, exp.DefaultColumnConstraint):
        value = kind.this.this if isinstance(kind.this, exp.Cast) else kind.this
        default = _default(value)
        return f"DEFAULT {default}" if default else ""
    if isinstance(kind, exp.ComputedColumnConstraint):
        return f"AS ({kind.this.sql('sqlite')})"
    if isinstance(kind, exp.GeneratedAsIdentityColumnConstraint) and kind.args.get("expression"):
        return f"AS ({kind.args['expression'].sql('sqlite')})"
    return kind.sql("sqlite") if isinstance(kind, exp.CheckColumnConstraint) else ""


def _default(value: exp.Expr) -> str:
    """The default in SQLite's words where it means the same there; else empty."""
    for moment, word in _NOW.items():
        if isinstance(value, moment):
            return word
    if isinstance(value, exp.Anonymous) and value.name.lower() in _NOW_NAMES:
        return "CURRENT_TIMESTAMP"
    return value.sql("sqlite") if isinstance(value, _DEFAULTS) else ""


def _type(kind: exp.Expr | None) -> str:
    if not isinstance(kind, exp.DataType):
        return ""
    name = kind.this.value if hasattr(kind.this, "value") else str(kind.this)
    word = _WORD_OF.get(str(name), "TEXT")
    sizes = ", ".join(e.sql("sqlite") for e in kind.expressions)
    return f"DECIMAL({sizes})" if word == "DECIMAL" and sizes else word


def _columns(expressions: list[exp.Expr]) -> str:
    return ", ".join(_name(e) for e in expressions)


def _name(expression: exp.Expr) -> str:
    return '"' + expression.name.replace('"', '""') + '"'
