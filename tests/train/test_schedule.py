from collections import Counter
from fractions import Fraction
from itertools import islice

import pytest

from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.train.schedule import (
    Draws,
    apportion,
    gate_at,
    iter_counts,
    load_schedule,
    mixture_at,
    parse_schedule,
    render_schedule,
)

SYNSQL = load_schedule("synsql")


def pool_of(**sizes: int) -> dict[str, list[str]]:
    return {name: [f"{name}-{i:04}" for i in range(size)] for name, size in sizes.items()}


@pytest.mark.parametrize(
    ("step", "shares"),
    [
        (0, (1, 0, 0)),
        (399, (1, 0, 0)),
        (400, (Fraction(40, 100), Fraction(30, 100), Fraction(30, 100))),
        (900, (Fraction(275, 1000), Fraction(25, 100), Fraction(475, 1000))),
        (1399, (Fraction(15025, 100000), Fraction(2001, 10000), Fraction(64965, 100000))),
        (1400, (Fraction(15, 100), Fraction(20, 100), Fraction(65, 100))),
        (1799, (Fraction(15, 100), Fraction(20, 100), Fraction(65, 100))),
        (5000, (Fraction(15, 100), Fraction(20, 100), Fraction(65, 100))),
    ],
)
def test_mixture_at_the_published_steps(step: int, shares: tuple[Fraction, ...]) -> None:
    assert tuple(mixture_at(SYNSQL, step).values()) == shares


def test_counts_are_the_largest_remainders_of_the_cumulative_shares() -> None:
    counts = [list(step.values()) for step in islice(iter_counts(SYNSQL), SYNSQL.steps)]
    assert counts[0] == counts[399] == [18, 0, 0] and counts[400] == [7, 6, 5]
    assert counts[1400:1403] == [[3, 3, 12], [3, 4, 11], [2, 4, 12]]
    promised = [Fraction(0)] * 3
    for step in range(SYNSQL.steps):
        shares = mixture_at(SYNSQL, step).values()
        promised = [sum(pair) for pair in zip(promised, shares, strict=True)]
        drawn = [sum(column) for column in zip(*counts[: step + 1], strict=True)]
        assert drawn == apportion(18 * (step + 1), [share / (step + 1) for share in promised])
    # the shares that hold for the last 400 steps, to the question: 0.15, 0.20, 0.65 of 7,200
    assert [sum(column) for column in zip(*counts[1400:], strict=True)] == [1080, 1440, 4680]


def test_a_share_that_falls_to_nothing_takes_no_question_back() -> None:
    plan = parse_schedule(
        b'name = "x"\nbuckets = ["a", "b", "c"]\npool = [0.5, 0.3, 0.2]\nquestions = 3\nsteps = 9\n'
        b"[[phases]]\nsteps = 1\nstart = [0.4, 0.4, 0.2]\n[[phases]]\nsteps = 8\n"
        b"start = [0.0, 0.1, 0.9]\n",
        "x",
    )
    for step, counts in enumerate(islice(iter_counts(plan), 50)):
        assert min(counts.values()) >= 0 and sum(counts.values()) == 3, step


def test_apportion_always_sums_and_stays_within_one_of_the_quota() -> None:
    for total in range(60):
        for a in range(11):
            for b in range(11 - a):
                shares = [Fraction(a, 10), Fraction(b, 10), Fraction(10 - a - b, 10)]
                counts = apportion(total, shares)
                assert sum(counts) == total
                assert all(abs(c - s * total) < 1 for c, s in zip(counts, shares, strict=True))


def test_the_gate_closes_over_eighty_steps() -> None:
    assert [gate_at(SYNSQL, step) for step in (0, 20, 40, 79, 80, 1000)] == [
        1.0,
        0.75,
        0.5,
        0.0125,
        0.0,
        0.0,
    ]


def test_no_question_comes_twice_before_its_bucket_is_spent() -> None:
    draws = Draws(SYNSQL, pool_of(short=1000, medium=777, long=501), seed=3)
    seen: Counter[str] = Counter()
    for step in range(SYNSQL.steps):
        draw = draws.at(step)
        ids = [row.row_id for row in draw.rows]
        assert len(ids) == len(set(ids)) == 18
        assert not draw.lacking
        seen.update(ids)
        for bucket, rows in draws.pool.items():
            counts = [seen[row_id] for row_id in rows]
            assert max(counts) - min(counts) <= 1, (step, bucket)


def test_a_draw_depends_on_seed_and_step_alone() -> None:
    pool = pool_of(short=300, medium=90, long=200)
    forwards = Draws(SYNSQL, pool, seed=1)
    every = {step: forwards.at(step) for step in range(0, 1800, 190)}
    for step in reversed(every):
        assert Draws(SYNSQL, pool, seed=1).at(step) == every[step]
    assert Draws(SYNSQL, pool, seed=2).at(0) != every[0]


def test_a_small_bucket_repeats_and_says_what_it_lacks() -> None:
    draw = Draws(SYNSQL, pool_of(short=5, medium=0, long=2), seed=0).at(900)
    assert draw.counts == {"short": 5, "medium": 5, "long": 8}
    assert draw.lacking == {"medium": 5, "long": 6}
    assert Counter(row.bucket for row in draw.rows) == {"short": 5, "long": 8}


def test_without_a_curriculum_everything_is_one_bucket() -> None:
    schedule = load_schedule("none")
    draws = Draws(schedule, {"all": [f"q{i}" for i in range(36)]}, seed=0)
    assert {row.row_id for step in (0, 1) for row in draws.at(step).rows} == {
        f"q{i}" for i in range(36)
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'name = "x"\nbuckets = ["a"]\npool = [0.9]\n[[phases]]\nsteps = 1\nstart = [1.0]',
            "sum to 1",
        ),
        ('name = "x"\nbuckets = ["a"]\npool = [1.0]\n', "at least one"),
        ('name = "x"\nstepz = 3\n', "stepz"),
        ('name = "x"\nquestions = 0\n', ">= 1.*questions"),
        (
            'name = "x"\nbuckets = ["a", "b"]\npool = [1.0]\n'
            "[[phases]]\nsteps = 1\nstart = [1.0, 0.0]",
            "2 shares",
        ),
        ("name = ", "mine"),
    ],
)
def test_a_wrong_schedule_is_refused_with_its_fault(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_schedule(text.encode(), "mine")


def test_an_unknown_schedule_names_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="none, synsql"):
        load_schedule("sinsql")


@pytest.mark.parametrize("name", ["synsql", "none"])
def test_a_rendered_schedule_reads_back(name: str) -> None:
    schedule = load_schedule(name)
    assert parse_schedule(render_schedule(schedule).encode(), "rendered") == schedule
