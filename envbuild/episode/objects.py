"""JSON objects in what a policy wrote, read as strictly as a call needs: no key twice, no NaN."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

MAX_PROSE = 100
"""Braces that open no object, after which a text is taken for prose. Each costs as much as the
text is long, and a policy can write a hundred thousand a turn."""
_OBJECT_START = re.compile(r"\{\s*[\"}]")


class UnreadableError(ValueError):
    """An object that cannot be read; the text is for the policy."""


class Object(NamedTuple):
    """One object: `text[start:end]` of what was written."""

    value: dict[str, Any]
    start: int
    end: int


def read_object(text: str, start: int) -> Object:
    """The object that starts at this brace. Raises UnreadableError where there is none."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except _DuplicateKeyError as e:
        raise UnreadableError(f"the key {e.args[0]!r} stands twice in one object") from e
    except json.JSONDecodeError as e:
        cut_off = e.pos >= len(text.rstrip()) or e.msg.startswith("Unterminated string")
        reason = "the JSON is cut off" if cut_off else f"the JSON cannot be read: {e.msg}"
        raise UnreadableError(reason) from e
    except RecursionError as e:
        raise UnreadableError("the JSON is nested too deeply") from e
    except ValueError as e:
        raise UnreadableError("the JSON holds a number that is none") from e
    return Object(value, start, end)


def read_json(text: str) -> Any:
    """The value of a text that is JSON as a whole. Raises UnreadableError for another."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as e:
        raise UnreadableError("no JSON") from e


def starts_object(text: str, start: int) -> bool:
    """Whether an object may start at this brace: a key or its end follows."""
    return _OBJECT_START.match(text, start) is not None


def iter_objects(text: str) -> Iterator[Object]:
    """The objects of a text that stand in no other one, in order."""
    position = prose = 0
    while prose < MAX_PROSE and (match := _OBJECT_START.search(text, position)):
        try:
            found = read_object(text, match.start())
        except UnreadableError:
            prose += 1
            position = match.start() + 1
        else:
            yield found
            position = found.end


class _DuplicateKeyError(ValueError):
    """A key that stands twice: which value is meant is not plain."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(key)
        found[key] = value
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_number, strict=False)
"""Line ends inside strings are let through: policies write SQL over several lines."""
