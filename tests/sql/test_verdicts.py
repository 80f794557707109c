"""Every verdict on rows, its typed equality, F1, published verdicts, words for the unscored."""

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.errors import UnknownNameError
from envbuild.records.execution import Outcome, QueryResult, Rows, Value, Verdict
from envbuild.sql.execution.session import Session
from envbuild.sql.f1 import GoldRows, subset_f1
from envbuild.sql.from_names import order_matters
from envbuild.sql.verdicts import (
    VERDICTS,
    close_rows,
    equal_bag,
    equal_official,
    equal_permuted,
    is_wide,
    judge,
    without_distinct,
)
from tests.shared import shared_data

NAMES = ("official@1", "bag@1", "ordered@1", "strict@1", "testsuite@1")


def ok(*rows: tuple[object, ...]) -> QueryResult:
    return QueryResult(outcome=Outcome.OK, rows=rows)  # type: ignore[arg-type]


def words(predicted: QueryResult, gold: QueryResult, *, ordered: bool = False) -> list[bool]:
    return [
        judge(predicted, gold, verdict=name, ordered=ordered) is Verdict.EQUAL for name in NAMES
    ]


@pytest.mark.parametrize(
    ("predicted", "gold", "ordered", "equal"),
    [
        ([(1,), (2,)], [(1,), (2,)], True, "11111"),
        ([(2,), (1,)], [(1,), (2,)], False, "11101"),
        ([(2,), (1,)], [(1,), (2,)], True, "11000"),
        ([(1,), (1,), (2,)], [(1,), (2,)], False, "10000"),
        ([(1, 1, 2)], [(1, 2, 1)], False, "00001"),
        ([("a", 1), ("b", 2)], [(1, "a"), (2, "b")], True, "00001"),
        ([(1, 2), (2, 1)], [(1, 2), (1, 2)], False, "00000"),
        ([(1.0,)], [(1,)], True, "11111"),
        ([("1",)], [(1,)], True, "00000"),
        ([(b"1",)], [("1",)], True, "00000"),
        ([(None,)], [(None,)], True, "11111"),
        ([(2**53 + 1,)], [(2.0**53,)], True, "00000"),
        ([(float("inf"),)], [(float("inf"),)], True, "11111"),
        ([], [], True, "11111"),
        ([], [(None,)], True, "00000"),
    ],
)
def test_where_the_verdicts_differ(
    predicted: list[tuple[object, ...]], gold: list[tuple[object, ...]], ordered: bool, equal: str
) -> None:
    found = words(ok(*predicted), ok(*gold), ordered=ordered)
    assert found == [flag == "1" for flag in equal]
    assert words(ok(*gold), ok(*predicted), ordered=ordered) == found


@pytest.mark.parametrize(
    ("outcome", "as_gold", "as_predicted"),
    [
        (Outcome.ERROR, Verdict.GOLD_ERROR, Verdict.PREDICTED_ERROR),
        (Outcome.DENIED, Verdict.GOLD_ERROR, Verdict.PREDICTED_ERROR),
        (Outcome.INVALID, Verdict.GOLD_ERROR, Verdict.PREDICTED_ERROR),
        (Outcome.TIMEOUT, Verdict.GOLD_TIMEOUT, Verdict.PREDICTED_TIMEOUT),
        (Outcome.TRUNCATED, Verdict.GOLD_TRUNCATED, Verdict.PREDICTED_TRUNCATED),
    ],
)
def test_outcomes_decide_before_rows(
    outcome: Outcome, as_gold: Verdict, as_predicted: Verdict
) -> None:
    failed = QueryResult(outcome=outcome, rows=((1,),))
    assert judge(ok((1,)), failed) is as_gold
    assert judge(failed, ok((1,))) is as_predicted
    assert judge(failed, failed) is as_gold  # a broken gold is never the policy's fault
    assert judge(None, failed) is as_gold
    assert (as_gold.correct, as_predicted.correct) == (None, False)


def test_no_prediction_and_unknown_names() -> None:
    assert judge(None, ok()) is Verdict.NO_PREDICTION
    with pytest.raises(UnknownNameError, match="bag@1"):
        judge(ok(), ok(), verdict="bag@2")


