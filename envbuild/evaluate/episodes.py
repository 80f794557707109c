"""Judging episodes against their manifest: both verdicts, exploration, literals and behaviour.

One episode is in memory at a time: what is judged of it is small, whatever was said in it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from statistics import fmean

import msgspec

from envbuild.env.reward import can_judge
from envbuild.env.tools import TOOLS
from envbuild.env.views import ViewCache
from envbuild.errors import GoldError
from envbuild.evaluate.predicted import compared
from envbuild.evaluate.statistics import share_of
from envbuild.manifest.gold_store import GoldStore
from envbuild.manifest.read import Manifest
from envbuild.records.episode import EndedBy, Episode, ToolCall
from envbuild.records.evaluation import Behaviour, LiteralUse, QuestionVerdict
from envbuild.records.execution import Outcome, QueryResult, Verdict
from envbuild.records.manifest import GoldResult, ManifestRow
from envbuild.signal.variants import VariantStore
from envbuild.sql.connect import Connection
from envbuild.sql.execution.session import Session
from envbuild.sql.gold_tables import read_gold_tables
from envbuild.sql.tokens import Kind, iter_tokens
from envbuild.sql.verdicts import decode_rows, digest_rows, judge

OFFICIAL = "official@1"
"""EX's rule, here and on hidden variants."""
OPENED_ALL = "opened_all_gold_tables"
SHARES = (
    *("submit_rate", "executable_sql", "truncated", "fallback_rate", "wasted_calls"),
    OPENED_ALL,
)
"""Fields of a `Behaviour` that are shares."""


class JudgedEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One episode's verdict and what it looked at and did."""

    verdict: QuestionVerdict
    literals: tuple[LiteralUse, ...] = ()
    turns: int = 0
    calls: int = 0
    shares: dict[str, list[bool]] = {}
    """Each share of a `Behaviour` -> what this episode adds to it, a value a case; empty where the
    server failed the episode: what it came to is nobody's doing."""

    @property
    def opened_all(self) -> bool | None:
        """It opened every gold table; None where the gold reads none."""
        return next(iter(self.shares.get(OPENED_ALL, ())), None)


def judge_episodes(
    manifest: Manifest, episodes: Iterable[Episode], *, rerun_golds: bool = False
) -> Iterator[JudgedEpisode]:
    """One judged episode each, in the order given, on its view and on its row's hidden variants.

    The gold's result is the manifest's, unless `rerun_golds` (see `GoldStore`): else gold is run
    only for the literal ledger, once a row. Raises UnknownNameError for an episode whose row the
    manifest does not hold.
    """
    decisive: dict[str, list[str]] = {}
    views = ViewCache()
    with VariantStore(manifest.root) as variants:
        golds = GoldStore(manifest, rerun_golds=rerun_golds, open_variant=variants.session)
        for episode in episodes:
            row = manifest.row(episode.row_id)
            stored = golds.gold(row)
            gold = gold_result(stored)
            if episode.ended_by is EndedBy.SERVER_ERROR:
                yield JudgedEpisode(
                    verdict=_verdict(row, episode, None, gold, Verdict.SERVER_ERROR)
                )
                continue
            path = golds.database_path(row)
            with closing(views.open(path, row.tables, digest=row.database_sha256)) as database:
                session = database.session
                predicted = session.run(episode.sql) if episode.sql.strip() else None
                official = judge(predicted, gold, verdict=OFFICIAL)
                if row.row_id not in decisive:
                    found = decisive_literals(row, session=session, gold=stored) if gold.ok else []
                    decisive[row.row_id] = found
                gold_tables = {name.lower() for name in row.gold_tables}
                opened = gold_tables <= opened_tables(episode, session.connection)
            hidden = ""
            on_variants = [(name, golds.gold(row, name)) for name in row.variants]
            scored = [(name, gold_result(kept)) for name, kept in on_variants if can_judge(kept)]
            if scored and official.scored:  # a failure is EX's own, or the first variant's
                hidden = official
                for name, expected in scored:
                    if hidden == Verdict.EQUAL:
                        result = variants.session(name, path).run(episode.sql)
                        hidden = judge(result, expected, verdict=OFFICIAL)
            verdict = _verdict(row, episode, predicted, gold, official, hidden=hidden)
            shares = describe_actions(
                episode, opened_all=opened if gold_tables else None, outcome=verdict.outcome
            )
            yield JudgedEpisode(
                verdict=verdict,
                literals=tuple(_ledger(row, episode, decisive[row.row_id], official.correct)),
                turns=len(episode.turns),
                calls=sum(len(turn.calls) for turn in episode.turns),
                shares=shares,
            )


def gold_result(stored: GoldResult) -> QueryResult:
    """A stored gold result as the executor would have returned it."""
    outcome = Outcome(stored.outcome)
    rows = decode_rows(stored.result) if stored.result else ()
    return QueryResult(outcome=outcome, columns=stored.columns, rows=rows)


