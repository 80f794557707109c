"""F1 over multisets of rows, and the best mapping of columns against trying them all."""

import itertools
import random
from collections import Counter

import pytest

from envbuild.records.execution import Rows
from envbuild.sql.f1 import GoldRows, subset_f1


@pytest.mark.parametrize(
    ("predicted", "gold", "f1"),
    [
        ([], [], 1.0),
        ([], [(1,)], 0.0),
        ([(1,)], [], 0.0),
        ([("apple",), ("apple",), ("pear",)], [("apple",), ("pear",)], 0.8),
        ([(1,), (1,)], [(1,), (1,), (1,)], 0.8),
        ([(1.0,), (2.5,)], [(1,), (2.5,)], 1.0),
        ([("1",)], [(1,)], 0.0),
        ([(None,)], [("None",)], 0.0),
        ([("ann", 9.5), ("bob", 3)], [(9.5, "ann"), (3, "bob")], 0.0),
        ([(-0.0, 1)], [(0, 1)], 1.0),
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
        best = 2 * by_trying(narrow, wide) / (len(narrow) + len(wide))
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


def random_rows(chance: random.Random, rows: int, columns: int, top: int = 2) -> Rows:
    return tuple(tuple(chance.randint(0, top) for _ in range(columns)) for _ in range(rows))


def by_trying(narrow: Rows, wide: Rows) -> int:
    counted = Counter(narrow)
    mappings = itertools.permutations(range(len(wide[0])), len(narrow[0]))
    return max(
        (counted & Counter(tuple(row[i] for i in mapping) for row in wide)).total()
        for mapping in mappings
    )
