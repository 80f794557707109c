"""What an episode looked at: gold tables it opened, and the ledger of the gold's literals."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from envbuild.errors import GoldError
from envbuild.evaluate.behaviour import RAN, call_arguments, iter_calls
from envbuild.records.episode import Episode, ToolCall
from envbuild.records.evaluation import LiteralUse
from envbuild.records.manifest import GoldResult, ManifestRow
from envbuild.sql.connect import Connection
from envbuild.sql.executor import Session
from envbuild.sql.gold_tables import read_gold_tables
from envbuild.sql.results import digest_rows
from envbuild.sql.text.tokens import Kind, iter_tokens

OPENING_TOOLS = frozenset(("describe_table", "sample_rows", "distinct_values"))
ANSWERS = frozenset(("submit_sql",))
UNKNOWN_VALUE = "'\u241fno such value\u241f'"
"""An SQL string that no data holds."""


def opened_tables(episode: Episode, connection: Connection) -> set[str]:
    """Tables the episode opened, lower case: by a tool that names one, or by a query that ran."""
    opened: set[str] = set()
    for call in iter_calls(episode):
        if call.failed:
            continue
        if call.tool in OPENING_TOOLS:
            opened.add(str(call_arguments(call).get("table_name", "")).lower())
        elif call.tool == "run_query" and call.outcome in RAN:
            try:
                found = read_gold_tables(connection, call.sql)
            except GoldError:
                continue
            opened.update(name.lower() for name in found.tables)
    return opened


def opened_all(row: ManifestRow, episode: Episode, connection: Connection) -> bool | None:
    """Whether the episode opened every gold table; None where the gold reads none."""
    gold = {name.lower() for name in row.gold_tables}
    return gold <= opened_tables(episode, connection) if gold else None


def literal_ledger(
    row: ManifestRow,
    episode: Episode,
    *,
    decisive: Sequence[str],
    correct: bool | None,
) -> Iterator[LiteralUse]:
    """One line a string literal that the gold's answer depends on (`decisive_literals`)."""
    question = f"{row.question}\n{row.evidence}".lower()
    results = "\n".join(_shown(iter_calls(episode))).lower()
    answer = {text.lower() for _, _, text in _string_spans(episode.sql, quoted=None)}
    for literal in decisive:
        needle = literal.strip("%").lower()
        yield LiteralUse(
            episode_id=episode.episode_id,
            question_id=row.question_id,
            literal=literal,
            stated=stands_in(question, literal),
            looked_up=stands_in(results, literal),
            used=any(needle == text.strip("%") for text in answer),
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


def summarize_ledger(ledger: Iterable[LiteralUse]) -> dict[str, float | int | None]:
    """The shares that the published analysis gives, over decisive literals.

    `literals`; of all: `stated`, `looked_up`, `used`; of the unstated: `unstated_looked_up`,
    `unstated_used`; and how often the answer was right with the right value and without it. A
    share of nothing is None.
    """
    lines = list(ledger)
    unstated = [line for line in lines if not line.stated]

    def share(chosen: list[LiteralUse], holds: Callable[[LiteralUse], bool]) -> float | None:
        return sum(map(holds, chosen)) / len(chosen) if chosen else None

    scored = [line for line in lines if line.correct is not None]
    return {
        "literals": len(lines),
        "stated": share(lines, lambda u: u.stated),
        "looked_up": share(lines, lambda u: u.looked_up),
        "used": share(lines, lambda u: u.used),
        "unstated": len(unstated),
        "unstated_looked_up": share(unstated, lambda u: u.looked_up),
        "unstated_used": share(unstated, lambda u: u.used),
        "correct_when_used": share([u for u in scored if u.used], lambda u: bool(u.correct)),
        "correct_when_not_used": share(
            [u for u in scored if not u.used], lambda u: bool(u.correct)
        ),
    }


def _string_spans(sql: str, *, quoted: frozenset[str] | None) -> Iterator[tuple[int, int, str]]:
    """(start, end, unquoted text) of each string; `"…"` counts if in `quoted` or that is None."""
    for token in iter_tokens(sql):
        written = sql[token.start : token.end]
        if token.kind is Kind.STRING:
            yield token.start, token.end, written[1:-1].replace("''", "'")
        elif (
            token.kind is Kind.QUOTED
            and written[0] == '"'
            and (quoted is None or written in quoted)
        ):
            yield token.start, token.end, written[1:-1].replace('""', '"')


def _shown(calls: Iterable[ToolCall]) -> Iterator[str]:
    """Every tool result the policy saw before it answered."""
    for call in calls:
        if call.tool in ANSWERS and not call.failed:
            return
        if not call.failed:
            yield call.result
