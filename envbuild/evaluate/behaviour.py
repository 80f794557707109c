"""How a policy acted, from its episodes alone: nothing is run again here."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from envbuild.records.episode import EndedBy, Episode, ToolCall
from envbuild.records.evaluation import Behaviour
from envbuild.records.execution import Outcome

RAN = frozenset((Outcome.OK.value, Outcome.TRUNCATED.value))
"""Outcomes of SQL that executes; a truncated result ran, it is only longer than its cap."""

LAST_WORKING = "last_working_query"
"""The `Episode.answer_source` of a fallback."""


def describe_behaviour(
    episodes: Sequence[Episode],
    opened_all: Iterable[bool | None] = (),
    outcomes: Sequence[str] | None = None,
) -> Behaviour:
    """Rates and means over episodes; shares of nothing are 0.

    Episodes that their server failed are in `ended_by` alone: what they came to is nobody's doing.
    `opened_all`: per episode whether it opened every gold table (`exploration.opened_all`).
    `outcomes`: per episode the `Outcome` of its answer, empty without one: an episode runs no
    answer of its own, whoever judged it did.
    """
    answers = [
        outcome
        for episode, outcome in zip(episodes, outcomes or [""] * len(episodes), strict=True)
        if outcome and not fell_back(episode)  # that query is among the calls already
    ]
    ended_by = dict(sorted(Counter(e.ended_by.value for e in episodes).items()))
    episodes = [e for e in episodes if e.ended_by is not EndedBy.SERVER_ERROR]
    calls = [call for episode in episodes for call in iter_calls(episode)]
    queries = [call.outcome for call in calls if call.sql and call.outcome]
    known = [value for value in opened_all if value is not None]
    return Behaviour(
        episodes=len(episodes),
        submit_rate=_share(e.ended_by is EndedBy.SUBMIT_SQL for e in episodes),
        executable_sql=_share(outcome in RAN for outcome in (*queries, *answers)),
        mean_turns=_mean(len(e.turns) for e in episodes),
        mean_tool_calls=_mean(sum(1 for _ in iter_calls(e)) for e in episodes),
        truncated=_share(any(turn.truncated for turn in e.turns) for e in episodes),
        fallback_rate=_share(map(fell_back, episodes)),
        wasted_calls=sum(map(count_wasted, episodes)) / len(calls) if calls else 0.0,
        ended_by=ended_by,
        opened_all_gold_tables=_share(known) if known else None,
    )


def iter_calls(episode: Episode) -> Iterator[ToolCall]:
    """The episode's tool calls in order, failed ones too."""
    for turn in episode.turns:
        yield from turn.calls


def fell_back(episode: Episode) -> bool:
    """Whether the answer is the last working query, also where a budget ended the episode."""
    return episode.answer_source == LAST_WORKING or episode.ended_by is EndedBy.FALLBACK


def count_wasted(episode: Episode) -> int:
    """Calls that repeat an earlier one of the same episode to the letter: they can tell nothing.

    A submission that was refused and is made again is the submit gate's own demand, not a waste.
    """
    seen: set[tuple[str, str]] = set()
    wasted = 0
    for call in iter_calls(episode):
        key = (call.tool, _canonical(call.arguments))
        wasted += key in seen
        if not (call.tool == "submit_sql" and call.failed):
            seen.add(key)
    return wasted


def call_arguments(call: ToolCall) -> Mapping[str, object]:
    """The call's arguments; empty where they were not an object."""
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError):
        return {}


def _canonical(arguments: str) -> str:
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted").decode()
    except (msgspec.MsgspecError, RecursionError):
        return arguments


def _share(values: Iterable[bool]) -> float:
    return _mean(float(value) for value in values)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0
