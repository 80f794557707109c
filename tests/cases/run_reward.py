"""Capability compare+reward: verdicts, F1, rewards and consensus over rows or SQL."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from envbuild.manifest.build import build_manifest
from envbuild.manifest.read import open_manifest
from envbuild.manifest.settings import ManifestSettings
from envbuild.preflight.gold_checks import TRIVIAL_CELLS
from envbuild.records.execution import QueryResult
from envbuild.records.manifest import GoldResult
from envbuild.records.reward import RewardBreakdown, RewardSettings, Tier
from envbuild.records.verdict import Verdict
from envbuild.reward.consensus import with_consensus
from envbuild.reward.score import score_answer
from envbuild.reward.tiers import reward_of
from envbuild.sql.connect import quote_name
from envbuild.sql.executor import Session
from envbuild.sql.results import decode_rows
from envbuild.sql.text.order import order_matters
from envbuild.sql.trees.joins import join_share
from envbuild.sql.verdicts import judge
from tests.cases.databases import add_rows_as_table, write_corpus, write_database
from tests.cases.form import (
    Case,
    Checks,
    assert_same_rows,
    at_most,
    close,
    each,
    equals,
    rows_of,
    same_number,
)
from tests.cases.run_exec import gold_of, limits_of, schema_of

SETTINGS = RewardSettings()


@dataclass(kw_only=True)
class Outcome:
    """The gold and the predictions on one session."""

    case: Case
    path: Path
    session: Session
    gold: QueryResult | None = None
    gold_sql: str = ""
    stored: GoldResult | None = None
    sqls: list[str] = field(default_factory=list)
    """The predictions' SQL, in the case's order."""
    predicted: list[QueryResult] = field(default_factory=list)
    groups: list[list[float]] = field(default_factory=list)
    """Consensus of each member of each group."""
    rewards: list[float | None] = field(default_factory=list)

    def verdict(self, number: int, rule: str, tolerance: float | None = None) -> Verdict:
        """The verdict on one prediction."""
        assert self.gold is not None
        ordered = order_matters(self.gold_sql)
        return judge(
            self.predicted[number], self.gold, verdict=rule, ordered=ordered, tolerance=tolerance
        )

    def correct(self, rule: str, number: int = 0) -> bool | None:
        """Whether one prediction is right by this rule."""
        return self.verdict(number, rule).correct

    def all_correct(self, rule: str) -> list[bool | None]:
        """The same of every prediction."""
        return [self.correct(rule, number) for number in range(len(self.sqls))]

    @cached_property
    def breakdowns(self) -> list[RewardBreakdown]:
        """What each prediction earns, before any group is known."""
        assert self.stored is not None
        schema = schema_of(self.path)
        return [
            score_answer(sql, session=self.session, gold=self.stored, schema=schema)
            for sql in self.sqls
        ]


def run(case: Case, folder: Path) -> None:
    """Compares what the case gives, also with the sides exchanged where it says so."""
    swap = case.input.get("swap") or case.expected.get("swap")
    for exchanged in (False, True) if swap else (False,):
        path = folder / f"case{int(exchanged)}.sqlite"
        write_database(path, case.input.get("ddl", ""))
        sides = _sides(case, path, exchanged=exchanged)
        with Session.open_file(path, limits=limits_of(case.input)) as session:
            outcome = Outcome(case=case, path=path, session=session)
            _run(outcome, *sides)
            if exchanged:  # which of two rows lists is the gold's has changed too
                expected = {k: v for k, v in case.expected.items() if not k.endswith("_rows")}
                CHECKS.check(outcome, expected)
            else:
                CHECKS.check(outcome, case.expected)


def _sides(case: Case, path: Path, *, exchanged: bool) -> tuple[str, list[str]]:
    """The gold's SQL and the predictions'; rows become tables that SQL reads back as they are."""
    given = case.input
    gold_sql = given.get("gold_sql", "")
    predictions = [given["pred_sql"]] if "pred_sql" in given else []
    predictions += given.get("pred_sqls", [])
    lists = [given[key] for key in ("pred", "pred2", "pred3") if key in given]
    lists += given.get("preds", [])
    width = max((len(row) for rows in (given.get("gold", []), *lists) for row in rows), default=1)
    if "gold" in given:
        gold_sql = _as_table(path, "gold", given["gold"], width)
    for number, rows in enumerate(lists):
        predictions.append(_as_table(path, f"pred{number}", rows, width))
    if exchanged and predictions:
        assert len(predictions) == 1, "only one prediction can change places with the gold"
        gold_sql, predictions = predictions[0], [gold_sql]
    return gold_sql, predictions


def _as_table(path: Path, name: str, rows: list[Any], width: int) -> str:
    """SQL that gives these rows; an empty list is as wide as the others."""
    decoded = rows_of(rows)
    name = f"envbuild case {name}"
    add_rows_as_table(path, name, decoded, len(decoded[0]) if decoded else width)
    return f"SELECT * FROM {quote_name(name)}"


def _run(outcome: Outcome, gold_sql: str, predictions: list[str]) -> None:
    given, session = outcome.case.input, outcome.session
    if gold_sql:
        outcome.gold_sql = gold_sql
        outcome.gold = session.run(gold_sql)
        outcome.stored = gold_of(session, gold_sql)
    outcome.sqls = predictions
    outcome.predicted = [session.run(sql) for sql in predictions]
    outcome.groups = [_consensus(outcome, group) for group in given.get("groups", [])]
    outcome.rewards = [_reward_of_parts(parts) for parts in given.get("cases", [])]


def _consensus(outcome: Outcome, group: list[Any]) -> list[float]:
    """The members' consensus: equal names are equal results, null is an answer that fails."""
    gold = gold_of(outcome.session, "SELECT 'the gold is something else'")
    schema = schema_of(outcome.path)
    breakdowns = []
    for member in group:
        sql = "SELECT no_such_column" if member is None else f"SELECT {_literal(member)}"
        breakdowns.append(score_answer(sql, session=outcome.session, gold=gold, schema=schema))
    return [b.consensus for b in with_consensus(breakdowns)]


