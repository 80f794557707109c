"""What a completion says: its thinking, its tool calls. Text only, nothing runs.

Calls are `{"tool": NAME, "args": {…}}` objects. A missing `args`, args as a JSON string, prose
and code fences around them and line ends inside strings are accepted, since the meaning is
plain. Anything else that sets out to be a call is an unreadable one, for which the policy gets
an error. `<think>` blocks are never searched; where the block's opening stands in the prompt,
`</think>` alone ends it.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

OPEN, CLOSE = "<think>", "</think>"
MAX_UNREADABLE = 16
"""Unreadable objects after which the rest of a turn is left unread."""
MAX_PROSE = 100
"""Braces that open no object, after which a text is taken for prose. Each costs as much as the
text is long, and a policy can write a hundred thousand a turn."""
_OBJECT_START = re.compile(r"\{\s*[\"}]")
_NEXT = re.compile(r"<think>|</think>|\{")
_CALL_START = re.compile(r"\{\s*['\"]?(?:tool|name|args|arguments|function)\b")
_CALL_KEYS = frozenset(("tool", "args", "name", "arguments", "function"))


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call as written."""

    tool: str = ""
    arguments: dict[str, Any] = {}
    problem: str = ""
    """What is wrong with its form, for the policy to read; empty where it is well formed."""
    text: str = ""
    """The call's own text; for an unreadable one its first characters."""


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """One completion, taken apart."""

    calls: tuple[Call, ...]
    answer: str
    """What was written behind the last `<think>` block; before one that does not end."""
    unfinished_thinking: bool = False
    unread: bool = False
    """More calls stand behind the last unreadable one that was read."""


def parse_completion(completion: str, *, opened_thinking: bool = False) -> Parsed:
    """The calls of a completion in order, and its text without thinking.

    `opened_thinking` says that the prompt already ended in `<think>`.
    """
    calls: list[Call] = []
    position, unreadable, prose, thought, unread = 0, 0, 0, False, False
    if opened_thinking and not completion.lstrip().startswith(OPEN):
        end = completion.find(CLOSE)
        if end < 0:
            return Parsed(calls=(), answer="", unfinished_thinking=True)
        position, thought = end + len(CLOSE), True
    told = position
    while match := _NEXT.search(completion, position):
        start = match.start()
        if match[0] == OPEN:
            end = completion.find(CLOSE, match.end())
            if end < 0:
                answer = completion[told:start].strip()
                return Parsed(calls=tuple(calls), answer=answer, unfinished_thinking=True)
            position = told = end + len(CLOSE)
            thought = True
        elif match[0] == CLOSE:
            if not thought:  # the block was opened in the prompt: all so far was thinking
                calls, thought = [], True
            position = told = match.end()
        elif _CALL_START.match(completion, start) or (
            prose < MAX_PROSE and _OBJECT_START.match(completion, start)
        ):  # behind too much prose only what starts like a call is read
            call, position = _read_call(completion, start)
            if call is not None:
                calls.append(call)
                unreadable += bool(call.problem and not call.tool)
                if unreadable >= MAX_UNREADABLE:
                    unread = _CALL_START.search(completion, position) is not None
                    break
            elif position == start + 1:
                prose += 1
        else:
            position = start + 1
    return Parsed(calls=tuple(calls), answer=completion[told:].strip(), unread=unread)


def _read_call(text: str, start: int) -> tuple[Call | None, int]:
    """The call that starts at this brace, None where it is prose; and where to read on."""
    try:
        found, end = _read_object(text, start)
    except UnreadableError as e:
        if not _CALL_START.match(text, start):
            return None, start + 1
        following = _CALL_START.search(text, start + 1)
        end = following.start() if following else len(text)
        stops = [text.find(mark, start, end) for mark in (CLOSE, OPEN)]
        return Call(problem=str(e), text=text[start:end][:200]), min(
            [end, *(at for at in stops if at >= 0)]
        )
    return (_call(found, text[start:end]) if _CALL_KEYS & found.keys() else None), end


def _call(found: dict[str, Any], text: str) -> Call:
    tool = found.get("tool")
    if not isinstance(tool, str) or not tool:
        return Call(problem='a call is {"tool": NAME, "args": {…}}: "tool" is missing', text=text)
    if extra := [key for key in found if key not in ("tool", "args")]:
        return Call(tool=tool, problem=f"a call has no key {extra[0]!r}", text=text)
    arguments = found.get("args", {})
    if isinstance(arguments, str):
        with suppress(UnreadableError):
            arguments = read_json(arguments)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return Call(tool=tool, problem="args must be a JSON object", text=text)
    return Call(tool=tool, arguments=arguments, text=text)


# JSON objects in what a policy wrote, read as strictly as a call needs: no key twice, no NaN.


class UnreadableError(Exception):
    """An object that cannot be read; the text is for the policy."""


def read_json(text: str) -> Any:
    """The value of a text that is JSON as a whole. Raises UnreadableError for another."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as e:
        raise UnreadableError("no JSON") from e


def iter_objects(text: str) -> Iterator[dict[str, Any]]:
    """The objects of a text that stand in no other one, in order."""
    position = prose = 0
    while prose < MAX_PROSE and (match := _OBJECT_START.search(text, position)):
        try:
            found, position = _read_object(text, match.start())
        except UnreadableError:
            prose += 1
            position = match.start() + 1
        else:
            yield found


def _read_object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """The object that starts at this brace, and where it ends. Raises UnreadableError without."""
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as e:
        cut_off = e.pos >= len(text.rstrip()) or e.msg.startswith("Unterminated string")
        reason = "the JSON is cut off" if cut_off else f"the JSON cannot be read: {e.msg}"
        raise UnreadableError(reason) from e
    except RecursionError as e:
        raise UnreadableError("the JSON is nested too deeply") from e
    except ValueError as e:
        raise UnreadableError("the JSON holds a number that is none") from e


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:  # which value is meant is not plain
            raise UnreadableError(f"the key {key!r} stands twice in one object")
        found[key] = value
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_number, strict=False)
"""Line ends inside strings are let through: policies write SQL over several lines."""
