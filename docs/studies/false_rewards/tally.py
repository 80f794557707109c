"""What was measured on every state, counted: what policies pay, and what the signal foretold."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from envbuild.records.signal import AliveOperator
from false_rewards.measured import Measured
from false_rewards.records import PaidByScore, PolicyRow, ScoreBin, SystemRow
from false_rewards.states import FULL, SPARSE, Policy, cut_name, one_guided

BIN_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
FEWEST_WRONG = 8
"""Wrong predictions from which on a database has a share of them that is paid."""


def policy_row(policy: Policy, measured: Sequence[Measured]) -> PolicyRow:
    """What one policy pays to all predictions, and the signal of the questions under it."""
    judged = [one for one in measured if one.right is not None and policy.visible in one.equal]
    wrong = [one for one in judged if not one.right]
    right = [one for one in judged if one.right]
    empty = [one for one in wrong if not one.rows[policy.visible]]
    questions = each_once(measured)
    scored = [pair for one in questions if (pair := one.score(policy.visible)) is not None]
    with_gold = [one.rows[policy.visible] for one in questions if policy.visible in one.rows]
    return PolicyRow(
        policy=policy.name,
        variants=len(policy.hidden),
        wrong=len(wrong),
        paid=sum(one.is_paid(policy) for one in wrong),
        right=len(right),
        refused=sum(not one.is_paid(policy) for one in right),
        wrong_on_empty=len(empty),
        paid_on_empty=sum(one.is_paid(policy) for one in empty),
        questions=len(scored),
        signal_low=_mean([low for low, _ in scored]),
        signal_high=_mean([high for _, high in scored]),
        share_below_half=_mean([float(high < 0.5) for _, high in scored]),
        empty_golds=_mean([float(not rows) for rows in with_gold]),
    )


def top_alive(measured: Sequence[Measured]) -> tuple[AliveOperator, ...]:
    """Every operator at full data, the most alive first; presumed equivalents left out."""
    tried: Counter[str] = Counter()
    alive: Counter[str] = Counter()
    for one in each_once(measured):
        presumed = one.presumed(FULL) if FULL in one.alive else frozenset()
        left = set(one.alive.get(FULL, ())) - presumed
        for position, operator in enumerate(one.operators):
            tried[operator] += position not in presumed
            alive[operator] += position in left
    return tuple(
        AliveOperator(operator=operator, alive=alive[operator], mutants=count)
        for operator, count in sorted(tried.items(), key=lambda pair: (-alive[pair[0]], pair[0]))
    )


def each_once(measured: Sequence[Measured]) -> list[Measured]:
    """The questions, whatever number of systems answered them."""
    return list({(one.db_id, one.question_id): one for one in reversed(measured)}.values())[::-1]


def system_rows(measured: Sequence[Measured]) -> tuple[SystemRow, ...]:
    """What each system's wrong predictions are paid; none without predictions."""
    sparse = Policy(name="", visible=cut_name(SPARSE))
    guided = one_guided()
    rows = []
    for system in sorted({one.system for one in measured}):
        own = [one for one in measured if one.system == system and one.right is not None]
        judged = [one for one in own if sparse.visible in one.equal]
        if not judged:
            continue
        grown = any(guided.hidden[0] in one.equal for one in judged)
        wrong = [one for one in judged if not one.right]
        right = [one for one in judged if one.right]
        rows.append(
            SystemRow(
                system=system,
                wrong=len(wrong),
                right=len(right),
                paid=sum(one.is_paid(sparse) for one in wrong),
                paid_with_variant=sum(one.is_paid(guided) for one in wrong) if grown else None,
                refused_with_variant=(
                    sum(not one.is_paid(guided) for one in right) if grown else None
                ),
            )
        )
    return tuple(rows)


def paid_by_score(measured: Sequence[Measured], states: Sequence[str]) -> PaidByScore:
    """Wrong predictions paid on these states, by the question's score there."""
    pairs = [(score, paid) for state in states for _, score, paid in _wrong_scored(measured, state)]
    bins = []
    for low, high in pairwise(BIN_EDGES):
        last = high == BIN_EDGES[-1]
        inside = [paid for score, paid in pairs if low <= score < high or (last and score >= high)]
        bins.append(ScoreBin(low=low, high=high, wrong=len(inside), paid=sum(inside)))
    return PaidByScore(bins=tuple(bins), spearman=_spearman(pairs))


def database_cells(
    measured: Sequence[Measured], states: Sequence[str]
) -> list[tuple[float, float]]:
    """(mean score, share of wrong predictions paid) of each database on each state.

    A share of fewer than eight says too little and is left out.
    """
    cells = []
    for state in states:
        own: dict[str, list[tuple[float, bool]]] = defaultdict(list)
        for db_id, score, paid in _wrong_scored(measured, state):
            own[db_id].append((score, paid))
        for pairs in own.values():
            if len(pairs) >= FEWEST_WRONG:
                mean = statistics.fmean(score for score, _ in pairs)
                cells.append((mean, sum(paid for _, paid in pairs) / len(pairs)))
    return cells


def database_correlation(cells: Sequence[tuple[float, float]]) -> float | None:
    """Spearman over `database_cells`; None where there is nothing to correlate."""
    return _spearman(cells)


def _wrong_scored(measured: Sequence[Measured], state: str) -> Iterator[tuple[str, float, bool]]:
    """(db_id, upper end of the question's score, paid) of the wrong predictions on one state."""
    for one in measured:
        score = one.score(state)
        if one.right is False and state in one.equal and score is not None:
            yield one.db_id, score[1], one.equal[state]


def _spearman(pairs: Sequence[tuple[float, float]]) -> float | None:
    if any(len(set(side)) < 2 for side in zip(*pairs, strict=True)) or len(pairs) < 2:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(*zip(*pairs, strict=True)).statistic)


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
