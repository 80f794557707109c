"""Capability tool protocol: turns, calls and queries through a whole episode."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.episode.text_episode import TextEpisode
from envbuild.episode.views import open_database
from envbuild.records.episode import EpisodeSettings, Task, ToolCall, Turn
from envbuild.sql.connect import open_read_only, quote_name
from tests.cases.databases import write_database
from tests.cases.form import Case, Checks, as_list, at_most, contains, each, equals, lacks

DEFAULTS = EpisodeSettings()
FAILED_RESULTS = ("error_result", "format_error_result", "error", "denied", "invalid")
_CALL = re.compile(r"(?:call )?(\w+)(?:\((.*)\))?", re.DOTALL)


@dataclass(kw_only=True)
class Outcome:
    """An episode after everything of the case was fed to it."""

    case: Case
    path: Path
    episode: TextEpisode
    stopped_after: int | None
    """How many queries had run when exploration was stopped; None where it was not."""
    before_final: bool
    """The episode had not ended before a final turn was asked for."""

    @property
    def turns(self) -> list[Turn]:
        """The turns that the case gave."""
        return self.episode.machine.turns

    @property
    def calls(self) -> list[ToolCall]:
        """Every call, in order."""
        return [call for turn in self.turns for call in turn.calls]

    @property
    def observations(self) -> str:
        """All that the policy was told."""
        return "\n".join(turn.observation for turn in self.turns)


def run(case: Case, folder: Path) -> None:
    """Feeds the case's turns to an episode on its database, and checks."""
    path = write_database(folder / "case.sqlite", case.input.get("ddl", ""))
    turns = _turns(case)
    database = open_database(path)
    settings = EpisodeSettings(
        tool_turns=max(DEFAULTS.tool_turns, len(turns) + 1),
        calls_a_turn=case.input.get("calls_per_turn"),
        failing_queries=DEFAULTS.failing_queries if "queries" in case.input else len(turns) + 1,
    )
    episode = TextEpisode(Task(question="?"), database, settings=settings)
    try:
        stopped_after = _feed(episode, turns)
        before_final = not episode.over
        if "final" in case.input:
            _finish(episode, case.input["final"] or "")
        CHECKS.check(
            Outcome(
                case=case,
                path=path,
                episode=episode,
                stopped_after=stopped_after,
                before_final=before_final,
            ),
            case.expected,
        )
    finally:
        episode.close()


def _turns(case: Case) -> list[str]:
    given = case.input
    turns = [given["turn"]] if "turn" in given else []
    turns += given.get("turns", [])
    turns += [json.dumps(call) for call in given.get("calls", [])]
    turns += [_query(sql) for sql in given.get("queries", [])]
    return turns


def _query(sql: str) -> str:
    return json.dumps({"tool": "run_query", "args": {"sql": sql}})


def _feed(episode: TextEpisode, turns: list[str]) -> int | None:
    for number, turn in enumerate(turns, 1):
        if episode.over:
            return number - 1
        episode.feed(turn)
        if episode.over or episode.machine.exploration_ended_by:
            return number
    return None


def _finish(episode: TextEpisode, final: str) -> None:
    """Uses the tool turns up by saying nothing, and answers the final one."""
    while (request := episode.next_request()) is not None:
        episode.feed(final if request.kind == "final" else "Let me think.")


def _check_calls(outcome: Outcome, expected: list[Any]) -> None:
    """The calls that were made, with their arguments; unreadable ones are no calls."""
    found = [
        {"tool": call.tool, "args": json.loads(call.arguments)}
        for call in outcome.calls
        if _is_call(call)
    ]
    assert found == [{"tool": c["tool"], "args": c.get("args", {})} for c in expected]


def _is_call(call: ToolCall) -> bool:
    """Well formed: not one that could not be read."""
    return bool(call.tool) and call.arguments.startswith("{")


def _is_that(call: ToolCall, wanted: Any) -> bool:
    """A call given as an object, or as `call NAME(argument=value, …)`."""
    if isinstance(wanted, dict):
        if call.tool != wanted["tool"] or not _is_call(call):
            return False
        return "args" not in wanted or bool(json.loads(call.arguments) == wanted["args"])
    match = _CALL.fullmatch(wanted.strip())
    assert match, f"unknown way to name a call: {wanted}"
    if call.tool != match[1]:
        return False
    arguments = json.loads(call.arguments)
    if not match[2]:
        return not match[2] or not arguments
    shown = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return shown == match[2]


def _check_must_include(outcome: Outcome, expected: list[Any]) -> None:
    for wanted in expected:
        assert any(_is_that(call, wanted) for call in outcome.calls), f"{wanted}: {outcome.calls}"


def _check_preferred(outcome: Outcome, expected: list[Any]) -> None:
    """Nothing else is called: the rest may be called or refused."""
    allowed = [*expected, *outcome.case.expected.get("must_include_calls", [])]
    for call in outcome.calls:
        if not call.failed:
            assert any(_is_that(call, wanted) for wanted in allowed), call