def _verdict(
    row: ManifestRow,
    episode: Episode,
    predicted: QueryResult | None,
    gold: QueryResult,
    official: Verdict,
    *,
    hidden: str = "",
) -> QuestionVerdict:
    failed = official is Verdict.SERVER_ERROR
    strict = official if failed else judge(predicted, gold, verdict="strict@1")
    comparison = compared(predicted, gold, official, strict)
    if failed:
        comparison["reason"] = f"the server failed: {episode.error}".rstrip(": ")
    shown = {name.lower() for name in row.tables}
    return QuestionVerdict(
        question_id=row.question_id,
        corpus=row.corpus,
        db_id=row.db_id,
        split=row.split,
        policy=episode.policy,
        candidate=episode.candidate,
        episode_id=episode.episode_id,
        question=row.question,
        difficulty=row.difficulty,
        bucket=row.bucket,
        tables=len(row.tables),
        schema=episode.schema,
        gold_sql=row.gold_sql,
        predicted_sql=episode.sql,
        hidden=hidden,
        ended_by=episode.ended_by,
        gold_tables=len(row.gold_tables),
        gold_tables_shown=sum(name.lower() in shown for name in row.gold_tables),
        **comparison,
    )


# How a policy acted, from its episodes alone: nothing is run again here.

RAN = frozenset((Outcome.OK.value, Outcome.TRUNCATED.value))
"""Outcomes of SQL that executes; a truncated result ran, it is only longer than its cap."""
LAST_WORKING = "last_working_query"
"""The `Episode.answer_source` of a fallback."""


def describe_actions(
    episode: Episode, *, opened_all: bool | None = None, outcome: str = ""
) -> dict[str, list[bool]]:
    """What an episode adds to each share of a `Behaviour`, a value a case.

    `outcome`: the `Outcome` of its answer, empty without one: an episode runs no answer of its own,
    whoever judged it did.
    """
    calls = list(iter_calls(episode))
    # also where a budget ended the episode
    fell_back = episode.answer_source == LAST_WORKING or episode.ended_by is EndedBy.FALLBACK
    ran = [call.outcome for call in calls if call.sql and call.outcome]
    if outcome and not fell_back:  # that query is among the calls already
        ran.append(outcome)
    wasted = count_wasted(episode)
    return {
        "submit_rate": [episode.ended_by is EndedBy.SUBMIT_SQL],
        "executable_sql": [one in RAN for one in ran],
        "truncated": [any(turn.truncated for turn in episode.turns)],
        "fallback_rate": [fell_back],
        "wasted_calls": [place < wasted for place in range(len(calls))],
        OPENED_ALL: [] if opened_all is None else [opened_all],
    }


def describe_behaviour(judged: Sequence[JudgedEpisode]) -> Behaviour:
    """Rates and means over judged episodes; shares of nothing are 0.

    Episodes that their server failed are in `ended_by` alone. The question is the unit of the
    intervals.
    """
    acted = [one for one in judged if one.shares]
    found = {
        name: share_of((one.verdict.key, value) for one in acted for value in one.shares[name])
        for name in SHARES
    }
    rates = {name: share.value or 0.0 for name, share in found.items() if name != OPENED_ALL}
    return Behaviour(
        episodes=len(acted),
        mean_turns=fmean(one.turns for one in acted) if acted else 0.0,
        mean_tool_calls=fmean(one.calls for one in acted) if acted else 0.0,
        ended_by=dict(sorted(Counter(one.verdict.ended_by for one in judged).items())),
        opened_all_gold_tables=found[OPENED_ALL].value,
        intervals={name: (s.low, s.high) for name, s in found.items() if s.total},
        **rates,
    )


def iter_calls(episode: Episode) -> Iterator[ToolCall]:
    """The episode's tool calls in order, failed ones too."""
    for turn in episode.turns:
        yield from turn.calls


def count_wasted(episode: Episode) -> int:
    """Calls that repeat an earlier one of the same episode to the letter: they can tell nothing.

    A submission that was refused and is made again is the submit gate's own demand, not a waste.
    """
    seen: set[tuple[str, bytes]] = set()
    wasted = 0
    for call in iter_calls(episode):
        key = (call.tool, msgspec.json.encode(_arguments(call), order="sorted"))
        wasted += key in seen
        if not (call.tool == "submit_sql" and call.failed):
            seen.add(key)
    return wasted


def _arguments(call: ToolCall) -> object:
    """The call's arguments; their text where that is no JSON."""
    try:
        return msgspec.json.decode(call.arguments)
    except (msgspec.MsgspecError, RecursionError):
        return call.arguments


# What an episode looked at: gold tables it opened, and the ledger of the gold's literals.

