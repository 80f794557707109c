"""What a completion says: its thinking, its tool calls, its final SQL. Text only, nothing runs.

Calls are `{"tool": NAME, "args": {…}}` objects. A missing `args`, args as a JSON string, prose and
code fences around them and line ends inside strings are accepted, since the meaning is plain.
Anything else that sets out to be a call is an unreadable one, for which the policy gets an error.
`<think>` blocks are never searched; where the block's opening stands in the prompt, `</think>`
alone ends it.
"""

import re
from typing import Any

import msgspec

from envbuild.episode.objects import (
    MAX_PROSE,
    UnreadableError,
    read_json,
    read_object,
    starts_object,
)

OPEN, CLOSE = "<think>", "</think>"
MAX_UNREADABLE = 16
"""Unreadable objects after which the rest of a turn is left unread."""
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
        else:
            if not _may_be_call(completion, start, prose):
                position = start + 1
                continue
            call, position = _read_object(completion, start)
            prose += call is None and position == start + 1
            if call is not None:
                calls.append(call)
                unreadable += bool(call.problem and not call.tool)
                if unreadable >= MAX_UNREADABLE:
                    unread = _CALL_START.search(completion, position) is not None
                    break
    return Parsed(calls=tuple(calls), answer=completion[told:].strip(), unread=unread)


def _may_be_call(text: str, start: int, prose: int) -> bool:
    """Behind too much prose only what starts like a call is read."""
    if prose < MAX_PROSE and starts_object(text, start):
        return True
    return _CALL_START.match(text, start) is not None


def _read_object(text: str, start: int) -> tuple[Call | None, int]:
    """The call that starts at this brace, None where it is prose; and where to read on."""
    try:
        found, _, end = read_object(text, start)
    except UnreadableError as e:
        return _unreadable(text, start, str(e))
    if not _CALL_KEYS & found.keys():
        return None, end
    return _call(found, text[start:end]), end


def _call(found: dict[str, Any], text: str) -> Call:
    tool = found.get("tool")
    if not isinstance(tool, str) or not tool:
        return Call(problem='a call is {"tool": NAME, "args": {…}}: "tool" is missing', text=text)
    if extra := [key for key in found if key not in ("tool", "args")]:
        return Call(tool=tool, problem=f"a call has no key {extra[0]!r}", text=text)
    arguments = found.get("args", {})
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments)
        except UnreadableError:
            return Call(tool=tool, problem="args must be a JSON object", text=text)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return Call(tool=tool, problem="args must be a JSON object", text=text)
    return Call(tool=tool, arguments=arguments, text=text)


def _unreadable(text: str, start: int, reason: str) -> tuple[Call | None, int]:
    if not _CALL_START.match(text, start):
        return None, start + 1
    following = _CALL_START.search(text, start + 1)
    end = following.start() if following else len(text)
    closing = text.find(CLOSE, start, end)
    think = text.find(OPEN, start, end)
    stops = [at for at in (closing, think) if at >= 0]
    return Call(problem=reason, text=text[start:end][:200]), min([end, *stops])