def _literal(member: Any) -> str:
    return "'" + str(member).replace("'", "''") + "'"


def _reward_of_parts(parts: dict[str, Any]) -> float | None:
    """The reward that the package's arithmetic makes of a case's parts."""
    known = {"match", "parses", "executes", "f1", "fk_join_share", "consensus", "reward", "scored"}
    assert set(parts) <= known, f"unknown keys of a case: {sorted(set(parts) - known)}"
    if parts.get("scored") is False:
        tier = Tier.UNSCORED
    elif parts.get("match"):
        tier = Tier.EQUIVALENT
    elif parts.get("executes"):
        tier = Tier.EXECUTABLE
    else:
        tier = Tier.PARSABLE if parts.get("parses") else Tier.INVALID
    breakdown = RewardBreakdown(
        tier=tier,
        reward=None,
        verdict=Verdict.EQUAL if parts.get("match") else Verdict.DIFFERENT,
        verdict_name=SETTINGS.verdict,
        f1=float(parts.get("f1") or 0.0),
        join_share=float(parts.get("fk_join_share") or 0.0),
        consensus=float(parts.get("consensus") or 0),
    )
    reward = reward_of(breakdown, SETTINGS)
    if "reward" in parts:
        assert close(reward, parts["reward"]), f"{parts}: {reward}"
    return reward


def _check_rows(result: QueryResult | None, expected: list[Any]) -> None:
    assert result is not None
    assert result.ok, result.error
    assert_same_rows(result.rows, expected)


def _is_trivial(outcome: Outcome) -> bool:
    """The gold is empty or one cell that many wrong queries give too: preflight says so."""
    assert outcome.gold is not None
    rows = outcome.gold.rows
    return not rows or (len(rows) == 1 == len(rows[0]) and rows[0][0] in TRIVIAL_CELLS)


def _rewards(outcome: Outcome) -> list[float | None]:
    return outcome.rewards or [b.reward for b in outcome.breakdowns]


def _check_scored(outcome: Outcome, expected: bool) -> None:
    for number, breakdown in enumerate(outcome.breakdowns):
        assert (breakdown.reward is not None) is expected
        assert outcome.verdict(number, "bag@1").scored is expected


def _check_consensus(outcome: Outcome, expected: list[float], match: re.Match[str]) -> None:
    assert outcome.groups[int(match[1]) - 1] == [float(value) for value in expected]


def _check_tie(outcome: Outcome, expected: list[list[float]]) -> None:
    """The groups in which two largest classes are equal: all or nobody gets the bonus."""
    ties = [found for given, found in _by_group(outcome) if _is_tie(given)]
    assert ties
    assert all(found in [[float(v) for v in one] for one in expected] for found in ties), ties


def _check_tie_reordered(outcome: Outcome, expected: bool) -> None:
    """Tied groups of the same members, in whatever order, fare alike."""
    paid: dict[tuple[str, ...], set[tuple[tuple[str, float], ...]]] = {}
    for given, found in _by_group(outcome):
        if _is_tie(given):
            names = tuple(sorted(map(str, given)))
            fate = tuple(sorted(zip(map(str, given), found, strict=True)))
            paid.setdefault(names, set()).add(fate)
    assert all(len(fates) == 1 for fates in paid.values()) is expected


