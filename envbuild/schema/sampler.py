"""Sampled schemas: the gold tables and distractors, grown along foreign keys (CONTRACT 5)."""

import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from envbuild.errors import UnknownNameError
from envbuild.records.corpus import SampledSchema, Schema
from envbuild.schema.graph import SchemaGraph
from envbuild.schema.likeness import rank_by_likeness
from envbuild.sql.names import fold_name

DEFAULT_TABLES = (4, 64)
"""Smallest and largest target, both drawn."""


def sample_schema(
    schema: Schema,
    gold_tables: Iterable[str],
    *,
    target: int,
    seed: int,
    distractors: str = "fk",
    extra: int | None = None,
    full: bool = False,
    graph: SchemaGraph | None = None,
) -> SampledSchema:
    """The tables one question is asked over, in shuffled order; the same for the same seed.

    `target` counts the gold tables, which stay even where they are more; `extra` asks for that
    many besides them instead, `full` for every table. A database with fewer tables gives them all.
    `graph` spares building it anew for every question of one database. Raises UnknownNameError
    for a gold table that the schema lacks and for distractors other than the known ones.
    """
    if distractors not in DISTRACTORS:
        raise UnknownNameError("kind of distractors", distractors, DISTRACTORS)
    graph = graph or SchemaGraph(schema)
    gold = sorted({_declared(graph, name) for name in gold_tables})
    if full:
        target = len(graph.tables)
    elif extra is not None:
        target = len(gold) + extra
    choice = _Choice(schema, graph, gold, random.Random(seed))
    add = DISTRACTORS[distractors]
    while len(choice.chosen) < target and choice.rest:
        choice.take(add(choice))
    order = sorted(choice.chosen)
    choice.chance.shuffle(order)
    return SampledSchema(
        tables=tuple(order),
        gold_tables=tuple(gold),
        distractors=tuple(sorted(choice.chosen.difference(gold))),
        target_size=target,
        seed=seed,
    )


def draw_target(seed: int, *, smallest: int, largest: int) -> int:
    """How many tables a row's sample has: uniform in [smallest, largest], from the row's seed."""
    return random.Random(f"target/{seed}").randint(smallest, largest)


class _Choice:
    """What is chosen, what one foreign key away, what is left; lists stay sorted."""

    def __init__(
        self, schema: Schema, graph: SchemaGraph, gold: list[str], chance: random.Random
    ) -> None:
        self.schema, self.gold, self.chance = schema, gold, chance
        self.neighbours = graph.neighbours
        self.chosen: set[str] = set()
        self.rest = sorted(graph.tables)
        self.near: list[str] = []
        self.alike: list[str] | None = None
        for name in gold:
            self.take(name)

    def take(self, name: str) -> None:
        self.chosen.add(name)
        for names in (self.rest, self.near):
            place = bisect_left(names, name)
            if place < len(names) and names[place] == name:
                del names[place]
        for other in self.neighbours(name):
            if other not in self.chosen:
                place = bisect_left(self.near, other)
                if place == len(self.near) or self.near[place] != other:
                    insort(self.near, other)


def _along_keys(choice: _Choice) -> str:
    return choice.chance.choice(choice.near or choice.rest)


def _alike(choice: _Choice) -> str:
    if choice.alike is None:
        choice.alike = rank_by_likeness(choice.schema, choice.gold, choice.chance)
    return next(name for name in choice.alike if name not in choice.chosen)


def _anywhere(choice: _Choice) -> str:
    return choice.chance.choice(choice.rest)


def _mixed(choice: _Choice) -> str:
    return choice.chance.choice((_along_keys, _alike, _anywhere))(choice)


DISTRACTORS: dict[str, Callable[[_Choice], str]] = {
    "fk": _along_keys,
    "lexical": _alike,
    "random": _anywhere,
    "mixed": _mixed,
}
"""Where the next table comes from, by the name of --distractors."""


def _declared(graph: SchemaGraph, name: str) -> str:
    found = graph.spelling.get(fold_name(name))
    if found is None:
        raise UnknownNameError("table", name, graph.tables)
    return found
