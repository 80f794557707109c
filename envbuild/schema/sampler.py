"""Sampled schemas: the gold tables and distractors, grown along foreign keys (CONTRACT 5)."""

import random
import re
from collections.abc import Callable, Iterable, Sequence

from envbuild.errors import UnknownNameError
from envbuild.records.corpus import SampledSchema, Schema, Table
from envbuild.schema.graph import SchemaGraph
from envbuild.sql.names import fold_name

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W\d_a-zA-Z]+")
NAME_WEIGHT = 3
"""A shared word of the table's name counts as much as this many of its columns'."""


def rank_by_likeness(schema: Schema, gold: Sequence[str], chance: random.Random) -> list[str]:
    """Every table outside `gold`, most like the gold tables first; ties in random order.

    Likeness is the weighted Jaccard overlap with the gold tables' words, taken together.
    """
    wanted = _weights(table for table in schema.tables if table.name in set(gold))
    others = sorted(
        (table for table in schema.tables if table.name not in set(gold)), key=lambda t: t.name
    )
    chance.shuffle(others)
    scored = [(-_overlap(_weights([table]), wanted), table.name) for table in others]
    scored.sort(key=lambda pair: pair[0])
    return [name for _, name in scored]


def _weights(tables: Iterable[Table]) -> dict[str, int]:
    weights: dict[str, int] = {}
    for table in tables:
        for column in table.columns:
            for word in _words(column.name):
                weights[word] = max(weights.get(word, 0), 1)
        for word in _words(table.name):
            weights[word] = NAME_WEIGHT
    return weights


def _words(name: str) -> list[str]:
    """`customerOrders_2` -> customer, order, 2: a plural's final s is dropped."""
    words = [fold_name(word) for word in _WORDS.findall(name)]
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words]


def _overlap(a: dict[str, int], b: dict[str, int]) -> float:
    shared = sum(min(weight, b[word]) for word, weight in a.items() if word in b)
    both = sum(a.values()) + sum(b.values()) - shared
    return shared / both if both else 0.0


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
    """What is chosen, what is one foreign key away, what is left."""

    def __init__(
        self, schema: Schema, graph: SchemaGraph, gold: list[str], chance: random.Random
    ) -> None:
        self.schema, self.graph, self.gold, self.chance = schema, graph, gold, chance
        self.chosen: set[str] = set()
        self.rest = set(graph.tables)
        self.near: set[str] = set()
        self.alike: list[str] | None = None
        for name in gold:
            self.take(name)

    def take(self, name: str) -> None:
        self.chosen.add(name)
        self.rest.discard(name)
        self.near.update(self.graph.neighbours(name))
        self.near -= self.chosen


def _along_keys(choice: _Choice) -> str:
    return choice.chance.choice(sorted(choice.near or choice.rest))


def _alike(choice: _Choice) -> str:
    if choice.alike is None:
        choice.alike = rank_by_likeness(choice.schema, choice.gold, choice.chance)
    return next(name for name in choice.alike if name not in choice.chosen)


def _anywhere(choice: _Choice) -> str:
    return choice.chance.choice(sorted(choice.rest))


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
