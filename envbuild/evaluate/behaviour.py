"""How a policy acted, from its episodes alone: nothing is run again here."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import msgspec

from envbuild.evaluate.scores import share_of
from envbuild.records.episode import EndedBy, Episode, ToolCall
from envbuild.records.evaluation import Behaviour
from envbuild.records.execution import Outcome

RAN = frozenset((Outcome.OK.value, Outcome.TRUNCATED.value))
"""Outcomes of SQL that executes; a truncated result ran, it is only longer than its cap."""

SHARES = (
    *("submit_rate", "executable_sql", "truncated", "fallback_rate", "wasted_calls"),
    "opened_all_gold_tables",
)
"""Fields of a `Behaviour` that are shares."""

LAST_WORKING = "last_working_query"
"""The `Episode.answer_source` of a fallback."""


def describe_behaviour(
    episodes: Sequence[Episode],
    opened_all: Sequence[bool | None] | None = None,
    outcomes: Sequence[str] | None = None,
    questions: Sequence[Hashable] | None = None,
) -> Behaviour:
    """Rates and means over episodes; shares of nothing are 0.

    Episodes that their server failed are in `ended_by` alone: what they came to is nobody's doing.
    `opened_all`: per episode whether it opened every gold table (`exploration.opened_all`).
    `outcomes`: per episode the `Outcome` of its answer, empty without one: an episode runs no
    answer of its own, whoever judged it did. `questions`: per episode the question it is to, the
    unit of the intervals; without them its row.
    """
    told = zip(
        episodes,
        opened_all or [None] * len(episodes),
        outcomes or [""] * len(episodes),
        questions or [episode.row_id for episode in episodes],
        strict=True,
    )
    shares: dict[str, list[tuple[Hashable, bool]]] = {name: [] for name in SHARES}
    played = []
    for episode, opened, outcome, question in told:
        if episode.ended_by is EndedBy.SERVER_ERROR:
            continue
        played.append(episode)
        calls = list(iter_calls(episode))
        ran = [call.outcome for call in calls if call.sql and call.outcome]
        if outcome and not fell_back(episode):  # that query is among the calls already
            ran.append(outcome)
        wasted = count_wasted(episode)
        for name, values in (
            ("submit_rate", [episode.ended_by is EndedBy.SUBMIT_SQL]),
            ("executable_sql", [one in RAN for one in ran]),
            ("truncated", [any(turn.truncated for turn in episode.turns)]),
            ("fallback_rate", [fell_back(episode)]),
            ("wasted_calls", [place < wasted for place in range(len(calls))]),
            ("opened_all_gold_tables", [] if opened is None else [opened]),
        ):
            shares[name] += [(question, value) for value in values]
    found = {name: share_of(values) for name, values in shares.items()}
    value = {name: share.value or 0.0 for name, share in found.items()}
    return Behaviour(
        episodes=len(played),
        submit_rate=value["submit_rate"],
        executable_sql=value["executable_sql"],
        mean_turns=_mean(len(e.turns) for e in played),
        mean_tool_calls=_mean(sum(1 for _ in iter_calls(e)) for e in played),
        truncated=value["truncated"],
        fallback_rate=value["fallback_rate"],
        wasted_calls=value["wasted_calls"],
        ended_by=dict(sorted(Counter(e.ended_by.value for e in episodes).items())),
        opened_all_gold_tables=found["opened_all_gold_tables"].value,
        intervals={name: (s.low, s.high) for name, s in found.items() if s.total},
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


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0
