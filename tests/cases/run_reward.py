"""Capability compare+reward: verdicts, F1, rewards and consensus over rows or SQL."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.manifest.build import build_manifest
from envbuild.manifest.read import open_manifest
from envbuild.manifest.settings import ManifestSettings
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
    as_list,
    assert_same_rows,
    close,
    for_each,
    rows_of,
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

    def breakdown(self, number: int) -> RewardBreakdown:
        """What one prediction earns, before any group is known."""
        assert self.stored is not None
        return score_answer(
            self.sqls[number], session=self.session, gold=self.stored, schema=schema_of(self.path)
        )


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


def _judged(rule: str, number: int = 0) -> Any:
    def check(outcome: Outcome, expected: bool | None) -> None:
        found = outcome.verdict(number, rule).correct
        assert found is expected, f"{rule}: {found}"

    return check


def _judged_each(rule: str) -> Any:
    def check(outcome: Outcome, expected: Any) -> None:
        found = [outcome.verdict(number, rule).correct for number in range(len(outcome.sqls))]
        assert found == for_each(expected, len(found)), found

    return check


def _f1(number: int = 0) -> Any:
    def check(outcome: Outcome, expected: float) -> None:
        assert close(outcome.breakdown(number).f1, expected), outcome.breakdown(number)

    return check


def _check_f1_each(outcome: Outcome, expected: Any) -> None:
    found = [outcome.breakdown(number).f1 for number in range(len(outcome.sqls))]
    wanted = for_each(expected, len(found))
    assert all(map(close, found, wanted)), found


def _check_rows(what: str) -> Any:
    def check(outcome: Outcome, expected: list[Any]) -> None:
        result = outcome.gold if what == "gold" else outcome.predicted[0]
        assert result is not None
        assert result.ok, result.error
        assert_same_rows(result.rows, expected)

    return check


def _check_trivial(outcome: Outcome, expected: bool) -> None:
    """The gold is empty or one cell that many wrong queries give too: preflight says so."""
    from envbuild.preflight.gold_checks import TRIVIAL_CELLS

    assert outcome.gold is not None
    rows = outcome.gold.rows
    trivial = not rows or (len(rows) == 1 and len(rows[0]) == 1 and rows[0][0] in TRIVIAL_CELLS)
    assert trivial is expected


def _check_tolerant(outcome: Outcome, expected: bool) -> None:
    tolerance = float(outcome.case.input["tolerance"])
    assert outcome.verdict(0, "bag@1", tolerance).correct is expected


def _rewards(outcome: Outcome) -> list[float | None]:
    if outcome.rewards:
        return outcome.rewards
    return [outcome.breakdown(number).reward for number in range(len(outcome.sqls))]


def _check_rewards(outcome: Outcome, expected: Any) -> None:
    found = _rewards(outcome)
    assert all(map(close, found, for_each(expected, len(found)))), found


def _check_reward(outcome: Outcome, expected: Any) -> None:
    (found,) = _rewards(outcome)
    assert close(found, expected), found


def _bound(holds: Any) -> Any:
    def check(outcome: Outcome, expected: Any) -> None:
        found = _rewards(outcome)
        for reward, bound in zip(found, for_each(expected, len(found)), strict=True):
            assert reward is not None
            assert holds(reward, float(bound)), f"{reward}, bound {bound}"

    return check


def _check_scored(outcome: Outcome, expected: bool) -> None:
    for number in range(len(outcome.sqls)):
        assert (outcome.breakdown(number).reward is not None) is expected
        assert outcome.verdict(number, "bag@1").scored is expected


def _check_reason(outcome: Outcome, expected: str) -> None:
    for number in range(len(outcome.sqls)):
        assert outcome.breakdown(number).verdict == expected, outcome.breakdown(number)


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


def _check_order(outcome: Outcome, expected: Any) -> None:
    sqls = outcome.case.input.get("sqls") or [outcome.gold_sql]
    found = [order_matters(sql) for sql in sqls]
    assert found == for_each(expected, len(sqls)), found


def _check_join_share(outcome: Outcome, expected: Any) -> None:
    sqls = outcome.case.input.get("sqls") or outcome.sqls
    schema = schema_of(outcome.path)
    found = [join_share(sql, schema) for sql in sqls]
    assert all(map(close, found, for_each(expected, len(sqls)))), found


def _check_stored_ignored(outcome: Outcome, expected: bool) -> None:
    """The corpus's own stored rows, written by another SQLite, never become the gold's."""
    import json

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


def _check_swap(outcome: Outcome, expected: bool) -> None:
    """Whether the sides are exchanged as well; `run` does it."""
    assert isinstance(expected, bool)


def _check_consensus_each(outcome: Outcome, expected: list[list[float]]) -> None:
    assert outcome.groups == [[float(v) for v in as_list(one)] for one in expected]


CHECKS = Checks(
    inputs=frozenset(
        (
            *("gold", "pred", "pred2", "pred3", "preds", "ddl", "gold_sql", "pred_sql"),
            *("pred_sqls", "tolerance", "cases", "groups", "timeout_s", "row_cap", "swap", "sqls"),
            *("stored_gold_rows", "stored_with_sqlite"),
        )
    ),
    by_key={
        "official": _judged("official@1"),
        "strict": _judged("strict@1"),
        "multiset_equal": _judged("bag@1"),
        "ordered": _judged("ordered@1"),
        "testsuite": _judged("testsuite@1"),
        "official2": _judged("official@1", 1),
        "strict2": _judged("strict@1", 1),
        "multiset_equal2": _judged("bag@1", 1),
        "official_each": _judged_each("official@1"),
        "strict_each": _judged_each("strict@1"),
        "multiset_equal_each": _judged_each("bag@1"),
        "tolerant": _check_tolerant,
        "f1": _f1(),
        "f1_2": _f1(1),
        "f1_each": _check_f1_each,
        "gold_rows": _check_rows("gold"),
        "pred_rows": _check_rows("pred"),
        "trivial": _check_trivial,
        "reward": _check_reward,
        "rewards": _check_rewards,
        "reward_below": _bound(lambda reward, bound: reward < bound),
        "reward_min": _bound(lambda reward, bound: reward >= bound - 1e-9),
        "reward_max": _bound(lambda reward, bound: reward <= bound + 1e-9),
        "scored": _check_scored,
        "reason": _check_reason,
        "consensus": _check_consensus_each,
        "tie_one_of": _check_tie,
        "tie_same_for_reordered": _check_tie_reordered,
        "order_matters": _check_order,
        "fk_join_share": _check_join_share,
        "ignore_stored_if_version_differs": _check_stored_ignored,
        "swap": _check_swap,
    },
    by_pattern={r"consensus_(\d+)": _check_consensus},
)
