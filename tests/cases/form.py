"""The form of a case: values, statuses, and a method for every key; a key nobody knows fails it.

A line is `{id, capability, input, expected, …}` (CONTRACT 12). Rows are lists, blobs are
`{"$hex": "ff"}`, infinities `{"$float": "inf"}`; 1 and 1.0 are different values. A key that ends in
`_one_of` lists what its base key may be; `note` and keys that end in `_note` say something to the
reader.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

ONE_OF = "_one_of"
KILL_LIMITS = ("max_wall_s", "max_total_s")
"""Seconds that no check looks at: at ten times as many the case is broken off."""
FAILED = ("error", "denied", "invalid")
"""A status `error` in a case accepts the other two as well."""
Check = Callable[[Any], None]
"""Takes the expected value; fails by assertion."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of a cases file."""

    id: str
    capability: str
    input: dict[str, Any]
    expected: dict[str, Any]

    @property
    def seconds(self) -> float:
        """When the case is broken off; generous, since other work may share the machine."""
        steps = [step.get("expect", {}) for step in self.input.get("steps", [])]
        named = [e[key] for e in (self.expected, *steps) for key in KILL_LIMITS if key in e]
        return 10.0 * sum(map(float, named)) or 300.0


class Keys:
    """Methods by the key they check.

    `found_KEY()` gives what the case's value is compared with; `check_KEY(expected)` compares
    itself. `patterns` has keys that hold a number or a name, by regular expression: the method's
    first argument is the match.
    """

    patterns: ClassVar[dict[str, str]] = {}

    def check(self, expected: Mapping[str, Any]) -> None:
        """Runs the check of every expected key."""
        self.refuse_unknown(expected)
        for key, value in expected.items():
            check = self.find(key)
            assert check is not None
            check(value)

    def refuse_unknown(self, expected: Mapping[str, Any]) -> None:
        """Fails for keys that nobody here knows."""
        unknown = [key for key in expected if self.find(key) is None]
        assert not unknown, f"unknown keys of expected: {unknown}"

    def find(self, key: str) -> Check | None:
        """The check of a key."""
        if is_note(key) or key in KILL_LIMITS:
            return lambda expected: None
        if check := getattr(self, f"check_{key}", None):
            return check  # type: ignore[no-any-return]
        if found := getattr(self, f"found_{key}", None):
            return lambda expected: same(found(), expected)
        for pattern, name in self.patterns.items():
            if match := re.fullmatch(pattern, key):
                return partial(getattr(self, name), match)
        if key.endswith(ONE_OF) and (base := self.find(key.removesuffix(ONE_OF))):
            return partial(check_any, base)
        return None


class Capability(Keys):
    """What a case of one capability may hold, and what is done with it.

    The subclass's docstring says what `run` makes of the input; it ends with `check`.
    """

    inputs: ClassVar[str] = ""
    """Keys of `input`, a blank between them."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.given, self.folder = case, case.input, folder

    def run(self) -> None:
        """Does what the input says, and checks what is expected."""
        raise NotImplementedError

    def refuse_unknown_keys(self) -> None:
        """Fails the case for keys of its input, or of what it expects, that nobody here knows."""
        known = self.inputs.split()
        unknown = [key for key in self.given if key not in known and not is_note(key)]
        assert not unknown, f"unknown keys of input: {unknown}"
        self.refuse_unknown(self.case.expected)


def check_any(check: Check, alternatives: Iterable[Any]) -> None:
    """Passes where the check passes for one of the alternatives."""
    failures = []
    for alternative in alternatives:
        try:
            return check(alternative)
        except AssertionError as e:
            failures.append(str(e))
    pytest.fail("none of the alternatives holds:\n" + "\n".join(failures))


def is_note(key: str) -> bool:
    """A sentence for the reader."""
    return key == "note" or key.endswith("_note")


def read_cases(path: Path) -> list[Case]:
    """Every case of a JSON-lines file."""
    records = map(json.loads, filter(str.strip, path.read_text("utf-8-sig").splitlines()))
    return [
        Case(
            id=str(record["id"]),
            capability=record["capability"],
            input=record.get("input") or {},
            expected=record.get("expected") or {},
        )
        for record in records
    ]


def value_of(value: Any) -> Any:
    """The Python value of a JSON one: blobs and infinities decoded, lists walked."""
    if isinstance(value, dict):
        if set(value) == {"$hex"}:
            return bytes.fromhex(value["$hex"])
        if set(value) == {"$float"}:
            return float(value["$float"])
        return {key: value_of(inner) for key, inner in value.items()}
    return [value_of(inner) for inner in value] if isinstance(value, list) else value


def deep(value: Any) -> Any:
    """The value with the type of every leaf."""
    if isinstance(value, dict):
        return {key: deep(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [deep(inner) for inner in value]
    return type(value).__name__, value


def rows_of(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Expected rows as tuples of values."""
    return [tuple(value_of(row)) for row in rows]