@pytest.mark.parametrize(
    ("predicted", "gold", "equal"),
    [
        ([(100.0,), (10.001,)], [(9.999,), (100.0,)], "1110"),
        ([(10.005,)], [(10,)], "1111"),
        ([("10.0",)], [(10.0,)], "0000"),
        ([(1.0, "a"), (1.01, "b")], [(1.005, "a"), (1.005, "b")], "1111"),
        ([(1.0,), (1.0,), (1.016,)], [(1.0,), (1.008,), (1.008,)], "1111"),
        ([(1.0, 9.0), (1.002, 5.0)], [(1.001, 5.0), (1.0, 9.0)], "1110"),
        ([(1.0,), (1.0,), (2.0,)], [(1.0,), (2.0,), (2.0,)], "1000"),
        ([(1e300,)], [(1e300 * (1 + 1e-12),)], "1111"),
        ([(float("inf"),)], [(float("inf"),)], "1111"),
    ],
)
def test_tolerance(
    predicted: list[tuple[object, ...]], gold: list[tuple[object, ...]], equal: str
) -> None:
    for name, flag in zip(("official@1", "bag@1", "ordered@1", "strict@1"), equal, strict=True):
        for a, b in ((predicted, gold), (gold, predicted)):
            found = judge(ok(*a), ok(*b), verdict=name, tolerance=0.01)
            assert (found is Verdict.EQUAL) == (flag == "1"), name


def test_tolerance_against_trying_every_pairing() -> None:
    chance = random.Random(4)
    cells: tuple[Value, ...] = (1, 2, 2**53 + 1, 1.0, 1.05, 1.1, 1.15, 2.0**53, 9e999, "a", None)
    found = Counter[bool]()
    for _ in range(3000):
        width, length = chance.randint(0, 2), chance.randint(0, 5)
        gold = [tuple(chance.choice(cells) for _ in range(width)) for _ in range(length)]
        moved = [tuple(nudged(cell, chance) for cell in row) for row in gold]
        chance.shuffle(moved)
        close = [[close_rows(a, b, 0.1) for b in gold] for a in moved]
        paired = any(
            all(close[n][at] for n, at in enumerate(order))
            for order in itertools.permutations(range(length))
        )
        covered = all(map(any, close)) and all(map(any, zip(*close, strict=True)))
        assert equal_bag(tuple(moved), tuple(gold), tolerance=0.1) is paired
        assert equal_official(tuple(moved), tuple(gold), tolerance=0.1) is covered
        found[paired] += 1
    assert min(found.values()) > 500


def nudged(cell: Value, chance: random.Random) -> Value:
    return cell + chance.choice((0, 0, 0.06, -0.11)) if isinstance(cell, float) else cell


def test_tolerance_beside_numbers_that_sqlite_cannot_hold() -> None:
    assert equal_bag(((10**400, 0.1),), ((10**400, 0.1 + 1e-12),), tolerance=0.0)
    assert not equal_bag(((10**400,),), ((10**400 + 1,),), tolerance=0.0)


def test_tolerance_over_many_close_rows() -> None:
    chance = random.Random(0)
    one, other = (
        tuple((0.1 + chance.random() * 1e-11, n) for n in range(30_000)) for _ in range(2)
    )
    assert equal_bag(one, other[::-1], tolerance=0.0)
    assert equal_official(one, other[::-1], tolerance=0.0)
    assert not equal_bag(one, ((0.2, 0), *other[1:]), tolerance=0.0)
    chain = tuple((n / 10,) for n in range(30_000))  # one group, since each is close to the next
    assert equal_bag(chain, (*chain[1:], (3_000.0,)), tolerance=0.11)
    assert not equal_bag(chain, (*chain[2:], (3_000.0,), (3_000.0,)), tolerance=0.11)
    assert equal_official(chain, chain[1:], tolerance=0.11)