def _errors(outcome: Outcome) -> int:
    """Failed calls, and turns that held no call."""
    return sum(
        sum(call.failed for call in turn.calls) if turn.calls else 1 for turn in outcome.turns
    )


def _turn_matches(turn: Turn, wanted: Any) -> bool:
    if wanted in FAILED_RESULTS:
        return bool(turn.observation) and (not turn.calls or any(c.failed for c in turn.calls))
    if wanted in ("ok", "result"):
        return bool(turn.calls) and not any(call.failed for call in turn.calls)
    if isinstance(wanted, dict) or str(wanted).startswith("call"):
        return any(_is_that(call, wanted) and not call.failed for call in turn.calls)
    return _text_matches(turn, str(wanted))


def _text_matches(turn: Turn, wanted: str) -> bool:
    """`contains: …`, `not contains: …`, `equals: …`, or text that the observation holds."""
    kind, colon, text = wanted.partition(":")
    said = turn.observation
    match kind.strip().lower().replace("_", " ") if colon else "":
        case "contains":
            return text.strip() in said
        case "not contains" | "does not contain":
            return text.strip() not in said
        case "equals":
            return any(call.result == text.strip() for call in turn.calls)
        case _:
            return wanted in said


def _check_turn(outcome: Outcome, expected: Any, match: re.Match[str]) -> None:
    turn = outcome.turns[int(match[1]) - 1]
    assert _turn_matches(turn, expected), f"{expected}: {turn}"


def _check_one_of_turn(outcome: Outcome, expected: list[Any], match: re.Match[str]) -> None:
    turn = outcome.turns[int(match[1]) - 1]
    assert any(_turn_matches(turn, wanted) for wanted in expected), f"{expected}: {turn}"


def _check_results(outcome: Outcome, expected: list[Any]) -> None:
    assert len(outcome.turns) == len(expected)
    for turn, wanted in zip(outcome.turns, expected, strict=True):
        assert all(_turn_matches(turn, one) for one in as_list(wanted)), f"{wanted}: {turn}"


def _check_rows_left(outcome: Outcome, expected: int, match: re.Match[str]) -> None:
    assert _count(outcome, match[1]) == expected


def _count(outcome: Outcome, table: str) -> int:
    connection = open_read_only(outcome.path)
    ((count,),) = connection.execute(f"SELECT count(*) FROM {quote_name(table)}").fetchall()
    connection.close()
    return int(count)


def _check_null(outcome: Outcome, expected: list[str]) -> None:
    """A NULL never looks like one of these texts."""
    shown = {text: _shown(outcome, "'" + text.replace("'", "''") + "'") for text in expected}
    null = _shown(outcome, "NULL")
    assert null not in shown.values(), f"{null!r} in {shown}"
    assert len(set(shown.values())) == len(shown)


def _shown(outcome: Outcome, expression: str) -> str:
    database = open_database(outcome.path)
    episode = TextEpisode(Task(question="?"), database)
    try:
        episode.feed(_query(f"SELECT {expression} AS {quote_name('c')}"))
        (call,) = episode.machine.turns[0].calls
        return call.result
    finally:
        episode.close()


def _check_no_token(outcome: Outcome, expected: Any) -> None:
    for token in as_list(expected):
        pattern = rf"(?<![A-Za-z]){re.escape(token)}(?![A-Za-z])"
        assert not re.search(pattern, outcome.observations), f"{token} in {outcome.observations}"


def _folded(sql: str) -> str:
    return " ".join(sql.split()).rstrip("; ")


CHECKS = Checks(
    inputs="turn turns ddl calls calls_per_turn queries final",
    by_key={
        "calls": _check_calls,
        "must_include_calls": _check_must_include,
        "preferred_calls": _check_preferred,
        "n_error_results_at_least": lambda o, least: at_most(lambda o: least)(o, _errors(o)),
        "results": _check_results,
        "rollout_continues": equals(lambda o: o.before_final),
        "episode_ended": equals(lambda o: o.episode.over),
        "rows_left": lambda o, expected: equals(
            lambda o: {table: _count(o, table) for table in expected}
        )(o, expected),
        "status": lambda o, expected: equals(lambda o: not _errors(o))(o, expected == "ok"),
        "error_contains": contains(lambda o: o.observations),
        "null_distinct_from": _check_null,
        "no_token": _check_no_token,
        # an upper bound of every call, or one for each
        "max_rows_returned": each(at_most(lambda call: call.rows), lambda o: o.calls),
        "must_contain": contains(lambda o: o.observations, exactly=True),
        "must_not_contain": lacks(lambda o: o.observations),
        "final_sql": lambda o, expected: equals(lambda o: _folded(o.episode.record().sql))(
            o, _folded(expected or "")
        ),
        "ended_by": equals(lambda o: o.episode.record().ended_by.value),
        "exploration_stopped_after_query": equals(lambda o: o.stopped_after),
    },
    by_pattern={
        r"turn(\d+)": _check_turn,
        r"one_of_turn(\d+)": _check_one_of_turn,
        r"rows_left_in_(\w+)": _check_rows_left,
    },
)
