"""Samples: exact sizes, gold kept, grown along keys, the same under any hash seed."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from envbuild.errors import UnknownNameError
from envbuild.schema.graph import SchemaGraph
from envbuild.schema.sampler import draw_target, sample_schema
from tests.schema.test_graph import schema_of

CHAIN = schema_of(
    "CREATE TABLE t1(id INTEGER PRIMARY KEY);"
    + "".join(
        f"CREATE TABLE t{i}(id INTEGER PRIMARY KEY, p INT REFERENCES t{i - 1});"
        for i in range(2, 6)
    )
)
ISLANDS = schema_of(
    "CREATE TABLE a(id INTEGER PRIMARY KEY); CREATE TABLE b(a REFERENCES a);"
    + "".join(f"CREATE TABLE lone{i}(x);" for i in range(10))
)


@pytest.mark.parametrize(("target", "size"), [(1, 2), (4, 4), (64, 5)])
@pytest.mark.parametrize("seed", range(20))
def test_sizes_and_gold(target: int, size: int, seed: int) -> None:
    sample = sample_schema(CHAIN, ["T5", "t1"], target=target, seed=seed)
    assert len(sample.tables) == len(set(sample.tables)) == size
    assert sample.gold_tables == ("t1", "t5")
    assert set(sample.tables) == {"t1", "t5", *sample.distractors}
    if target == 4:
        assert sample.distractors in {("t2", "t3"), ("t2", "t4"), ("t3", "t4")}


def test_growth_is_uniform_over_the_tables_one_key_away() -> None:
    picks = Counter(
        sample_schema(CHAIN, ["t3"], target=2, seed=seed).distractors for seed in range(2000)
    )
    assert set(picks) == {("t2",), ("t4",)}
    assert 900 < picks["t2",] < 1100


def test_connected_tables_come_before_the_rest() -> None:
    for seed in range(50):
        assert sample_schema(ISLANDS, ["a"], target=2, seed=seed).distractors == ("b",)
        assert len(sample_schema(ISLANDS, ["a"], target=7, seed=seed).tables) == 7


def test_extra_full_and_an_unknown_name() -> None:
    assert len(sample_schema(ISLANDS, ["a", "b"], target=4, seed=1, extra=3).tables) == 5
    everything = sample_schema(ISLANDS, ["a"], target=4, seed=1, full=True)
    assert sorted(everything.tables) == sorted(ISLANDS.table_names)
    assert everything.target_size == len(ISLANDS.tables)
    assert sample_schema(ISLANDS, [], target=3, seed=0).gold_tables == ()
    with pytest.raises(UnknownNameError, match="no table 'zebra'"):
        sample_schema(ISLANDS, ["zebra"], target=4, seed=1)
    with pytest.raises(UnknownNameError, match="known: fk, lexical, mixed, random"):
        sample_schema(ISLANDS, ["a"], target=4, seed=1, distractors="near")


def test_lexical_distractors_read_like_the_gold_tables() -> None:
    schema = schema_of(
        "CREATE TABLE customer_orders(order_id, customer_id, total);"
        "CREATE TABLE customerOrderArchive(order_id, customer_id, total);"
        "CREATE TABLE orders(order_id, day); CREATE TABLE weather(day, rain);"
        "CREATE TABLE planets(mass)"
    )
    sample = sample_schema(schema, ["customer_orders"], target=3, seed=5, distractors="lexical")
    assert sample.distractors == ("customerOrderArchive", "orders")


@pytest.mark.parametrize("distractors", ["fk", "lexical", "random", "mixed"])
def test_the_shown_order_is_shuffled_and_the_seed_decides(distractors: str) -> None:
    graph = SchemaGraph(ISLANDS)
    samples = [
        sample_schema(ISLANDS, ["a"], target=8, seed=s, distractors=distractors, graph=graph)
        for s in range(30)
    ]
    again = [
        sample_schema(ISLANDS, ["a"], target=8, seed=s, distractors=distractors) for s in range(30)
    ]
    assert samples == again
    assert len({s.tables for s in samples}) > 20
    assert len({s.tables[0] for s in samples}) > 3


def test_targets_are_uniform_and_both_ends_are_drawn() -> None:
    drawn = Counter(draw_target(seed, smallest=4, largest=64) for seed in range(6100))
    assert set(drawn) == set(range(4, 65))
    assert max(drawn.values()) < 2 * min(drawn.values())


def test_a_sample_does_not_hang_on_the_hash_seed() -> None:
    program = (
        "from tests.schema.test_sampler import *\n"
        "for mode in ('fk', 'lexical', 'mixed'):\n"
        "    print(sample_schema(ISLANDS, ['a'], target=6, seed=3, distractors=mode))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "77")
    }
    assert len(outputs) == 1