def test_wide_results_are_compared_by_digest() -> None:
    gold = tuple((n, *range(1000)) for n in range(1000))
    assert not is_wide(gold[1:])
    assert is_wide(gold)
    assert words(ok(*gold), ok(*gold)) == [True] * 5
    as_floats = tuple((float(row[0]), *row[1:]) for row in gold)
    assert words(ok(*as_floats[::-1]), ok(*gold), ordered=True) == [True, True, False, False, False]
    assert words(ok(*gold[1:]), ok(*gold)) == [False] * 5
    permuted = tuple(row[::-1] for row in gold)
    assert words(ok(*permuted), ok(*gold)) == [False] * 5
    assert words(ok(*permuted[:900]), ok(*gold[:900])) == [False] * 4 + [True]
    nearly = ((0.001, *gold[0][1:]), *gold[1:])
    for rows, verdict in ((1000, Verdict.DIFFERENT), (900, Verdict.EQUAL)):
        assert judge(ok(*nearly[:rows]), ok(*gold[:rows]), tolerance=0.01) is verdict
    with_text = tuple((str(row[0]), *row[1:]) for row in gold)
    assert words(ok(*with_text), ok(*gold)) == [False] * 5


def test_column_permutations_against_trying_them_all() -> None:
    chance = random.Random(1)
    equal = 0
    for _ in range(4000):
        columns, rows = chance.randint(1, 4), chance.randint(1, 4)
        gold = random_rows(chance, rows, columns)
        predicted = random_rows(chance, rows, columns)
        if chance.random() < 0.6:
            order = chance.sample(range(columns), columns)
            predicted = tuple(tuple(row[i] for i in order) for row in chance.sample(gold, rows))
        moved = list(every_order(predicted, columns))
        for ordered in (False, True):
            same: Callable[[Rows], object] = tuple if ordered else Counter
            expected = same(gold) in map(same, moved)
            equal += expected
            assert equal_permuted(predicted, gold, ordered=ordered) == expected
    assert 2000 < equal < 7000


def test_wide_and_symmetric_results_end_soon() -> None:
    wide = tuple(tuple(range(row, row + 1900)) for row in range(5))
    assert equal_permuted(tuple(row[::-1] for row in wide), wide, ordered=False)
    chance = random.Random(2)
    noise = [tuple(chance.choice("ab") for _ in range(14)) for _ in range(60)]
    shuffled = [tuple(chance.sample(row, 14)) for row in noise]
    assert not equal_permuted(tuple(shuffled), tuple(noise), ordered=False)


def test_every_registered_verdict_is_tested_here() -> None:
    assert tuple(VERDICTS) == NAMES


@pytest.mark.parametrize(
    ("predicted", "gold", "f1"),
    [
        ([], [], 1.0),
        ([(1,)], [], 0.0),
        ([("apple",), ("apple",), ("pear",)], [("apple",), ("pear",)], 0.8),
        ([(1,), (1,)], [(1,), (1,), (1,)], 0.8),
        ([("ann", 9.5), ("bob", 3)], [(9.5, "ann"), (3, "bob")], 0.0),
    ],
)
def test_multiset_f1(
    predicted: list[tuple[object, ...]], gold: list[tuple[object, ...]], f1: float
) -> None:
    p: Rows = tuple(predicted)  # type: ignore[arg-type]  # cells of many types
    g: Rows = tuple(gold)  # type: ignore[arg-type]
    assert GoldRows(g).f1(p) == pytest.approx(f1)
    assert GoldRows(p).f1(g) == pytest.approx(f1)
    assert GoldRows(g).equals(p) == (f1 == 1.0)


def test_overlap_against_counters() -> None:
    chance = random.Random(0)
    for _ in range(2000):
        p, g = (random_rows(chance, chance.randint(0, 6), 1) for _ in range(2))
        assert GoldRows(g).overlap(p) == (Counter(p) & Counter(g)).total()


def test_best_mapping_against_trying_them_all() -> None:
    chance = random.Random(3)
    for _ in range(1500):
        width = chance.randint(1, 3)
        narrow = random_rows(chance, chance.randint(1, 6), width)
        wide = random_rows(chance, chance.randint(1, 6), chance.randint(width + 1, 5))
        overlaps = [
            (Counter(narrow) & Counter(moved)).total() for moved in every_order(wide, width)
        ]
        best = 2 * max(overlaps) / (len(narrow) + len(wide))
        assert subset_f1(narrow, wide) == pytest.approx(best)
        assert subset_f1(wide, narrow) == pytest.approx(best)


