"""One plan a column: what sort of values it holds, which it may take, and how one is drawn."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from random import Random

from envbuild.materialize.values import affinity_of
from envbuild.records.execution import Value
from envbuild.records.signal import Condition
from envbuild.sql.connect import SQLiteError, open_private

NUMERIC = ("integer", "numeric", "real")
"""Affinities that turn a text of digits into a number."""
BUILT_IN_COLLATIONS = ("BINARY", "NOCASE", "RTRIM")
SHARE_EXISTING, SHARE_LITERAL = 0.40, 0.35
"""How often a drawn value repeats one of the column, or a gold literal and its near misses."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_YEARS = (2018.0, 2024.0)


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


_PATTERNS = (
    (re.compile(r"\d{4}-\d\d-\d\d"), Kind.DATE),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?Z?"), Kind.MOMENT),
    (re.compile(r"\d\d?:\d\d(:\d\d(\.\d+)?)?"), Kind.TIME),
    (_NUMBER, Kind.DIGITS),
    (re.compile(r"[^@\s]+@[^@\s]+\.\w+"), Kind.EMAIL),
    (re.compile(r"(?=.*\d)[A-Za-z0-9_\-./() +]{1,20}|[A-Z]{1,6}"), Kind.CODE),
)
"""What three quarters of a column's texts look like; the first that fits counts."""
_NAMED = (
    (r"email", Kind.EMAIL),
    (r"timestamp|date_?time|created|updated|_at|last_login", Kind.MOMENT),
    (r"date|_day|birth|dob", Kind.DATE),
    (r"time", Kind.TIME),
    (r"year", Kind.YEAR),
    (r"phone|code|zip|_id|isbn|number|sku", Kind.CODE),
)
"""What the name of a text column without values says; the first that fits counts."""


def kind_of(name: str, declared: str, *examples: Sequence[Value]) -> Kind:
    """The kind of a column: what its values or else its literals show, else its type and name."""
    affinity = affinity_of(declared)
    for shown in examples:
        if shown and (kind := _shown(shown[:40], affinity)) is not None:
            return kind
    name, declared = name.lower(), declared.upper()
    if "BLOB" in declared:
        return Kind.BYTES
    if "DATE" in declared or "TIMESTAMP" in declared:
        return Kind.MOMENT if "TIME" in declared else Kind.DATE
    if "BOOL" in declared or name.startswith(("is_", "has_")):
        return Kind.FLAG
    if affinity in NUMERIC:
        if "year" in name and affinity != "real":
            return Kind.YEAR
        return Kind.INTEGER if affinity == "integer" else Kind.REAL
    return next((kind for words, kind in _NAMED if re.search(words, name)), Kind.WORDS)


def _shown(sample: Sequence[Value], affinity: str) -> Kind | None:
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


def value_range(
    kind: Kind, name: str, known: Sequence[Value], literals: Sequence[Value]
) -> tuple[float, float]:
    """What new numbers (years, for dates) lie within: what there is, and some room around it."""
    values = (*known, *literals)
    if kind in (Kind.DATE, Kind.MOMENT):
        years = [float(v[:4]) for v in values if isinstance(v, str) and v[:4].isdigit()]
        return (min(years), max(years)) if years else _YEARS
    numbers = [n for n in map(_number, values) if n is not None]
    if not numbers:
        return _YEARS if kind is Kind.YEAR or "year" in name.lower() else (1.0, 100.0)
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


def stored(value: Value, affinity: str) -> Value:
    """The value as SQLite keeps it in a column of this affinity."""
    if value is None or (affinity == "text" and isinstance(value, str)):
        return value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value)
    if affinity == "text" and isinstance(value, int | float):
        whole = isinstance(value, float) and value.is_integer()
        return str(int(value) if whole else value)
    if affinity in NUMERIC:
        if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
            value = float(value) if "." in value or len(value) > 18 else int(value)
        if isinstance(value, int) and affinity == "real" and abs(value) < 2**53:
            return float(value)
        if isinstance(value, float) and affinity != "real" and abs(value) < 2**53:
            return int(value) if value.is_integer() else value
    return value


# Fresh values. Seeded draws: `int(random() * n)` costs a fraction of `randrange(n)`.

_STARTS = (
    *("b", "br", "c", "ch", "d", "f", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "pr", "r"),
    *("s", "st", "t", "tr", "v", "w", "z"),
)
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "io")
_ENDS = ("", "n", "r", "l", "s", "t", "nd", "rk", "x")
_SYLLABLES = (_STARTS, _VOWELS, _STARTS, _VOWELS, _ENDS)
_LAST_DAY = 28
"""No month is shorter, so that no made date is impossible."""


def word(rng: Random) -> str:
    """A pronounceable word of two syllables."""
    return "".join([part[int(rng.random() * len(part))] for part in _SYLLABLES])


def _words(_low: float, _high: float, shown: str, rng: Random) -> str:
    count = min(3, max(1, shown.count(" ") + 1)) if shown else 2
    made = " ".join([word(rng) for _ in range(count)])
    if shown.islower():
        return made
    return made.upper() if shown.isupper() and len(shown) > 1 else made.title()


