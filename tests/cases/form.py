"""The form of a case: its values, and what compares them; a key nobody knows fails the case.

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
from typing import Any

import pytest

ONE_OF = "_one_of"
KILL_LIMITS = ("max_wall_s", "max_total_s")
"""Seconds that no check looks at: at ten times as many the case is broken off."""
FAILED = ("error", "denied", "invalid")
"""A status `error` in a case accepts the other two as well."""
Check = Callable[..., object]
"""Takes the expected value and the groups of the key's pattern; fails by assertion."""
Checks = Mapping[str, Check]
"""Pattern of a key of `expected` -> its check."""


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


def check_all(checks: Checks, expected: Mapping[str, Any]) -> None:
    """Runs the check of every expected key; fails first for keys that have none."""
    found = {key: find_check(checks, key) for key in expected}
    refuse_unknown([key for key, check in found.items() if check is None], "expected")
    for key, check in found.items():
        assert check is not None
        check(expected[key])


def find_check(checks: Checks, key: str) -> Check | None:
    """The check of a key; None where nobody knows it."""
    if is_note(key) or key in KILL_LIMITS:
        return lambda expected: None
    for pattern, check in checks.items():
        if match := re.fullmatch(pattern, key):
            return lambda expected: check(expected, *match.groups())
    base = find_check(checks, key.removesuffix(ONE_OF)) if key.endswith(ONE_OF) else None
    return partial(check_any, base) if base else None


def check_any(check: Check, alternatives: Iterable[Any]) -> None:
    """Passes where the check passes for one of the alternatives."""
    failures = []
    for alternative in alternatives:
        try:
            check(alternative)
            return
        except AssertionError as e:
            failures.append(str(e))
    pytest.fail("none of the alternatives holds:\n" + "\n".join(failures))


def refuse_unknown(unknown: Sequence[str], place: str) -> None:
    """Fails where a key is left that is no sentence for the reader."""
    unknown = [key for key in unknown if not is_note(key)]
    assert not unknown, f"unknown keys of {place}: {unknown}"


def is_note(key: str) -> bool:
    """A sentence for the reader."""
    return key == "note" or key.endswith("_note")


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
    """The value with the type of every leaf, so that 1 is not 1.0; -0.0 is 0.0.

    Text that is not valid counts as it is shown, with U+FFFD.
    """
    if isinstance(value, dict):
        return {key: deep(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [deep(inner) for inner in value]
    if isinstance(value, str):
        return "str", str(value)
    return type(value).__name__, "nan" if value != value else value


def same_rows(found: Iterable[Sequence[Any]], expected: Iterable[Any]) -> None:
    """The same rows in the same order, value for value and type for type."""
    same(deep(list(found)), deep(value_of(expected)))


def same_bag(found: Iterable[Any], expected: Iterable[Any]) -> None:
    """The same rows or values as often, in any order."""
    same(*(sorted(deep(list(rows)), key=repr) for rows in (found, value_of(expected))))


def same_status(found: str, expected: str) -> None:
    """`error` accepts every way of refusing."""
    holds(found in (FAILED if expected == "error" else (expected,)), f"{found}, not {expected}")


def same(found: Any, expected: Any) -> None:
    """Equal."""
    assert found == expected, f"{found!r}, expected {expected!r}"


def same_number(found: float | None, expected: float | None) -> None:
    """Equal up to the last digits; None only to None."""
    holds(close(found, expected), f"{found}, expected {expected}")


def close(found: float | None, expected: float | None) -> bool:
    """`same_number`, as a question."""
    if found is None or expected is None:
        return found is expected
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)


def at_most(found: float | None, bound: float) -> None:
    """What is measured does not exceed the bound."""
    assert found is not None
    assert found <= bound + 1e-9, f"{found}, at most {bound}"


def holds(condition: object, otherwise: object = "") -> None:
    """An assertion as a function."""
    assert condition, otherwise


def as_list(value: Any) -> list[Any]:
    """One value, or a list of them."""
    return list(value) if isinstance(value, list | tuple) else [value]


def each(check: Callable[[Any, Any], object], parts: Sequence[Any], expected: Any) -> None:
    """The check of every part: a value for each, or one for all."""
    wanted = expected if isinstance(expected, list) else [expected] * len(parts)
    assert len(wanted) == len(parts), f"{len(parts)} results, {len(wanted)} expected"
    for part, value in zip(parts, wanted, strict=True):
        check(part, value)


def plain(text: str) -> str:
    """Letters and digits alone, in lower case: `ragged_row` and `Ragged row` are the same."""
    return re.sub(r"[^a-z0-9]+", "", text.lower())


def says(texts: Any, expected: Any) -> None:
    """The text, or one of several, says every expected one, whatever its case and punctuation."""
    for wanted in map(str, as_list(expected)):
        found = [
            t for t in as_list(texts) if wanted.lower() in t.lower() or plain(wanted) in plain(t)
        ]
        assert found, f"{wanted!r} is not said in {texts!r}"


def contains(texts: Any, expected: Any) -> None:
    """The text, or one of several, holds every expected one as it is."""
    for wanted in map(str, as_list(expected)):
        assert any(wanted in text for text in as_list(texts)), f"{wanted!r} is not in {texts!r}"


def lacks(texts: Any, expected: Any) -> None:
    """The text, or any of several, holds none of the expected ones."""
    for text in as_list(texts):
        assert not [one for one in as_list(expected) if one in text], text
