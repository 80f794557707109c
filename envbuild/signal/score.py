"""One question's signal: the share of wrong queries near its gold that a database tells apart.

Everything runs through the one executor and is compared by a named verdict; a mutant that errors,
runs out of its budget or returns too many rows differs (SIGNAL 7).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict

import msgspec

from envbuild.errors import GoldError
from envbuild.records.corpus import Schema
from envbuild.records.execution import Limits, QueryResult, Verdict
from envbuild.records.signal import SignalScore
from envbuild.signal.mutants import CAP, Mutant, MutantSet, draw_mutants
from envbuild.sql.execution.session import Session
from envbuild.sql.from_names import order_matters
from envbuild.sql.verdicts import judge

SIGNAL_LIMITS = Limits(vm_steps=8_000_000, rows=20_000, seconds=10.0)
"""What one run of a gold or mutant may use, on rows that are there or generated (SIGNAL 7).

Far above any published gold, low for a cross join.
"""
DEFAULT_VERDICT = "ordered@1"
MIN_MUTANTS = 3
"""Fewer leave a score null: a share of one or two says nothing."""
MIN_VARIANTS = 4
"""Variants with a non-empty gold that must fail to tell a mutant before it is presumed equal."""


class _Named(TypedDict):
    """What says whose score it is, and by what it was judged."""

    question_id: str
    db_id: str
    corpus: str
    verdict: str


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
    verdict: str = DEFAULT_VERDICT,
    cap: int = CAP,
    compiles: Callable[[str], bool] | None = None,
    question_id: str = "",
    db_id: str = "",
    corpus: str = "",
) -> SignalScore:
    """The question's score on the session's database; null, with its reason, where there is none.

    `variants` are other fillings of the same schema: a mutant alive here is presumed equivalent
    only where at least four of them, with a non-empty gold, fail to tell it apart too.
    """
    named = _Named(question_id=question_id, db_id=db_id, corpus=corpus, verdict=verdict)
    try:
        drawn = draw_mutants(gold_sql, schema, cap=cap, compiles=compiles, verdict=verdict)
    except GoldError as e:
        gold = session.run(gold_sql, limits=SIGNAL_LIMITS)
        return null_score(e.reason if gold.ok else f"gold_{gold.outcome.value}", **named)
    mutants = drawn.mutants
    trial = try_mutants(gold_sql, mutants, session=session, verdict=verdict)
    if reason := _unscorable(gold_sql, drawn, trial, session=session, verdict=verdict):
        return null_score(reason, **named, mutants=len(mutants), seed=drawn.seed)
    tried = [
        other
        for variant in variants
        if (other := _try_variant(gold_sql, mutants, trial.alive, variant, verdict)) is not None
    ]
    unseen = set(trial.alive).intersection(*(other.alive for other in tried))
    presumed = presumed_equivalents(trial.alive, [other.alive for other in tried])
    killed = len(mutants) - len(trial.alive)
    alive = [mutants[position] for position in trial.alive if position not in presumed]
    judged = len(mutants) - len(presumed)
    return SignalScore(
        **named,
        mutants=len(mutants),
        killed=killed,
        presumed_equivalent=len(presumed),
        unknown=len(unseen) - len(presumed),
        signal_low=killed / len(mutants),
        # with nothing left but equivalents there is nothing a wrong query could be paid for
        signal_high=killed / judged if judged else 1.0,
        gold_rows=len(trial.gold.rows),
        alive=tuple(mutant.operator for mutant in alive),
        alive_sql=tuple(mutant.sql for mutant in alive),
        operators=tuple(
            mutant.operator for position, mutant in enumerate(mutants) if position not in presumed
        ),
        variants=len(tried),
        seed=drawn.seed,
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
    verdict: str = DEFAULT_VERDICT,
    limits: Limits = SIGNAL_LIMITS,
    only: Sequence[int] | None = None,
    gold: QueryResult | None = None,
) -> Trial:
    """Runs a gold and its mutants (`only` those at these positions) on one database.

    `gold` is the gold's result where the caller has it.
    """
    gold = gold or session.run(gold_sql, limits=limits)
    if not gold.ok:
        return Trial(gold=gold, alive=())
    ordered = order_matters(gold_sql)
    positions = range(len(mutants)) if only is None else only
    alive = tuple(
        position
        for position in positions
        if judge(
            session.run(mutants[position].sql, limits=limits),
            gold,
            verdict=verdict,
            ordered=ordered,
        )
        is Verdict.EQUAL
    )
    return Trial(gold=gold, alive=alive)


def _try_variant(
    gold_sql: str,
    mutants: Sequence[Mutant],
    alive: Sequence[int],
    variant: Session,
    verdict: str,
) -> Trial | None:
    """The trial on a variant; None where its gold has no rows, which is no evidence."""
    trial = try_mutants(gold_sql, mutants, session=variant, verdict=verdict, only=alive)
    return trial if trial.gold.ok and trial.gold.rows else None


def _unscorable(
    gold_sql: str, drawn: MutantSet, trial: Trial, *, session: Session, verdict: str
) -> str:
    """Why a question has no score; empty where it has one."""
    if not trial.gold.ok:
        return f"gold_{trial.gold.outcome.value}"
    if len(drawn.mutants) < MIN_MUTANTS:
        return "few_mutants"
    ordered, found = order_matters(gold_sql), ""
    for sql, reason in (drawn.gold_sql, "rendered_gold_differs"), (gold_sql, "unstable_gold"):
        again = session.run(sql, limits=SIGNAL_LIMITS)
        if judge(again, trial.gold, verdict=verdict, ordered=ordered) is Verdict.EQUAL:
            return found
        found = reason
    return found


def null_score(
    reason: str,
    *,
    question_id: str,
    db_id: str,
    corpus: str,
    verdict: str,
    mutants: int = 0,
    seed: int = 0,
) -> SignalScore:
    """No score, and why."""
    return SignalScore(
        question_id=question_id,
        db_id=db_id,
        corpus=corpus,
        verdict=verdict,
        mutants=mutants,
        killed=0,
        signal_low=None,
        signal_high=None,
        seed=seed,
        reason=reason,
    )
