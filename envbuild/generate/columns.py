"""One plan a column: what sort of values it holds, which it may take, and how one is drawn."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from random import Random

from envbuild.materialize.values import affinity_of
from envbuild.records.corpus import Column
from envbuild.records.execution import Value
from envbuild.records.signal import Condition
from envbuild.sql.connect import SQLiteError, open_private

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?Z?")
_TIME = re.compile(r"\d\d?:\d\d(:\d\d(\.\d+)?)?")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.\w+")
_CODE = re.compile(r"(?=.*\d)[A-Za-z0-9_\-./() +]{1,20}|[A-Z]{1,6}")
_WORDS = {
    "moment": ("timestamp", "datetime", "date_time", "created", "updated", "_at", "last_login"),
    "date": ("date", "_day", "birth", "dob"),
    "time": ("time",),
    "year": ("year",),
    "email": ("email",),
    "code": ("phone", "code", "zip", "_id", "isbn", "number", "sku"),
    "flag": ("is_", "has_"),
}
NAME_LIKE = re.compile(r"(name|title|code|e_?mail|phone)", re.IGNORECASE)
"""Columns that people keep unique without declaring it (SIGNAL 7)."""
NAME_PART = re.compile(
    r"(first|last|middle|given|family|fore|sur)[ _]?name|^[fl]_?name$", re.IGNORECASE
)
"""Parts of a person's name: they repeat."""


class Kind(StrEnum):
    """A sort of values, which says how a fresh one is made."""

    INTEGER = "integer"
    REAL = "real"
    DIGITS = "digits"
    """Text that holds numbers."""
    DATE = "date"
    MOMENT = "moment"
    """Date and time."""
    TIME = "time"
    YEAR = "year"
    FLAG = "flag"
    EMAIL = "email"
    CODE = "code"
    BYTES = "bytes"
    WORDS = "words"


def stored(value: Value, affinity: str) -> Value:
    """The value as SQLite keeps it in a column of this affinity."""
    if value is None or (affinity == "text" and isinstance(value, str)):
        return value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value)
    if affinity == "text":
        return _text(value) if isinstance(value, int | float) else value
    if affinity in ("integer", "numeric", "real"):
        if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
            value = float(value) if "." in value or len(value) > 18 else int(value)
        if isinstance(value, int) and affinity == "real" and abs(value) < 2**53:
            return float(value)
        if isinstance(value, float) and affinity != "real" and abs(value) < 2**53:
            return int(value) if value.is_integer() else value
    return value


def kind_of(name: str, declared: str, values: Sequence[Value], literals: Sequence[Value]) -> Kind:
    """The kind of a column: what its values show, else its literals, else its type and name."""
    affinity = affinity_of(declared)
    for shown in (values, literals):
        found = [v for v in shown if v is not None]
        if found and (kind := _shown(found, affinity)) is not None:
            return kind
    return _guessed(name.lower(), declared.upper(), affinity)


def _shown(values: Sequence[Value], affinity: str) -> Kind | None:
    sample = values[:40]
    if all(isinstance(v, int | float) for v in sample):
        if affinity == "text":
            return Kind.DIGITS
        return Kind.REAL if any(isinstance(v, float) for v in sample) else Kind.INTEGER
    if all(isinstance(v, bytes) for v in sample):
        return Kind.BYTES
    texts = [v for v in sample if isinstance(v, str)]
    if len(texts) * 2 < len(sample):
        return None
    for pattern, kind in _PATTERNS:
        if sum(1 for t in texts if pattern.fullmatch(t)) * 4 >= len(texts) * 3:
            return kind
    return Kind.WORDS


_PATTERNS = (
    (_DATE, Kind.DATE),
    (_MOMENT, Kind.MOMENT),
    (_TIME, Kind.TIME),
    (_NUMBER, Kind.DIGITS),
    (_EMAIL, Kind.EMAIL),
    (_CODE, Kind.CODE),
)


def _guessed(name: str, declared: str, affinity: str) -> Kind:
    def named(word: str) -> bool:
        return any(w in name for w in _WORDS[word])

    if "BLOB" in declared:
        return Kind.BYTES
    if "DATE" in declared or "TIMESTAMP" in declared:
        return Kind.MOMENT if "TIME" in declared else Kind.DATE
    if "BOOL" in declared or name.startswith(_WORDS["flag"]):
        return Kind.FLAG
    if affinity in ("integer", "numeric", "real"):
        if named("year") and affinity != "real":
            return Kind.YEAR
        return Kind.REAL if affinity != "integer" else Kind.INTEGER
    for word in ("email", "moment", "date", "time", "year", "code"):
        if named(word):
            return Kind(word)
    return Kind.WORDS


