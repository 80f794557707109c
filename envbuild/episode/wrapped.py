"""The texts inside the JSON objects of a final answer, in whatever form a model writes a call.

`{"tool": …, "args": {"sql": …}}`, `{"name": …, "arguments": "{\"sql\": …}"}`, `{"sql": …}`,
`{"answer": …}`: what counts is where a text stands that is called `sql`, or starts a statement.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from envbuild.episode.objects import UnreadableError, iter_objects, read_json
from envbuild.episode.readings import starts_statement
from envbuild.episode.statement_ends import QUERY

MOST_OBJECTS = 64
"""Objects of a text that are looked into, the last ones."""
_DEEPEST = 12
_NAMES = ("tool", "name", "function")
_SAYS_SO = (re.compile("answer|final", re.IGNORECASE), re.compile("sql|query", re.IGNORECASE))
"""Names of what is the answer, the surest first."""
_OTHER_TOOLS = frozenset(("run_query",))


class Unwrapped(msgspec.Struct, frozen=True):
    """The texts that may hold the answer, each kind the likeliest first."""

    submitted: tuple[str, ...]
    """Called `sql`, in no call or in one of submit_sql."""
    outside: str
    """The text without the objects that hold any of these, its length kept."""
    others: tuple[str, ...]
    """Any other that holds a query: a text by another name, a call of run_query."""


def unwrapped(text: str) -> Unwrapped:
    """A final answer's text, taken apart."""
    submitted: list[str] = []
    others: list[tuple[int, bool, str]] = []
    outside = text
    for found in reversed(list(iter_objects(text))[-MOST_OBJECTS:]):
        inside = [
            (key, said) for key, said in _texts(found.value) if key == "sql" or QUERY.search(said)
        ]
        named = [said for key, said in inside if key == "sql"]
        if _tool(found.value) in _OTHER_TOOLS:
            others += [(len(_SAYS_SO), True, said) for said in named]
        elif named:
            submitted += reversed(named)
        else:
            others += [
                (_doubt(key), not starts_statement(said), said) for key, said in reversed(inside)
            ]
        if inside:
            blank = " " * (found.end - found.start)
            outside = outside[: found.start] + blank + outside[found.end :]
    others.sort(key=lambda other: other[:2])
    return Unwrapped(tuple(submitted), outside, tuple(said for _, _, said in others))


def _doubt(key: str) -> int:
    """How little a name says that the answer stands under it."""
    found = (doubt for doubt, name in enumerate(_SAYS_SO) if name.search(key))
    return next(found, len(_SAYS_SO))


def _texts(value: Any, *, key: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every text in a value, with the key it stands under; JSON in a text is read too."""
    if depth > _DEEPEST:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, key=name, depth=depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key=key, depth=depth + 1)
    elif isinstance(value, str) and value.strip():
        if value.lstrip().startswith(("{", "[")):
            try:
                yield from _texts(read_json(value), key=key, depth=depth + 1)
                return
            except UnreadableError:
                pass  # no JSON: then it is a text
        yield key, value


def _tool(call: dict[str, Any]) -> str:
    """The name of the tool a call is of; empty where it names none."""
    for name in _NAMES:
        if isinstance(found := call.get(name), str):
            return found
        if isinstance(found, dict):
            return _tool(found)
    return ""
