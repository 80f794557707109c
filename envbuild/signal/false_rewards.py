"""False rewards: real wrong predictions that sparse databases pay, right ones that variants refuse.

A prediction is right or wrong by its result on the full database; what a policy pays for is
equality on the states it looks at. Judged by the reward's verdict (SIGNAL 4).
"""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path

import msgspec

from envbuild.engine.fanout import run_shards
from envbuild.records.execution import QueryResult
from envbuild.records.false_rewards import Answer, FalseRewards, PolicyRow, ScoreBin
from envbuild.records.signal import AliveOperator
from envbuild.schema.read import read_schema
from envbuild.signal.mutants import Mutant, draw_mutants
from envbuild.signal.score import DEFAULT_VERDICT, FEWEST_MUTANTS, FEWEST_VARIANTS, try_mutants
from envbuild.signal.states import (
    FULL,
    SPARSE,
    Policy,
    State,
    amplified_policies,
    cut_name,
    cut_policies,
    open_states,
)
from envbuild.sql.executor import Session
from envbuild.sql.mutants.compiler import Compiler
from envbuild.sql.verdicts import judge

REWARD_VERDICT = "bag@1"
BIN_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


class DatabaseAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """One database's questions: a unit of work."""

    db_id: str
    path: str
    answers: tuple[Answer, ...]
    amplified: bool
    seed: int


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One question on every state of its database."""

    question_id: str
    mutants: int
    operators: tuple[str, ...]
    alive: dict[str, tuple[int, ...]]
    """State -> positions of the mutants with the gold's result; absent where the gold fails."""
    rows: dict[str, int]
    """State -> rows of the gold's result."""
    right: bool | None
    """On the full database; None without a prediction, or where it does not run."""
    equal: dict[str, bool]
    """State -> the prediction equals the gold; absent where it cannot be judged."""

    @property
    def presumed(self) -> set[int]:
        """Mutants that no state with a non-empty gold told apart, where there are enough."""
        evidence = [set(alive) for state, alive in self.alive.items() if self.rows[state]]
        if len(evidence) < FEWEST_VARIANTS:
            return set()
        return set.intersection(*evidence)


def measure_benchmark(
    name: str,
    answers: Sequence[Answer],
    database_path: Callable[[str], Path],
    *,
    amplified: bool = True,
    seed: int = 0,
    workers: int | None = None,
    on_measured: Callable[[int], None] | None = None,
) -> FalseRewards:
    """The table of one benchmark; the same for any number of workers.

    `on_measured` hears how many questions each database had.
    """
    ordered = sorted(answers, key=lambda answer: (answer.db_id, answer.question_id))
    work = [
        DatabaseAnswers(
            db_id=db_id,
            path=str(database_path(db_id)),
            answers=tuple(own),
            amplified=amplified,
            seed=seed,
        )
        for db_id, own in groupby(ordered, key=lambda answer: answer.db_id)
    ]
    measured: list[Measured] = []
    for found in run_shards(measure_database, work, workers=workers):
        measured += found
        if on_measured:
            on_measured(len(found))
    policies = cut_policies() + (amplified_policies() if amplified else [])
    bins, spearman = _by_score(measured)
    return FalseRewards(
        name=name,
        databases=len(work),
        questions=len(measured),
        predictions=sum(answer.predicted_sql is not None for answer in answers),
        rows=tuple(_policy_row(policy, measured) for policy in policies),
        bins=bins,
        spearman=spearman,
        top_alive=_top_alive(measured),
        verdict=REWARD_VERDICT,
        signal_verdict=DEFAULT_VERDICT,
        states=len({state for one in measured for state in one.rows}),
    )


def measure_database(work: DatabaseAnswers) -> list[Measured]:
    """Every question of one database on all of its states."""
    golds = list(dict.fromkeys(answer.gold_sql for answer in work.answers))
    states = open_states(
        Path(work.path), golds, db_id=work.db_id, seed=work.seed, amplified=work.amplified
    )
    try:
        with Session.open_file(Path(work.path)) as whole:
            schema = read_schema(whole.connection)
        compiles = Compiler.of_schema(schema).compiles
        mutants = {gold: draw_mutants(gold, schema, compiles=compiles).mutants for gold in golds}
        trials = {gold: _try_everywhere(gold, drawn, states) for gold, drawn in mutants.items()}
        return [
            _measure(answer, mutants[answer.gold_sql], trials[answer.gold_sql], states)
            for answer in work.answers
        ]
    finally:
        for state in states.values():
            state.close()


class _Everywhere(msgspec.Struct, kw_only=True):
    """A gold on every state where it runs."""

    golds: dict[str, QueryResult] = {}
    alive: dict[str, tuple[int, ...]] = {}


