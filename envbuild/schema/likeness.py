"""How alike two tables read: shared words of their names and columns."""

import random
import re
from collections.abc import Iterable, Sequence

from envbuild.records.corpus import Schema, Table
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
