"""Fresh values of each kind, and values beside a given one."""

import re
from datetime import date, timedelta
from random import Random

from envbuild.records.execution import Value
from envbuild.signal.amplify.kinds import Kind

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