OPENING_TOOLS = frozenset(tool.name for tool in TOOLS if tool.opens_table)
UNKNOWN_VALUE = "'\u241fno such value\u241f'"
"""An SQL string that no data holds."""


def opened_tables(episode: Episode, connection: Connection) -> set[str]:
    """Tables the episode opened, lower case: by a tool that names one, or by a query that ran."""
    opened: set[str] = set()
    for call in iter_calls(episode):
        if call.failed:
            continue
        arguments = _arguments(call)
        if call.tool in OPENING_TOOLS and isinstance(arguments, dict):
            opened.add(str(arguments.get("table_name", "")).lower())
        elif call.tool == "run_query" and call.outcome in RAN:
            try:
                found = read_gold_tables(connection, call.sql)
            except GoldError:
                continue
            opened.update(name.lower() for name in found.tables)
    return opened


def _ledger(
    row: ManifestRow, episode: Episode, decisive: Sequence[str], correct: bool | None
) -> Iterator[LiteralUse]:
    """One line a string literal that the gold's answer depends on (`decisive_literals`)."""
    shown = []  # every tool result the policy saw before it answered
    for call in iter_calls(episode):
        if not call.failed:
            if call.tool == "submit_sql":
                break
            shown.append(call.result)
    answer = {text.lower().strip("%") for _, _, text in _string_spans(episode.sql, quoted=None)}
    for literal in decisive:
        yield LiteralUse(
            episode_id=episode.episode_id,
            question_id=row.question_id,
            literal=literal,
            stated=stands_in(f"{row.question}\n{row.evidence}", literal),
            looked_up=stands_in("\n".join(shown), literal),
            used=literal.strip("%").lower() in answer,
            correct=correct,
        )


def stands_in(text: str, literal: str) -> bool:
    """Whether the literal stands in the text as words of its own, whatever the case.

    A plural ending is allowed. 'F' does not stand in "for"; at its open ends a LIKE pattern may
    continue a word.
    """
    needle = literal.strip("%").lower()
    if not needle:
        return False
    before = r"(?<!\w)" if needle[0].isalnum() and not literal.startswith("%") else ""
    after = r"(?:e?s)?(?!\w)" if needle[-1].isalnum() and not literal.endswith("%") else ""
    return re.search(before + re.escape(needle) + after, text.lower()) is not None


def decisive_literals(row: ManifestRow, *, session: Session, gold: GoldResult) -> list[str]:
    """The gold's string literals whose change changes the gold's result, each once, in order.

    Each is replaced by a text that no data holds; a variant that no longer runs counts as changed.
    None where the gold itself no longer gives its result (it asks the clock): then every change
    would look decisive.
    """

    def changed(sql: str) -> bool:
        result = session.run(sql)
        return not result.ok or digest_rows(result.rows, ordered=gold.ordered) != gold.digest

    sql = row.gold_sql
    spans = list(_string_spans(sql, quoted=frozenset(row.literals)))
    if not spans or changed(sql):
        return []
    decisive: list[str] = []
    for start, end, text in spans:
        if text not in decisive and changed(sql[:start] + UNKNOWN_VALUE + sql[end:]):
            decisive.append(text)
    return decisive


def summarize_ledger(ledger: Sequence[LiteralUse]) -> dict[str, float | int | None]:
    """The shares that the published analysis gives, over decisive literals.

    `literals`; of all: `stated`, `looked_up`, `used`; of the unstated: `unstated_looked_up`,
    `unstated_used`; and how often the answer was right with the right value and without it. A
    share of nothing is None.
    """

    unstated = [line for line in ledger if not line.stated]
    scored = [(line.used, line.correct) for line in ledger if line.correct is not None]
    shares = {
        "stated": [line.stated for line in ledger],
        "looked_up": [line.looked_up for line in ledger],
        "used": [line.used for line in ledger],
        "unstated_looked_up": [line.looked_up for line in unstated],
        "unstated_used": [line.used for line in unstated],
        "correct_when_used": [correct for used, correct in scored if used],
        "correct_when_not_used": [correct for used, correct in scored if not used],
    }
    return {
        "literals": len(ledger),
        "unstated": len(unstated),
        **{name: fmean(values) if values else None for name, values in shares.items()},
    }


def _string_spans(sql: str, *, quoted: frozenset[str] | None) -> Iterator[tuple[int, int, str]]:
    """(start, end, unquoted text) of each string; `"…"` counts if in `quoted` or that is None."""
    for token in iter_tokens(sql):
        written = token.text
        named = token.kind is Kind.QUOTED and written[0] == '"'
        if token.kind is Kind.STRING or (named and (quoted is None or written in quoted)):
            mark = written[0]
            yield token.start, token.end, written[1:-1].replace(mark * 2, mark)
