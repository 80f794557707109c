"""The mutants of a gold query under `signal@1`: which wrong queries near it are tried.

Drawn by a seed from the gold's text and the schema, never from rows: a score that chose its own
questions by what it measures could not be compared between two databases of one schema.
"""

import hashlib
import random
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from envbuild.engine.seeds import derive_seed
from envbuild.errors import GoldError
from envbuild.query.parse import render
from envbuild.records.corpus import Schema
from envbuild.signal.operators import OPERATORS
from envbuild.signal.tree import Edit, GoldTree, compiler_for

VERSION = "signal@1"
"""Which mutants are drawn; scores of another version are not compared with these."""
CAP = 12
"""Mutants a gold: more move a question's score by under 0.03 (SIGNAL 1)."""
MAX_PER_OPERATOR = 3
"""Mutants of one operator a gold: a short query's score must not be about one kind of change."""


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One wrong query near a gold."""

    operator: str
    """Name of the function that made it, e.g. `cmp_bound`."""
    sql: str


class MutantSet(msgspec.Struct, frozen=True, kw_only=True):
    """A gold's mutants, and the gold as the same renderer writes it."""

    gold_sql: str
    """Re-rendered: its result must be the gold's own, or the mutants mean nothing."""
    mutants: tuple[Mutant, ...]
    seed: int


def draw_mutants(
    gold_sql: str, schema: Schema, *, compiles: Callable[[str], bool] | None = None
) -> MutantSet:
    """At most 12 different mutants that compile, drawn round-robin over the operators.

    `compiles` asks an empty database of this schema; without it one is built for this call.
    Raises GoldError where the gold is not a query that sqlglot reads.
    """
    compiles = compiles or compiler_for(schema)
    seed = mutant_seed(gold_sql, schema)
    try:
        tree = GoldTree(gold_sql, schema)
        rendered = render(tree.root)
        mutants = _draw(tree, _shuffled_sites(tree, seed), compiles, seen={rendered})
    except RecursionError:
        raise GoldError("unparsed_gold", "nested too deeply") from None
    return MutantSet(gold_sql=rendered, mutants=mutants, seed=seed)


def mutant_seed(gold_sql: str, schema: Schema) -> int:
    """The seed of a gold's mutants: from its text and the schema's names and types."""
    names = [(t.name, [(c.name, c.type) for c in t.columns]) for t in schema.tables]
    shape = hashlib.sha256(msgspec.json.encode(names)).hexdigest()
    return derive_seed(0, f"{shape}/{gold_sql.strip()}", VERSION)


def _shuffled_sites(tree: GoldTree, seed: int) -> list[tuple[str, list[Edit]]]:
    """Each operator with the places where it fits, both in a drawn order."""
    chance = random.Random(seed)
    drawn = []
    for name, operator in OPERATORS.items():
        sites = list(operator(tree))
        chance.shuffle(sites)
        if sites:
            drawn.append((name, sites))
    chance.shuffle(drawn)
    return drawn


def _draw(
    tree: GoldTree,
    sites_of: list[tuple[str, list[Edit]]],
    compiles: Callable[[str], bool],
    seen: set[str],
) -> tuple[Mutant, ...]:
    queue = deque(sites_of)
    mutants: list[Mutant] = []
    made: Counter[str] = Counter()
    while queue and len(mutants) < CAP:
        operator, sites = queue.popleft()
        while sites:
            sql = sites.pop().render(tree.root)
            if sql in seen:
                continue
            seen.add(sql)
            if compiles(sql):
                mutants.append(Mutant(operator=operator, sql=sql))
                made[operator] += 1
                break
        if sites and made[operator] < MAX_PER_OPERATOR:
            queue.append((operator, sites))
    return tuple(mutants)