def test_no_column_is_used_twice() -> None:
    assert subset_f1(((1, 1),), ((1, 2, 3),)) == 0.0
    assert subset_f1(((1, 1),), ((1, 2, 1),)) == 1.0


def test_wide_and_long_results_are_compared() -> None:
    long = tuple((i, f"n{i}", i % 7) for i in range(50_000))
    assert subset_f1(tuple((f"n{i}", i) for i in range(50_000)), long) == 1.0
    chance = random.Random(5)
    wide = random_rows(chance, 20, 1000, 10**6)
    assert subset_f1(tuple(row[1:300][::-1] for row in wide), wide) == 1.0
    subset_f1(random_rows(chance, 50, 8), random_rows(chance, 50, 16))


@pytest.mark.parametrize(
    ("sql", "without"),
    [
        ("SELECT DISTINCT a FROM t", "SELECT  a FROM t"),
        ("SELECT count(distinct a), 'distinct' FROM t", "SELECT count( a), 'distinct' FROM t"),
        ("SELECT a IS NOT DISTINCT FROM b", "SELECT a IS NOT DISTINCT FROM b"),
        ('SELECT "DISTINCT" -- DISTINCT', 'SELECT "DISTINCT" -- DISTINCT'),
    ],
)
def test_without_distinct(sql: str, without: str) -> None:
    assert without_distinct(sql) == without


def test_597_published_verdicts() -> None:
    """DISTINCT ignored on both sides, order where the gold's outermost query orders."""
    lines = shared_data("predictions", "spider_dev_supersql.jsonl").read_text().splitlines()
    predictions = [json.loads(line) for line in lines]
    databases = shared_data("spider", "database")
    sessions: dict[str, Session] = {}
    wrong = []
    for each in predictions:
        name = each["db_id"]
        if name not in sessions:
            sessions[name] = Session.open_file(databases / name / f"{name}.sqlite")
        predicted, gold = (
            sessions[name].run(without_distinct(each[key])) for key in ("predicted_sql", "gold_sql")
        )
        found = judge(
            predicted, gold, verdict="testsuite@1", ordered=order_matters(each["gold_sql"])
        )
        if found.correct != (each["exec_acc"] == 1.0):
            wrong.append(each["id"])
    assert (len(predictions), wrong) == (597, [])


def test_birds_rule_is_a_plain_set() -> None:
    """Every gold beside every other gold of its database: 287 questions, 41,000 pairs."""
    folder = shared_data("bird")
    results: dict[str, list[QueryResult]] = {}
    for question in json.loads((folder / "dev.json").read_text()):
        results.setdefault(question["db_id"], []).append(
            run(folder / "dev_databases", question["db_id"], question["SQL"])
        )
    assert sum(map(len, results.values())) == 287
    assert all(result.ok for golds in results.values() for result in golds)
    pairs = equal = 0
    for golds in results.values():
        sets = [set(gold.rows) for gold in golds]
        for i, predicted in enumerate(golds):
            for j in range(i, len(golds), 3):
                found = judge(predicted, golds[j], verdict="official@1") is Verdict.EQUAL
                assert found == (sets[i] == sets[j])
                pairs += 1
                equal += found
    assert pairs > 5000 and equal > 287 / 3


def run(databases: Path, name: str, sql: str) -> QueryResult:
    with Session.open_file(databases / name / f"{name}.sqlite") as session:
        return session.run(sql)


def random_rows(chance: random.Random, rows: int, columns: int, top: int = 2) -> Rows:
    return tuple(tuple(chance.randint(0, top) for _ in range(columns)) for _ in range(rows))


def every_order(rows: Rows, columns: int) -> list[Rows]:
    """The rows with so many of their columns, in every order."""
    orders = itertools.permutations(range(len(rows[0])), columns)
    return [tuple(tuple(row[i] for i in order) for row in rows) for order in orders]
