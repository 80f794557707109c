"""The statistics against published figures and independent computations."""

import math

import pytest

from envbuild.evaluate.statistics import (
    benjamini_hochberg,
    clustered_interval,
    holm,
    mcnemar_exact,
    minimum_detectable_effect,
    noise_floor,
    paired_bootstrap,
    sign_flip_test,
    wilson_interval,
)

# n = 300, EX 0.393 -> 0.443: 118 and 133 right, 15 lost and 30 won
BEFORE = [True] * 118 + [False] * 182
AFTER = [False] * 15 + [True] * 103 + [True] * 30 + [False] * 152


def test_published_case() -> None:
    assert round(sum(BEFORE) / 300, 3) == 0.393
    assert round(sum(AFTER) / 300, 3) == 0.443
    assert round(mcnemar_exact(15, 30), 4) == 0.0357
    interval = paired_bootstrap(BEFORE, AFTER)
    assert interval.low == pytest.approx(0.007, abs=0.002)
    assert interval.high == pytest.approx(0.093, abs=0.003)


def test_six_such_tests_do_not_survive_correction() -> None:
    p_values = [mcnemar_exact(15, 30)] * 6
    assert all(p < 0.05 for p in p_values)
    assert min(holm(p_values)) > 0.05
    mixed = [p_values[0], 0.2, 0.4, 0.6, 0.8, 0.9]
    assert min(benjamini_hochberg(mixed)) > 0.05


def test_mcnemar_equals_the_binomial_sum() -> None:
    tail = sum(math.comb(45, k) for k in range(16)) / 2**45
    assert mcnemar_exact(15, 30) == pytest.approx(2 * tail)
    assert mcnemar_exact(0, 0) == 1.0


def test_holm_and_bh_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert benjamini_hochberg([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.04, 0.04])
    assert holm([]) == benjamini_hochberg([]) == []


def test_wilson_by_hand() -> None:
    z, n, p = 1.959963984540054, 300, 118 / 300
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    found = wilson_interval(118, 300)
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half))
    assert (wilson_interval(0, 0).low, wilson_interval(0, 0).high) == (0, 1)


def test_equal_answers_to_one_question_count_as_one() -> None:
    single = [question < 24 for question in range(40)]
    eight = [question < 24 for question in range(40) for _ in range(8)]
    questions = [question for question in range(40) for _ in range(8)]
    of_forty = wilson_interval(24, 40)
    assert clustered_interval(single, range(40)) == of_forty
    found = clustered_interval(eight, questions)
    assert (found.low, found.high) == pytest.approx((of_forty.low, of_forty.high))
    for right in ([True] * 320, [False] * 320):  # no variance at all: the questions count
        assert clustered_interval(right, questions) == wilson_interval(40 * right[0], 40)
    assert clustered_interval([True] * 8, [0] * 8) == wilson_interval(1, 1)


def test_answers_that_are_no_copies_count_for_more_and_never_for_more_than_they_are() -> None:
    questions = [question for question in range(40) for _ in range(8)]
    mixed = [question % 8 >= place for question in range(40) for place in range(8)]
    found = clustered_interval(mixed, questions)
    width = found.high - found.low
    copies, apart = (wilson_interval(sum(mixed) / 320 * n, n) for n in (40, 320))
    assert apart.high - apart.low < width < copies.high - copies.low
    even = [place < 4 for _ in range(40) for place in range(8)]  # every question half right
    assert clustered_interval(even, questions) == wilson_interval(20, 40)


def test_clusters_widen_the_interval() -> None:
    databases = [f"db{i // 30}" for i in range(300)]
    plain = paired_bootstrap(BEFORE, AFTER)
    clustered = paired_bootstrap(BEFORE, AFTER, clusters=databases)
    assert clustered.high - clustered.low > plain.high - plain.low
    assert paired_bootstrap(BEFORE, AFTER, seed=1) == paired_bootstrap(BEFORE, AFTER, seed=1)


def test_minimum_detectable_effect_is_found_with_the_power_it_says() -> None:
    delta = minimum_detectable_effect(300, 0.15)
    assert 0.05 < delta < 0.08
    assert minimum_detectable_effect(1200, 0.15) == pytest.approx(delta / 2, rel=0.03)
    assert minimum_detectable_effect(3, 0.15) == 0.15


def test_sign_flip_agrees_with_mcnemar_on_single_runs() -> None:
    exact = mcnemar_exact(15, 30)
    assert sign_flip_test(BEFORE, AFTER) == pytest.approx(exact, abs=0.006)
    assert sign_flip_test(BEFORE, BEFORE) == 1.0
    assert sign_flip_test([0, 0, 0, 1], [0.5, 1, 1, 1]) == 2 / 2**3, "all three, or none of them"


def test_noise_floor() -> None:
    floor = noise_floor([[1, 1, 0, 0], [1, 0, 0, 0]])
    assert floor.flipped == 0.25
    assert floor.standard_deviation == pytest.approx(math.sqrt(0.5) / 4)
    assert noise_floor([[1, 0], [1, 0]]).difference == 0
