"""Edges: half-open bands, names, what the operator may type, quantiles of a corpus."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.errors import UsageError
from envbuild.manifest.buckets import (
    Edges,
    bucket_corpora,
    parse_edges,
    parse_shares,
    suggest_edges,
)


@pytest.mark.parametrize(
    ("length", "name"),
    [(0, "short"), (148, "short"), (149, "medium"), (277, "medium"), (278, "long"), (9999, "long")],
)
def test_published_buckets_are_half_open(length: int, name: str) -> None:
    assert Edges().bucket(length) == Edges((149, 278)).bucket(length) == name


def test_other_numbers_of_edges_are_numbered() -> None:
    assert Edges((10,)).names == ("b0", "b1")
    assert [Edges((10, 20, 30)).bucket(n) for n in (9, 10, 29, 30)] == ["b0", "b1", "b2", "b3"]


@pytest.mark.parametrize("text", ["", "a", "278,149", "149,149", "0,5", "1.5", "-3", "149,278,"])
def test_edges_that_cannot_be(text: str) -> None:
    with pytest.raises(UsageError, match="149,278"):
        parse_edges(text)


def test_shares_are_one_a_bucket_and_add_up() -> None:
    assert parse_shares("0.20,0.25,0.55", 3) == (0.2, 0.25, 0.55)
    for text in ("0.5,0.5", "0.5,0.5,0.5", "1.5,-0.5,0", "x"):
        with pytest.raises(UsageError):
            parse_shares(text, 3)


def test_suggested_edges_make_even_buckets() -> None:
    assert parse_edges("149,278") == Edges((149, 278))
    assert suggest_edges(range(1, 101), 4).values == (26, 51, 76)
    assert suggest_edges([5] * 90 + [6] * 5 + [7] * 5, 2).values == (6,)
    with pytest.raises(UsageError, match="2 different"):
        suggest_edges([5, 5, 6], 3)
    with pytest.raises(UsageError, match="at least 2"):
        suggest_edges([5, 6], 1)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(2, 6))
def test_suggested_buckets_are_never_empty(lengths: list[int], buckets: int) -> None:
    if len(set(lengths)) < buckets:
        return
    edges = suggest_edges(lengths, buckets)
    assert {edges.bucket(length) for length in lengths} == set(edges.names)


@pytest.mark.parametrize("text", ["nan,0.5,0.5", "0.5,0.5,nan", "inf,0,0", "-1,1,1", "", "1,0"])
def test_shares_that_do_not_add_up_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="add up to 1"):
        parse_shares(text, 3)


@pytest.mark.parametrize("option", ["edges", "shares"])
def test_an_empty_option_is_refused_not_ignored(option: str) -> None:
    with pytest.raises(UsageError, match=f"--{option} takes"):
        bucket_corpora([], **{option: ""})