def _text(value: float) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


_STARTS = (
    *("b", "br", "c", "ch", "d", "f", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "pr", "r"),
    *("s", "st", "t", "tr", "v", "w", "z"),
)
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "io")
_ENDS = ("", "n", "r", "l", "s", "t", "nd", "rk", "x")
_LAST_DAY = 28
"""No month is shorter, so that no made date is impossible."""


def fresh_value(kind: Kind, low: float, high: float, pattern: str, rng: Random) -> Value:
    """A new value of the kind, within [low, high] where it is a number, like `pattern` if text."""
    match kind:  # the commonest first: each case costs as much as drawing a number
        case Kind.WORDS:
            return _words(pattern, rng)
        case Kind.INTEGER:
            return int(low) + int(rng.random() * (int(high) - int(low) + 1))
        case Kind.REAL:
            return round(low + rng.random() * (high - low), 2)
        case Kind.DIGITS:
            return _digits(low, high, pattern, rng)
        case Kind.YEAR:
            return str(int(low + rng.random() * (high - low)))
        case Kind.FLAG:
            return int(rng.random() < 0.5)
        case Kind.DATE:
            return _day(low, high, rng)
        case Kind.MOMENT:
            joint = "T" if "T" in pattern else " "
            return f"{_day(low, high, rng)}{joint}{_clock(rng)}"
        case Kind.TIME:
            clock = _clock(rng)
            return clock[:5] if pattern and pattern.count(":") == 1 else clock
        case Kind.EMAIL:
            return f"{word(rng)}.{word(rng)}@{word(rng)}.com"
        case Kind.CODE:
            return _like(pattern or "AA-0000", rng)
        case Kind.BYTES:
            return rng.randbytes(8)


def word(rng: Random) -> str:
    """A pronounceable word of two syllables."""
    pick = rng.random
    return (
        _STARTS[int(pick() * len(_STARTS))]
        + _VOWELS[int(pick() * len(_VOWELS))]
        + _STARTS[int(pick() * len(_STARTS))]
        + _VOWELS[int(pick() * len(_VOWELS))]
        + _ENDS[int(pick() * len(_ENDS))]
    )


def beside(value: Value, kind: Kind, rng: Random) -> Value:
    """A value that a slightly wrong query would confuse with `value`."""
    if isinstance(value, bool | int):
        return value + (1 if rng.random() < 0.5 else -1)
    if isinstance(value, float):
        step = 0.1 if rng.random() < 0.5 else 1.0
        return round(value + (step if rng.random() < 0.5 else -step), 6)
    if not isinstance(value, str):
        return value
    if kind in (Kind.DATE, Kind.MOMENT) and (moved := moved_day(value, rng.choice((-1, 1)))):
        return moved
    if kind in (Kind.DIGITS, Kind.YEAR) and re.fullmatch(r"-?\d{1,15}", value):
        moved_number = str(int(value) + (1 if rng.random() < 0.5 else -1))
        return moved_number.zfill(len(value)) if value.startswith("0") else moved_number
    if rng.random() < 0.5:
        return value.lower() if value.isupper() else value.upper()
    return f"{word(rng)} {value}" if rng.random() < 0.5 else f"{value} {word(rng)}"


def moved_day(text: str, days: int) -> str | None:
    """`text` with its leading ISO date moved by `days`; None where it does not start with one."""
    try:
        day = date.fromisoformat(text[:10])
        return (day + timedelta(days=days)).isoformat() + text[10:]
    except (ValueError, OverflowError):
        return None


def _day(low: float, high: float, rng: Random) -> str:
    year = int(low + rng.random() * (high - low + 0.999)) if high >= low else int(low)
    month, day = 1 + int(rng.random() * 12), 1 + int(rng.random() * _LAST_DAY)
    return f"{year:04d}-{month:02d}-{day:02d}"


def _clock(rng: Random) -> str:
    return f"{int(rng.random() * 24):02d}:{int(rng.random() * 60):02d}:{int(rng.random() * 60):02d}"


