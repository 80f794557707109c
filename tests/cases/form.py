"""The form of a case: values, statuses, and checks by key; a key that nobody knows fails the case.

A line is `{id, capability, input, expected, …}` (CONTRACT 12). Rows are lists, blobs are
`{"$hex": "ff"}`, infinities `{"$float": "inf"}`; 1 and 1.0 are different values. A key that ends in
`_one_of` lists what its base key may be; `note` and keys that end in `_note` say something to the
reader.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ONE_OF = "_one_of"
KILL_LIMITS = ("max_wall_s", "max_total_s")
"""Seconds that no check looks at: at ten times as many the case is broken off."""
FAILED = ("error", "denied", "invalid")
"""A status `error` in a case accepts the other two as well."""

Check = Callable[[Any, Any], None]
"""(what the run came to, the expected value); fails by assertion."""


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


@dataclass(frozen=True, kw_only=True)
class Checks:
    """What one capability knows: keys of `input`, and how each key of `expected` is checked."""

    inputs: str
    """Names, a blank between them."""
    by_key: Mapping[str, Check]
    by_pattern: Mapping[str, Callable[[Any, Any, re.Match[str]], None]] = field(
        default_factory=dict
    )
    """Keys that hold a number or a name, e.g. `turn2`, by regular expression."""

    def refuse_unknown(self, case: Case) -> None:
        """Fails the case for keys that nobody here knows."""
        unknown = [key for key in case.input if key not in self.inputs.split() and not is_note(key)]
        assert not unknown, f"unknown keys of input: {unknown}"
        self.refuse_unknown_expected(case.expected)

    def refuse_unknown_expected(self, expected: Mapping[str, Any]) -> None:
        """The same for what is expected, of the case or of one of its steps."""
        unknown = [key for key in expected if self._find(key) is None]
        assert not unknown, f"unknown keys of expected: {unknown}"

    def check(self, outcome: Any, expected: Mapping[str, Any]) -> None:
        """Runs the check of every expected key."""
        self.refuse_unknown_expected(expected)
        for key, value in expected.items():
            check = self._find(key)
            assert check is not None
            check(outcome, value)

    def _find(self, key: str) -> Check | None:
        if is_note(key) or key in KILL_LIMITS:
            return lambda outcome, value: None
        if key in self.by_key:
            return self.by_key[key]
        for pattern, check in self.by_pattern.items():
            if match := re.fullmatch(pattern, key):
                return lambda outcome, value, check=check, match=match: check(outcome, value, match)
        if key.endswith(ONE_OF) and (base := self._find(key.removesuffix(ONE_OF))):
            return lambda outcome, value: check_any(base, outcome, value)
        return None


def check_any(check: Check, outcome: Any, alternatives: Iterable[Any]) -> None:
    """Passes where the check passes for one of the alternatives."""
    failures = []
    for alternative in alternatives:
        try:
            return check(outcome, alternative)
        except AssertionError as e:
            failures.append(str(e))
    pytest.fail("none of the alternatives holds:\n" + "\n".join(failures))


def is_note(key: str) -> bool:
    """A sentence for the reader."""
    return key == "note" or key.endswith("_note")


def read_cases(path: Path) -> list[Case]:
    """Every case of a JSON-lines file."""
    cases = []
    for line in path.read_text(encoding="utf-8-sig").splitlines():
        if line.strip():
            record = json.loads(line)
            cases.append(
                Case(
                    id=str(record["id"]),
                    capability=record["capability"],
                    input=record.get("input") or {},
                    expected=record.get("expected") or {},
                )
            )
    return cases


def value_of(value: Any) -> Any:
    """The Python value of a JSON one: blobs and infinities decoded, lists walked."""
    if isinstance(value, dict):
        if set(value) == {"$hex"}:
            return bytes.fromhex(value["$hex"])
        if set(value) == {"$float"}:
            return float(value["$float"])
        return {key: value_of(inner) for key, inner in value.items()}
    return [value_of(inner) for inner in value] if isinstance(value, list) else value


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


def for_each(value: Any, count: int) -> list[Any]:
    """An expectation for each of `count`: a list, or one value that holds for all."""
    if isinstance(value, list):
        assert len(value) == count, f"{count} results, {len(value)} expected"
        return value
    return [value] * count


def plain(text: str) -> str:
    """Letters and digits alone, in lower case: `ragged_row` and `Ragged row` are the same."""
    return re.sub(r"[^a-z0-9]+", "", text.lower())


def says(text: str, wanted: str) -> bool:
    """Whether `text` says `wanted`, whatever its case and punctuation."""
    return wanted.lower() in text.lower() or plain(wanted) in plain(text)


def same_number(found: float | None, expected: float | None) -> None:
    """`close`, as a check."""
    assert close(found, expected), f"{found}, expected {expected}"


def close(found: float | None, expected: float | None) -> bool:
    """Equal up to the last digits; None only to None."""
    if found is None or expected is None:
        return found is expected
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)


def equals(measure: Callable[[Any], Any]) -> Check:
    """A check that what is measured of the outcome is what the case expects."""

    def check(outcome: Any, expected: Any) -> None:
        found = measure(outcome)
        assert found == expected, f"{found!r}, expected {expected!r}"

    return check


def in_any_order(measure: Callable[[Any], Iterable[Any]]) -> Check:
    """The same of a list whose order says nothing."""
    return lambda outcome, expected: equals(lambda o: sorted(measure(o)))(outcome, sorted(expected))


def at_most(measure: Callable[[Any], float]) -> Check:
    """A check that what is measured does not exceed the expected bound."""

    def check(outcome: Any, expected: float) -> None:
        found = measure(outcome)
        assert found is not None
        assert found <= expected + 1e-9, f"{found}, at most {expected}"

    return check


def contains(measure: Callable[[Any], Any], *, exactly: bool = False) -> Check:
    """A check that the measured text, or one of several, says every expected one."""

    def check(outcome: Any, expected: Any) -> None:
        texts = as_list(measure(outcome))
        for wanted in map(str, as_list(expected)):
            found = [text for text in texts if (wanted in text if exactly else says(text, wanted))]
            assert found, f"{wanted!r} is not in {texts!r}"

    return check


def lacks(measure: Callable[[Any], Any]) -> Check:
    """A check that the measured text, or any of several, holds none of the expected ones."""

    def check(outcome: Any, expected: Any) -> None:
        for text in as_list(measure(outcome)):
            assert not [one for one in as_list(expected) if one in text], text

    return check


def each(check: Check, parts: Callable[[Any], Sequence[Any]]) -> Check:
    """The check of every part of the outcome: a value for each, or one for all."""

    def checked(outcome: Any, expected: Any) -> None:
        found = parts(outcome)
        for part, wanted in zip(found, for_each(expected, len(found)), strict=True):
            check(part, wanted)

    return checked