def _by_group(outcome: Outcome) -> Iterable[tuple[list[Any], list[float]]]:
    return zip(outcome.case.input["groups"], outcome.groups, strict=True)


def _is_tie(group: list[Any]) -> bool:
    counts = sorted((group.count(m) for m in {m for m in group if m is not None}), reverse=True)
    return len(counts) > 1 and counts[0] == counts[1] > 1


def _check_stored_ignored(outcome: Outcome, expected: bool) -> None:
    """The corpus's own stored rows, written by another SQLite, never become the gold's."""
    given = outcome.case.input
    folder = outcome.path.parent / "stored"
    question = {
        "question_id": "q",
        "db_id": "case",
        "gold_sql": given["gold_sql"],
        "stored_result": json.dumps(given["stored_gold_rows"]),
    }
    corpus = write_corpus(folder, {"case": given.get("ddl", "")}, [question])
    (asked,) = corpus.questions()
    assert asked.stored_result is not None
    build_manifest([corpus], folder / "manifest", settings=ManifestSettings(), workers=1)
    manifest = open_manifest(folder / "manifest")
    (row,) = manifest.rows
    kept = decode_rows(manifest.gold(row.gold_id).result)
    assert outcome.gold is not None
    executed = kept == outcome.gold.rows
    same = list(kept) == rows_of(given["stored_gold_rows"])
    assert (executed or same) is expected
    assert executed, "the manifest's gold is not what this SQLite gives"
    assert manifest.index["configuration"]["sqlite"] != given.get("stored_with_sqlite"), (
        "the stored version is the one that runs here"
    )


_VERDICTS = {
    "official": "official@1",
    "strict": "strict@1",
    "multiset_equal": "bag@1",
    "ordered": "ordered@1",
    "testsuite": "testsuite@1",
}
CHECKS = Checks(
    inputs=(
        "gold pred pred2 pred3 preds ddl gold_sql pred_sql pred_sqls tolerance cases groups "
        "timeout_s row_cap swap sqls stored_gold_rows stored_with_sqlite"
    ),
    by_key={
        **{key: equals(partial(Outcome.correct, rule=rule)) for key, rule in _VERDICTS.items()},
        **{
            f"{key}2": equals(partial(Outcome.correct, rule=_VERDICTS[key], number=1))
            for key in ("official", "strict", "multiset_equal")
        },
        **{
            f"{key}_each": each(equals(lambda one: one), partial(Outcome.all_correct, rule=rule))
            for key, rule in list(_VERDICTS.items())[:3]
        },
        "tolerant": equals(
            lambda o: o.verdict(0, "bag@1", float(o.case.input["tolerance"])).correct
        ),
        "f1": lambda o, expected: same_number(o.breakdowns[0].f1, expected),
        "f1_2": lambda o, expected: same_number(o.breakdowns[1].f1, expected),
        "f1_each": each(same_number, lambda o: [b.f1 for b in o.breakdowns]),
        "gold_rows": lambda o, expected: _check_rows(o.gold, expected),
        "pred_rows": lambda o, expected: _check_rows(o.predicted[0], expected),
        "trivial": equals(_is_trivial),
        "reward": lambda o, expected: each(same_number, _rewards)(o, [expected]),
        "rewards": each(same_number, _rewards),
        "reward_below": each(lambda r, bound: equals(lambda r: r < bound)(r, True), _rewards),
        "reward_min": each(lambda r, bound: equals(lambda r: r >= bound - 1e-9)(r, True), _rewards),
        "reward_max": each(at_most(lambda reward: reward), _rewards),
        "scored": _check_scored,
        "reason": each(equals(lambda b: b.verdict), lambda o: o.breakdowns),
        "consensus": equals(lambda o: o.groups),
        "tie_one_of": _check_tie,
        "tie_same_for_reordered": _check_tie_reordered,
        "order_matters": each(
            equals(order_matters), lambda o: o.case.input.get("sqls") or [o.gold_sql]
        ),
        "fk_join_share": each(
            same_number,
            lambda o: [
                join_share(sql, schema_of(o.path)) for sql in o.case.input.get("sqls") or o.sqls
            ],
        ),
        "ignore_stored_if_version_differs": _check_stored_ignored,
        "swap": lambda o, expected: None,  # `run` does it
    },
    by_pattern={r"consensus_(\d+)": _check_consensus},
)