def _digits(low: float, high: float, pattern: str, rng: Random) -> str:
    if "." in pattern:
        places = len(pattern.partition(".")[2])
        return f"{low + rng.random() * (high - low):.{places}f}"
    number = str(int(low) + int(rng.random() * (int(high) - int(low) + 1)))
    return number.zfill(len(pattern)) if pattern.startswith("0") else number


def _like(pattern: str, rng: Random) -> str:
    made = []
    for letter in pattern:
        if letter.isdigit():
            made.append(str(int(rng.random() * 10)))
        elif "A" <= letter <= "Z":
            made.append(chr(65 + int(rng.random() * 26)))
        elif "a" <= letter <= "z":
            made.append(chr(97 + int(rng.random() * 26)))
        else:
            made.append(letter)
    return "".join(made)


def _words(pattern: str, rng: Random) -> str:
    count = min(3, max(1, pattern.count(" ") + 1)) if pattern else 2
    made = " ".join([word(rng) for _ in range(count)])
    if pattern.islower():
        return made
    return made.upper() if pattern.isupper() and len(pattern) > 1 else made.title()


BUILT_IN_COLLATIONS = ("BINARY", "NOCASE", "RTRIM")


class Probe:
    """A private database with one cell for every column affinity and collation asked for."""

    def __init__(self) -> None:
        self._connection = open_private()
        self._connection.execute("BEGIN")  # never committed: nothing is kept
        self._cells: dict[tuple[str, str], str] = {}

    def holds(
        self, condition: Condition, value: Value, *, affinity: str, collation: str = "BINARY"
    ) -> bool:
        """Whether `value`, stored in such a column, satisfies the condition.

        True where SQLite cannot say it of one value: the query itself has the last word.
        """
        cell = self._cells.get((affinity, collation)) or self._cell(affinity, collation)
        sql = f"UPDATE {cell} SET v = ? RETURNING {condition_sql(condition)}"
        try:
            return bool(self._connection.execute(sql, (value, *condition.values)).get)
        except (SQLiteError, OverflowError):
            return True

    def _cell(self, affinity: str, collation: str) -> str:
        name = self._cells[affinity, collation] = f"cell{len(self._cells)}"
        self._connection.execute(
            f"CREATE TABLE {name} (v {affinity} COLLATE {collation});"
            f" INSERT INTO {name} VALUES (NULL)"
        )
        return name


def condition_sql(condition: Condition) -> str:
    """The condition as SQL over the column `v`, its literals as `?`."""
    op, shown, marks = condition.op, condition.expression, ["?"] * len(condition.values)
    if op in ("null", "not null"):
        return f"{shown} IS {op}"
    if op in ("in", "not in"):
        return f"{shown} {op} ({', '.join(marks)})"
    return f"{shown} {op} {' AND '.join(marks)}"


SHARE_EXISTING, SHARE_LITERAL = 0.40, 0.35
"""How often a drawn value repeats one of the column, or a gold literal and its near misses."""
UNIQUE_FROM = 10
"""Rows without a repeat from which any column counts as unique by observation."""
LABELLED_COLUMNS = 3
"""Most columns of a dictionary table: a key, its label, and perhaps one more."""
_YEARS = (2018.0, 2024.0)


@dataclass(slots=True, kw_only=True)
class ColumnPlan:
    """The values of one column."""

    name: str
    affinity: str
    kind: Kind
    existing: list[Value]
    """Its values, repeats kept; grows with nothing that is added."""
    literals: list[Value] = field(default_factory=list)
    """Gold literals it is compared with, and values beside them."""
    low: float
    high: float
    nulls: float = 0.0
    """Share of NULLs in new rows; 0 where none was seen."""
    not_null: bool = False
    unique: bool = False
    """Kept without repeats: declared, observed or name-like."""
    spread: bool = False
    """Decides a LIMIT: kept without repeats so that no gold rests on a tie."""
    allowed: tuple[Value, ...] = ()
    """The only values a CHECK admits; empty where it names none."""
    pattern: str = ""
    collation: str
    probe: Probe

    def holds(self, condition: Condition, value: Value) -> bool:
        """Whether a value of the column satisfies the condition."""
        return self.probe.holds(condition, value, affinity=self.affinity, collation=self.collation)

    def draw(self, rng: Random) -> Value:
        """One value by the shares above."""
        if self.nulls and rng.random() < self.nulls:
            return None
        if self.allowed:
            return self.allowed[int(rng.random() * len(self.allowed))]
        chance = rng.random()
        if chance < SHARE_EXISTING and self.existing:
            return self.existing[int(rng.random() * len(self.existing))]
        if chance < SHARE_EXISTING + SHARE_LITERAL and self.literals:
            return self.literals[int(rng.random() * len(self.literals))]
        return self.fresh(rng)

    def fresh(self, rng: Random) -> Value:
        """A value made by kind and range."""
        pattern = self.pattern
        if self.existing and isinstance(
            shown := self.existing[int(rng.random() * len(self.existing))], str
        ):
            pattern = shown
        return stored(fresh_value(self.kind, self.low, self.high, pattern, rng), self.affinity)

    def beside(self, value: Value, rng: Random) -> Value:
        """A value a slightly wrong query would confuse with `value`, as the column stores it."""
        return stored(beside(value, self.kind, rng), self.affinity)