def _integer(low: float, high: float, _shown: str, rng: Random) -> int:
    return int(low) + int(rng.random() * (int(high) - int(low) + 1))


def _digits(low: float, high: float, shown: str, rng: Random) -> str:
    if "." in shown:
        places = len(shown.partition(".")[2])
        return f"{low + rng.random() * (high - low):.{places}f}"
    number = str(_integer(low, high, "", rng))
    return number.zfill(len(shown)) if shown.startswith("0") else number


def _day(low: float, high: float, _shown: str, rng: Random) -> str:
    year = int(low + rng.random() * (high - low + 0.999)) if high >= low else int(low)
    month, day = 1 + int(rng.random() * 12), 1 + int(rng.random() * _LAST_DAY)
    return f"{year:04d}-{month:02d}-{day:02d}"


def _moment(low: float, high: float, shown: str, rng: Random) -> str:
    joint = "T" if "T" in shown else " "
    return f"{_day(low, high, '', rng)}{joint}{_clock(low, high, '', rng)}"


def _clock(_low: float, _high: float, shown: str, rng: Random) -> str:
    hour, minute, second = [int(rng.random() * n) for n in (24, 60, 60)]
    clock = f"{hour:02d}:{minute:02d}:{second:02d}"
    return clock[:5] if shown.count(":") == 1 else clock


def _code(_low: float, _high: float, shown: str, rng: Random) -> str:
    made = []
    for letter in shown or "AA-0000":
        if letter.isdigit():
            made.append(str(int(rng.random() * 10)))
        elif letter.isascii() and letter.isalpha():
            made.append(chr(ord("A" if letter.isupper() else "a") + int(rng.random() * 26)))
        else:
            made.append(letter)
    return "".join(made)


_MAKERS: dict[Kind, Callable[[float, float, str, Random], Value]] = {
    Kind.INTEGER: _integer,
    Kind.REAL: lambda low, high, _, rng: round(low + rng.random() * (high - low), 2),
    Kind.DIGITS: _digits,
    Kind.DATE: _day,
    Kind.MOMENT: _moment,
    Kind.TIME: _clock,
    Kind.YEAR: lambda low, high, _, rng: str(int(low + rng.random() * (high - low))),
    Kind.FLAG: lambda _low, _high, _, rng: int(rng.random() < 0.5),
    Kind.EMAIL: lambda _low, _high, _, rng: f"{word(rng)}.{word(rng)}@{word(rng)}.com",
    Kind.CODE: _code,
    Kind.BYTES: lambda _low, _high, _, rng: rng.randbytes(8),
    Kind.WORDS: _words,
}
"""A new value: a number (for dates a year) within [low, high], a text like the one shown."""


def fresh_day(rng: Random) -> str:
    """An ISO date of this century."""
    return _day(2000, 2024, "", rng)


def beside(value: Value, kind: Kind, rng: Random) -> Value:
    """A value that a slightly wrong query would confuse with `value`."""
    if isinstance(value, int):
        return value + (1 if rng.random() < 0.5 else -1)
    if isinstance(value, float):
        step = 0.1 if rng.random() < 0.5 else 1.0
        return round(value + (step if rng.random() < 0.5 else -step), 6)
    if not isinstance(value, str):
        return value
    if kind in (Kind.DATE, Kind.MOMENT) and (moved := moved_day(value, rng.choice((-1, 1)))):
        return moved
    if re.fullmatch(r"-?\d{1,15}", value):
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
        cell = self._cells.get((affinity, collation))
        if cell is None:
            cell = self._cells[affinity, collation] = f"cell{len(self._cells)}"
            self._connection.execute(
                f"CREATE TABLE {cell} (v {affinity} COLLATE {collation});"
                f" INSERT INTO {cell} VALUES (NULL)"
            )
        sql = f"UPDATE {cell} SET v = ? RETURNING {condition_sql(condition)}"
        try:
            return bool(self._connection.execute(sql, (value, *condition.values)).get)
        except (SQLiteError, OverflowError):
            return True


def condition_sql(condition: Condition) -> str:
    """The condition as SQL over the column `v`, its literals as `?`."""
    op, shown, marks = condition.op, condition.expression, ["?"] * len(condition.values)
    if op in ("null", "not null"):
        return f"{shown} IS {op}"
    if op in ("in", "not in"):
        return f"{shown} {op} ({', '.join(marks)})"
    return f"{shown} {op} {' AND '.join(marks)}"


@dataclass(slots=True, kw_only=True)
class ColumnPlan:
    """The values of one column."""

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
    """A gold literal that new texts are made like where the column holds none."""
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
        shown: Value = self.pattern
        if self.existing:
            shown = self.existing[int(rng.random() * len(self.existing))]
        like = shown if isinstance(shown, str) else self.pattern
        return stored(_MAKERS[self.kind](self.low, self.high, like, rng), self.affinity)

    def beside(self, value: Value, rng: Random) -> Value:
        """A value a slightly wrong query would confuse with `value`, as the column stores it."""
        return stored(beside(value, self.kind, rng), self.affinity)
