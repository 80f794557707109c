"""One plan a column: which values it may take, and how one is drawn."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from envbuild.records.demand import Condition
from envbuild.records.execution import Value
from envbuild.records.schema import Column
from envbuild.signal.amplify.fresh import beside, fresh_value
from envbuild.signal.amplify.kinds import NAME_LIKE, NAME_PART, Kind, affinity_of, kind_of, stored
from envbuild.signal.amplify.probe import Probe

SHARE_EXISTING, SHARE_LITERAL = 0.40, 0.35
"""How often a drawn value repeats one of the column, or a gold literal and its near misses."""
UNIQUE_FROM = 10
"""Rows without a repeat from which any column counts as unique by observation."""
LABELLED_COLUMNS = 3
"""Most columns of a dictionary table: a key, its label, and perhaps one more."""
_YEARS = (2018.0, 2024.0)


@dataclass(slots=True, kw_only=True)
class ColumnPlan:
    """The values of one column."""

    name: str
    affinity: str
    kind: Kind
    existing: list[Value]
    """Its values, repeats kept; grows with nothing that is added."""
    literals: list[Value] = field(default_factory=list)
    """Gold literals it is compared with, and values beside them."""
    low: float
    high: float
    nulls: float = 0.0
    """Share of NULLs in new rows; 0 where none was seen."""
    not_null: bool = False
    unique: bool = False
    """Kept without repeats: declared, observed or name-like."""
    spread: bool = False
    """Decides a LIMIT: kept without repeats so that no gold rests on a tie."""
    allowed: tuple[Value, ...] = ()
    """The only values a CHECK admits; empty where it names none."""
    pattern: str = ""
    collation: str
    probe: Probe

    def holds(self, condition: Condition, value: Value) -> bool:
        """Whether a value of the column satisfies the condition."""
        return self.probe.holds(condition, value, affinity=self.affinity, collation=self.collation)

    def draw(self, rng: Random) -> Value:
        """One value by the shares above."""
        if self.nulls and rng.random() < self.nulls:
            return None
        if self.allowed:
            return self.allowed[int(rng.random() * len(self.allowed))]
        chance = rng.random()
        if chance < SHARE_EXISTING and self.existing:
            return self.existing[int(rng.random() * len(self.existing))]
        if chance < SHARE_EXISTING + SHARE_LITERAL and self.literals:
            return self.literals[int(rng.random() * len(self.literals))]
        return self.fresh(rng)

    def fresh(self, rng: Random) -> Value:
        """A value made by kind and range."""
        pattern = self.pattern
        if self.existing and isinstance(
            shown := self.existing[int(rng.random() * len(self.existing))], str
        ):
            pattern = shown
        return stored(fresh_value(self.kind, self.low, self.high, pattern, rng), self.affinity)

    def beside(self, value: Value, rng: Random) -> Value:
        """A value a slightly wrong query would confuse with `value`, as the column stores it."""
        return stored(beside(value, self.kind, rng), self.affinity)


def plan_column(
    column: Column,
    values: Sequence[Value],
    literals: Iterable[Value],
    *,
    unique: bool,
    observed: bool,
    label: bool,
    repeats: bool,
    reference: bool,
    rng: Random,
    collation: str,
    probe: Probe,
) -> ColumnPlan:
    """The plan of a column from the rows it has and the literals golds compare it with.

    `observed` also keeps what the rows show without the DDL saying so: no NULL, no repeat; that
    every row of few points at a `reference` of its own shows nothing of the kind.
    """
    affinity = affinity_of(column.type)
    known: list[Value] = [v for v in values if v is not None]
    wanted = [stored(v, affinity) for v in literals if v is not None]
    kind = kind_of(column.name, column.type, known, wanted)
    low, high = _range(kind, column.name, known, wanted)
    share = (len(values) - len(known)) / len(values) if values else 0.0
    if not observed:
        share = max(share, 0.08)
    plan = ColumnPlan(
        name=column.name,
        affinity=affinity,
        kind=kind,
        existing=known,
        low=low,
        high=high,
        not_null=column.not_null,
        nulls=0.0 if column.not_null or column.primary_key else min(share, 0.25),
        unique=unique
        or (
            observed
            and not reference
            and observed_unique(column.name, known, label=label, repeats=repeats)
        ),
        pattern=next((v for v in wanted if isinstance(v, str) and "%" not in v), ""),
        collation=collation,
        probe=probe,
    )
    for value in dict.fromkeys(wanted):
        near = [plan.beside(value, rng), plan.beside(value, rng)]
        # where a value comes only once, it is left to the scenario that asks for it
        plan.literals += near if plan.unique else [value, value, *near]
    return plan


def observed_unique(
    name: str, values: Sequence[Value], *, label: bool = False, repeats: bool = False
) -> bool:
    """True where the rows show a column without repeats: ten of them, or two of what names a row.

    Names by their column's name, and the label of a dictionary table (`label`); what a gold counts
    with DISTINCT (`repeats`) does not.
    """
    distinct = len(set(values))
    if distinct < len(values) or distinct < 2:
        return False
    if distinct >= UNIQUE_FROM:
        return True
    if repeats:
        return False
    return label or (NAME_LIKE.search(name) is not None and not NAME_PART.search(name))


def _range(
    kind: Kind, name: str, known: Sequence[Value], literals: Sequence[Value]
) -> tuple[float, float]:
    if kind in (Kind.DATE, Kind.MOMENT):
        years = [
            float(v[:4]) for v in (*known, *literals) if isinstance(v, str) and v[:4].isdigit()
        ]
        return (min(years), max(years)) if years else _YEARS
    numbers = [n for n in map(_number, (*known, *literals)) if n is not None]
    if not numbers:
        if kind is Kind.YEAR or "year" in name.lower():
            return _YEARS
        return (1.0, 100.0)
    low, high = min(numbers), max(numbers)
    pad = max(1.0, (high - low) * 0.25, 0.2 * abs(high) if low == high else 0.0)
    if all(1900 <= n <= 2100 for n in numbers) or set(numbers) <= {0.0, 1.0}:
        pad = 1.0 if high > 1 else 0.0
    floor = 0.0 if low >= 0 else low - pad
    return (max(floor, low - pad), high + pad)


def _number(value: Value) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < 1e15 else None