def _try_everywhere(
    gold: str, mutants: Sequence[Mutant], states: Mapping[str, State]
) -> _Everywhere:
    found = _Everywhere()
    for name, state in states.items():
        session = state.session(gold)
        if session is None:
            continue
        trial = try_mutants(gold, mutants, session=session)
        if trial.gold.ok:
            found.golds[name], found.alive[name] = trial.gold, trial.alive
    return found


def _measure(
    answer: Answer, mutants: Sequence[Mutant], tried: _Everywhere, states: Mapping[str, State]
) -> Measured:
    equal = {}
    runs = False
    if answer.predicted_sql is not None:
        for name, gold in tried.golds.items():
            session = states[name].session(answer.gold_sql)
            if session is not None:
                predicted = session.run(answer.predicted_sql)
                runs = runs or (name == FULL and predicted.ok)
                equal[name] = bool(judge(predicted, gold, verdict=REWARD_VERDICT).correct)
    return Measured(
        question_id=answer.question_id,
        mutants=len(mutants),
        operators=tuple(mutant.operator for mutant in mutants),
        alive=tried.alive,
        rows={name: len(gold.rows) for name, gold in tried.golds.items()},
        right=equal.get(FULL) if runs else None,
        equal=equal,
    )


def _policy_row(policy: Policy, measured: Sequence[Measured]) -> PolicyRow:
    judged = [one for one in measured if one.right is not None and policy.visible in one.equal]
    wrong = [one for one in judged if not one.right]
    right = [one for one in judged if one.right]
    empty = [one for one in wrong if not one.rows[policy.visible]]
    scored = [
        (low, high)
        for one in measured
        if (pair := _score(one, policy.visible)) is not None
        for low, high in [pair]
    ]
    with_gold = [one.rows[policy.visible] for one in measured if policy.visible in one.rows]
    return PolicyRow(
        policy=policy.name,
        variants=len(policy.hidden),
        wrong=len(wrong),
        paid=sum(_pays(policy, one) for one in wrong),
        right=len(right),
        refused=sum(not _pays(policy, one) for one in right),
        wrong_on_empty=len(empty),
        paid_on_empty=sum(_pays(policy, one) for one in empty),
        questions=len(scored),
        signal_low=_mean([low for low, _ in scored]),
        signal_high=_mean([high for _, high in scored]),
        share_below_half=_mean([float(high < 0.5) for _, high in scored]),
        empty_golds=_mean([float(not rows) for rows in with_gold]),
    )


def _pays(policy: Policy, one: Measured) -> bool:
    """Equality on the visible state and on every hidden one that can be judged."""
    hidden = (one.equal[state] for state in policy.hidden if state in one.equal)
    return one.equal[policy.visible] and all(hidden)


def _score(one: Measured, state: str) -> tuple[float, float] | None:
    """signal_low and signal_high on one state; None where there is no score."""
    if state not in one.alive or one.mutants < FEWEST_MUTANTS:
        return None
    killed = one.mutants - len(one.alive[state])
    judged = one.mutants - len(one.presumed)
    return killed / one.mutants, killed / judged if judged else 1.0


def _by_score(measured: Sequence[Measured]) -> tuple[tuple[ScoreBin, ...], float | None]:
    """False rewards at the sparse cut by the question's score there, and their correlation."""
    sparse = cut_name(SPARSE)
    pairs = [
        (score[1], float(one.equal[sparse]))
        for one in measured
        if one.right is False and sparse in one.equal and (score := _score(one, sparse))
    ]
    bins = []
    for low, high in pairwise(BIN_EDGES):
        last = high == BIN_EDGES[-1]
        inside = [paid for score, paid in pairs if low <= score < high or (last and score >= high)]
        bins.append(ScoreBin(low=low, high=high, wrong=len(inside), paid=int(sum(inside))))
    if len({score for score, _ in pairs}) < 2 or len({paid for _, paid in pairs}) < 2:
        return tuple(bins), None
    from scipy.stats import spearmanr

    scores, paid = zip(*pairs, strict=True)
    return tuple(bins), float(spearmanr(scores, paid).statistic)


def _top_alive(measured: Sequence[Measured]) -> tuple[AliveOperator, ...]:
    """Every operator at full data, the most alive first; presumed equivalents left out."""
    tried: Counter[str] = Counter()
    alive: Counter[str] = Counter()
    for one in measured:
        presumed = one.presumed
        left = set(one.alive.get(FULL, ())) - presumed
        for position, operator in enumerate(one.operators):
            tried[operator] += position not in presumed
            alive[operator] += position in left
    return tuple(
        AliveOperator(operator=operator, alive=alive[operator], mutants=count)
        for operator, count in sorted(tried.items(), key=lambda pair: (-alive[pair[0]], pair[0]))
    )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
