"""False rewards: real wrong predictions that sparse databases pay, right ones that variants refuse.

A prediction is right or wrong by its result on the full database; what a policy pays for is
equality on the states it looks at. Judged by the reward's verdict (SIGNAL 4).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from envbuild.engine.fanout import run_shards
from envbuild.records.execution import QueryResult
from envbuild.schema.read import read_schema
from envbuild.signal.mutants import Mutant, draw_mutants
from envbuild.signal.score import MIN_VARIANTS, VERDICT, try_mutants
from envbuild.signal.tree import compiler_for
from envbuild.sql.execution.session import Session
from envbuild.sql.verdicts import judge
from false_rewards.measured import Measured
from false_rewards.records import Answer, FalseRewards
from false_rewards.states import (
    CUTS,
    FULL,
    SPARSE,
    State,
    amplified_policies,
    cut_name,
    cut_policies,
    open_states,
)
from false_rewards.tally import (
    database_cells,
    database_correlation,
    each_once,
    paid_by_score,
    policy_row,
    system_rows,
    top_alive,
)

REWARD_VERDICT = "bag@1"


class DatabaseAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """One database's questions: a unit of work."""

    db_id: str
    path: str
    answers: tuple[Answer, ...]
    amplified: bool
    seed: int


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
    ordered = sorted(answers, key=lambda one: (one.db_id, one.question_id, one.system))
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
    cells = database_cells(measured, [cut_name(rows) for rows in CUTS])
    policies = cut_policies() + (amplified_policies() if amplified else [])
    return FalseRewards(
        name=name,
        databases=len(work),
        questions=len(each_once(measured)),
        predictions=sum(answer.predicted_sql is not None for answer in answers),
        rows=tuple(policy_row(policy, measured) for policy in policies),
        systems=system_rows(measured),
        sparse=paid_by_score(measured, [cut_name(SPARSE)]),
        every_cut=paid_by_score(measured, [cut_name(rows) for rows in CUTS]),
        by_database=database_correlation(cells),
        cells=len(cells),
        top_alive=top_alive(measured),
        verdict=REWARD_VERDICT,
        signal_verdict=VERDICT,
        fillings=max((one.fillings for one in measured), default=0),
        fillings_needed=MIN_VARIANTS,
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
        compiles = compiler_for(schema)
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
        db_id=answer.db_id,
        system=answer.system,
        mutants=len(mutants),
        operators=tuple(mutant.operator for mutant in mutants),
        alive=tried.alive,
        rows={name: len(gold.rows) for name, gold in tried.golds.items()},
        right=equal.get(FULL) if runs else None,
        equal=equal,
    )
