"""One question's signal: the share of wrong queries near its gold that a database tells apart.

Everything runs through the one executor and is compared under `ordered@1`; a mutant that errors,
runs out of its budget or returns too many rows differs (SIGNAL 7).
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from envbuild.errors import GoldError
from envbuild.records.corpus import Schema
from envbuild.records.execution import Limits, QueryResult, Verdict
from envbuild.records.signal import SignalScore
from envbuild.signal.mutants import Mutant, MutantSet, draw_mutants
from envbuild.sql.execution.session import Session
from envbuild.sql.from_names import order_matters
from envbuild.sql.verdicts import judge

SIGNAL_LIMITS = Limits(vm_steps=8_000_000, rows=20_000, seconds=10.0)
"""What one run of a gold or mutant may use, on rows that are there or generated (SIGNAL 7).

Far above any published gold, low for a cross join.
"""
VERDICT = "ordered@1"
"""Under which a mutant's result is the gold's own."""
MIN_MUTANTS = 3
"""Fewer leave a score null: a share of one or two says nothing."""
MIN_VARIANTS = 4
"""Variants with a non-empty gold that must fail to tell a mutant before it is presumed equal."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A gold and its mutants on one database."""

    gold: QueryResult
    alive: tuple[int, ...]
    """Positions of the mutants with the gold's own result; empty where the gold is not ok."""


def score_question(
    gold_sql: str,
    *,
    session: Session,
    schema: Schema,
    variants: Sequence[Session] = (),
    compiles: Callable[[str], bool] | None = None,
) -> SignalScore:
    """The gold's score on the session's database; null, with its reason, where there is none.

    `variants` are other fillings of the same schema: a mutant alive here is presumed equivalent
    only where at least four of them, with a non-empty gold, fail to tell it apart too. The question
    is the caller's to name.
    """
    try:
        drawn = draw_mutants(gold_sql, schema, compiles=compiles)
    except GoldError as e:
        gold = session.run(gold_sql, limits=SIGNAL_LIMITS)
        return null_score(e.reason if gold.ok else f"gold_{gold.outcome.value}")
    mutants = drawn.mutants
    trial = try_mutants(gold_sql, mutants, session=session)
    if reason := _unscorable(gold_sql, drawn, trial.gold, session):
        return null_score(reason, mutants=len(mutants), seed=drawn.seed)
    trials = [try_mutants(gold_sql, mutants, session=v, only=trial.alive) for v in variants]
    evidence = [other.alive for other in trials if other.gold.ok and other.gold.rows]
    unseen = set(trial.alive).intersection(*evidence)
    presumed = presumed_equivalents(trial.alive, evidence)
    judged = [place for place in range(len(mutants)) if place not in presumed]
    alive = [mutants[place] for place in trial.alive if place not in presumed]
    killed = len(mutants) - len(trial.alive)
    return SignalScore(
        question_id="",
        verdict=VERDICT,
        mutants=len(mutants),
        killed=killed,
        presumed_equivalent=len(presumed),
        unknown=len(unseen) - len(presumed),
        signal_low=killed / len(mutants),
        # with nothing left but equivalents there is nothing a wrong query could be paid for
        signal_high=killed / len(judged) if judged else 1.0,
        gold_rows=len(trial.gold.rows),
        alive=tuple(mutant.operator for mutant in alive),
        alive_sql=tuple(mutant.sql for mutant in alive),
        operators=tuple(mutants[place].operator for place in judged),
        variants=len(evidence),
        seed=drawn.seed,
    )


def null_score(reason: str, *, mutants: int = 0, seed: int = 0) -> SignalScore:
    """No score, and why."""
    return SignalScore(
        question_id="",
        verdict=VERDICT,
        mutants=mutants,
        killed=0,
        signal_low=None,
        signal_high=None,
        seed=seed,
        reason=reason,
    )


def presumed_equivalents(alive: Iterable[int], evidence: Sequence[Iterable[int]]) -> frozenset[int]:
    """Of the mutants alive on a database, those that other fillings do not tell apart either.

    `evidence`: the mutants alive on each other filling, independent of the rest, on which the gold
    has rows. Fewer than four are none (SIGNAL 5).
    """
    if len(evidence) < MIN_VARIANTS:
        return frozenset()
    return frozenset(alive).intersection(*evidence)


def try_mutants(
    gold_sql: str,
    mutants: Sequence[Mutant],
    *,
    session: Session,
    only: Sequence[int] | None = None,
    gold: QueryResult | None = None,
) -> Trial:
    """Runs a gold and its mutants (`only` those at these positions) on one database.

    `gold` is the gold's result where the caller has it.
    """
    gold = gold or session.run(gold_sql, limits=SIGNAL_LIMITS)
    if not gold.ok:
        return Trial(gold=gold, alive=())
    ordered = order_matters(gold_sql)
    places = range(len(mutants)) if only is None else only
    alive = (p for p in places if _same(mutants[p].sql, gold, session, ordered=ordered))
    return Trial(gold=gold, alive=tuple(alive))


def _unscorable(gold_sql: str, drawn: MutantSet, gold: QueryResult, session: Session) -> str:
    """Why a question has no score; empty where it has one."""
    if not gold.ok:
        return f"gold_{gold.outcome.value}"
    if len(drawn.mutants) < MIN_MUTANTS:
        return "few_mutants"
    ordered = order_matters(gold_sql)
    if _same(drawn.gold_sql, gold, session, ordered=ordered):
        return ""
    stable = _same(gold_sql, gold, session, ordered=ordered)
    return "rendered_gold_differs" if stable else "unstable_gold"


def _same(sql: str, gold: QueryResult, session: Session, *, ordered: bool) -> bool:
    found = session.run(sql, limits=SIGNAL_LIMITS)
    return judge(found, gold, verdict=VERDICT, ordered=ordered) is Verdict.EQUAL
