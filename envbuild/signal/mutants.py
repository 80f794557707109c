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
from envbuild.records.corpus import Schema
from envbuild.signal.operators import OPERATORS
from envbuild.signal.proofs import operators_unseen_by
from envbuild.signal.tree import Compiler, Edit, GoldTree, render

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


def make_mutants(
    gold_sql: str,
    schema: Schema,
    *,
    cap: int = CAP,
    compiles: Callable[[str], bool] | None = None,
    verdict: str = "ordered@1",
) -> tuple[Mutant, ...]:
    """At most `cap` different mutants that compile, drawn round-robin over the operators.

    `compiles` asks an empty database of this schema; without it one is built for this call.
    Changes that the verdict can never see (order without LIMIT under `bag@1`) are left out.
    Raises GoldError where the gold is not a query that sqlglot reads.
    """
    return draw_mutants(gold_sql, schema, cap=cap, compiles=compiles, verdict=verdict).mutants


def draw_mutants(
    gold_sql: str,
    schema: Schema,
    *,
    cap: int = CAP,
    compiles: Callable[[str], bool] | None = None,
    verdict: str = "ordered@1",
) -> MutantSet:
    """`make_mutants` with the re-rendered gold and the seed beside them."""
    compiles = compiles or Compiler.of_schema(schema).compiles
    try:
        return _draw(gold_sql, schema, cap, compiles, verdict)
    except RecursionError:
        raise GoldError("unparsed_gold", "nested too deeply") from None


def mutant_seed(gold_sql: str, schema: Schema) -> int:
    """The seed of a gold's mutants: from its text and the schema's names and types."""
    names = [(t.name, [(c.name, c.type) for c in t.columns]) for t in schema.tables]
    shape = hashlib.sha256(msgspec.json.encode(names)).hexdigest()
    return derive_seed(0, f"{shape}/{gold_sql.strip()}", VERSION)


def _draw(
    gold_sql: str, schema: Schema, cap: int, compiles: Callable[[str], bool], verdict: str
) -> MutantSet:
    tree = GoldTree(gold_sql, schema)
    seed = mutant_seed(gold_sql, schema)
    rendered = render(tree.root)
    seen = {rendered}
    mutants: list[Mutant] = []
    unseen = operators_unseen_by(verdict, tree)
    queue = deque(entry for entry in _shuffled_sites(tree, seed) if entry[0] not in unseen)
    made: Counter[str] = Counter()
    while queue and len(mutants) < cap:
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
    return MutantSet(gold_sql=rendered, mutants=tuple(mutants), seed=seed)


def _shuffled_sites(tree: GoldTree, seed: int) -> list[tuple[str, list[Edit]]]:
    chance = random.Random(seed)
    drawn = []
    for operator in OPERATORS:
        sites = list(operator(tree))
        chance.shuffle(sites)
        if sites:
            drawn.append((operator.__name__, sites))
    chance.shuffle(drawn)
    return drawn