def plan_column(
    column: Column,
    values: Sequence[Value],
    literals: Iterable[Value],
    *,
    unique: bool,
    observed: bool,
    label: bool,
    repeats: bool,
    reference: bool,
    rng: Random,
    collation: str,
    probe: Probe,
) -> ColumnPlan:
    """The plan of a column from the rows it has and the literals golds compare it with.

    `observed` also keeps what the rows show without the DDL saying so: no NULL, no repeat; that
    every row of few points at a `reference` of its own shows nothing of the kind.
    """
    affinity = affinity_of(column.type)
    known: list[Value] = [v for v in values if v is not None]
    wanted = [stored(v, affinity) for v in literals if v is not None]
    kind = kind_of(column.name, column.type, known, wanted)
    low, high = _range(kind, column.name, known, wanted)
    share = (len(values) - len(known)) / len(values) if values else 0.0
    if not observed:
        share = max(share, 0.08)
    plan = ColumnPlan(
        name=column.name,
        affinity=affinity,
        kind=kind,
        existing=known,
        low=low,
        high=high,
        not_null=column.not_null,
        nulls=0.0 if column.not_null or column.primary_key else min(share, 0.25),
        unique=unique
        or (
            observed
            and not reference
            and observed_unique(column.name, known, label=label, repeats=repeats)
        ),
        pattern=next((v for v in wanted if isinstance(v, str) and "%" not in v), ""),
        collation=collation,
        probe=probe,
    )
    for value in dict.fromkeys(wanted):
        near = [plan.beside(value, rng), plan.beside(value, rng)]
        # where a value comes only once, it is left to the scenario that asks for it
        plan.literals += near if plan.unique else [value, value, *near]
    return plan


def observed_unique(
    name: str, values: Sequence[Value], *, label: bool = False, repeats: bool = False
) -> bool:
    """True where the rows show a column without repeats: ten of them, or two of what names a row.

    Names by their column's name, and the label of a dictionary table (`label`); what a gold counts
    with DISTINCT (`repeats`) does not.
    """
    distinct = len(set(values))
    if distinct < len(values) or distinct < 2:
        return False
    if distinct >= UNIQUE_FROM:
        return True
    if repeats:
        return False
    return label or (NAME_LIKE.search(name) is not None and not NAME_PART.search(name))


def _range(
    kind: Kind, name: str, known: Sequence[Value], literals: Sequence[Value]
) -> tuple[float, float]:
    if kind in (Kind.DATE, Kind.MOMENT):
        years = [
            float(v[:4]) for v in (*known, *literals) if isinstance(v, str) and v[:4].isdigit()
        ]
        return (min(years), max(years)) if years else _YEARS
    numbers = [n for n in map(_number, (*known, *literals)) if n is not None]
    if not numbers:
        if kind is Kind.YEAR or "year" in name.lower():
            return _YEARS
        return (1.0, 100.0)
    low, high = min(numbers), max(numbers)
    pad = max(1.0, (high - low) * 0.25, 0.2 * abs(high) if low == high else 0.0)
    if all(1900 <= n <= 2100 for n in numbers) or set(numbers) <= {0.0, 1.0}:
        pad = 1.0 if high > 1 else 0.0
    floor = 0.0 if low >= 0 else low - pad
    return (max(floor, low - pad), high + pad)


def _number(value: Value) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < 1e15 else None