def typed(rows: Iterable[Sequence[Any]]) -> list[tuple[tuple[str, Any], ...]]:
    """Rows whose cells carry their type, so that 1 is not 1.0; -0.0 is 0.0.

    Text that is not valid counts as it is shown, with U+FFFD.
    """
    return [tuple(map(_typed, row)) for row in rows]


def _typed(cell: Any) -> tuple[str, Any]:
    if isinstance(cell, str):
        return "str", str(cell)
    return type(cell).__name__, "nan" if isinstance(cell, float) and math.isnan(cell) else cell


def assert_same_rows(found: Iterable[Sequence[Any]], expected: Iterable[Any]) -> None:
    """The same rows in the same order, value for value and type for type."""
    assert typed(found) == typed(rows_of(expected))


def assert_same_bag(found: Iterable[Sequence[Any]], expected: Iterable[Any]) -> None:
    """The same rows as often, in any order."""
    assert sorted(typed(found), key=repr) == sorted(typed(rows_of(expected)), key=repr)


def assert_status(found: str, expected: str) -> None:
    """`error` accepts every way of refusing."""
    accepted = FAILED if expected == "error" else (expected,)
    assert found in accepted, f"status {found}, expected {expected}"


def as_list(value: Any) -> list[Any]:
    """One value, or a list of them."""
    return list(value) if isinstance(value, list | tuple) else [value]


def each(check: Callable[[Any, Any], None], parts: Sequence[Any], expected: Any) -> None:
    """The check of every part: a value for each, or one for all."""
    wanted = expected if isinstance(expected, list) else [expected] * len(parts)
    assert len(wanted) == len(parts), f"{len(parts)} results, {len(wanted)} expected"
    for part, value in zip(parts, wanted, strict=True):
        check(part, value)


def plain(text: str) -> str:
    """Letters and digits alone, in lower case: `ragged_row` and `Ragged row` are the same."""
    return re.sub(r"[^a-z0-9]+", "", text.lower())


def says(text: str, wanted: str) -> bool:
    """Whether `text` says `wanted`, whatever its case and punctuation."""
    return wanted.lower() in text.lower() or plain(wanted) in plain(text)


def same(found: Any, expected: Any) -> None:
    """Equal."""
    assert found == expected, f"{found!r}, expected {expected!r}"


def same_number(found: float | None, expected: float | None) -> None:
    """Equal up to the last digits; None only to None."""
    assert close(found, expected), f"{found}, expected {expected}"


def close(found: float | None, expected: float | None) -> bool:
    """`same_number`, as a question."""
    if found is None or expected is None:
        return found is expected
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)


def at_most(found: float | None, bound: float) -> None:
    """What is measured does not exceed the bound."""
    assert found is not None
    assert found <= bound + 1e-9, f"{found}, at most {bound}"


def contains(texts: Any, expected: Any, *, exactly: bool = False) -> None:
    """The text, or one of several, says every expected one."""
    for wanted in map(str, as_list(expected)):
        found = [t for t in as_list(texts) if (wanted in t if exactly else says(t, wanted))]
        assert found, f"{wanted!r} is not in {texts!r}"


def lacks(texts: Any, expected: Any) -> None:
    """The text, or any of several, holds none of the expected ones."""
    for text in as_list(texts):
        assert not [one for one in as_list(expected) if one in text], text
