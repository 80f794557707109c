"""Scenario rows: a row combination that a gold looks for, and ones that miss it in one point."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
from networkx.utils import UnionFind

from envbuild.generate.columns import ColumnPlan, beside, fresh_day, moved_day, stored, word
from envbuild.generate.rows import Fixed, RowMaker, weighted
from envbuild.generate.tables import TableRows, Workspace
from envbuild.query.parse import OPPOSITE
from envbuild.records.execution import Value
from envbuild.records.signal import Condition, Frame, Site

REUSE = 0.35
"""How often an occurrence is bound to a row that already fits, instead of a new one."""
TRIES = 12
"""Values tried for a condition."""
NEAR = 0.7
"""How often such a value is a literal of the condition or one beside it."""
TIE = 0.4
"""How often a row that leads in a MAX or MIN equals the present one instead of passing it."""
_TIGHTEST = {"=": 0, "null": 0, "in": 1, "between": 2, "like": 2, "glob": 2}
"""The conditions on one column in the order in which they leave the least choice; others last."""
_PARTS = {
    **{"%Y": (0, 4), "%m": (5, 7), "%d": (8, 10), "%Y-%m": (0, 7), "%Y-%m-%d": (0, 10)},
    **{"%H": (11, 13), "%M": (14, 16), "%S": (17, 19)},
}
"""Where each strftime form lies within an ISO date and time."""


def negated(condition: Condition) -> Condition:
    """The condition that holds where this one does not (NULLs aside)."""
    op = condition.op
    opposite = OPPOSITE.get(op) or (op[4:] if op.startswith("not ") else f"not {op}")
    return msgspec.structs.replace(condition, op=opposite)


def satisfying(condition: Condition, plan: ColumnPlan, rng: Random) -> Value:
    """A value of the column that satisfies the condition, often a bound or one beside it."""
    values, op, form = condition.values, condition.op, condition.form
    match op:
        case "null":
            return None
        case "in" | "=":
            return _formed(rng.choice(values), form, plan, rng) if values else None
        case "like" | "glob":
            return stored(_from_pattern(str(values[0]), op, rng), plan.affinity)
    for _ in range(TRIES):
        value = _drawn(plan, rng)
        if values and rng.random() < NEAR:
            bound = rng.choice(values)
            bound = bound if rng.random() < 0.5 else beside(bound, plan.kind, rng)
            value = _formed(bound, form, plan, rng)
        if plan.holds(condition, value):
            return value
    return plan.beside(_formed(values[0] if values else 0, form, plan, rng), rng)


def _drawn(plan: ColumnPlan, rng: Random) -> Value:
    for _ in range(4):
        if (value := plan.draw(rng)) is not None:
            return value
    return plan.fresh(rng)


def _formed(value: Value, form: str, plan: ColumnPlan, rng: Random) -> Value:
    """A column value whose `form` is `value`."""
    if form in ("", "same") or value is None:
        return stored(value, plan.affinity)
    base = _drawn(plan, rng)
    text = str(value)
    name, _, argument = form.partition(":")
    dated = isinstance(base, str) and moved_day(base, 0) is not None
    if name == "strftime":
        span = _PARTS.get(argument)
        day = str(base) if dated and span else fresh_day(rng)
        if span is None:
            return day
        start, end = span
        if start > 10:
            day = f"{day[:10]} {day[11:19] or '00:00:00':08}"
        return day[:start] + text.zfill(end - start) + day[end:]
    if name == "date":
        return text + str(base)[10:] if dated else text
    if name == "substr":
        start_text = argument.partition(":")[0]
        at = int(start_text) if start_text.lstrip("-").isdigit() else 0
        shown = str(base)
        if at < 0:
            return shown[:at] + text
        at -= at > 0
        return stored(shown[:at].ljust(at, "x") + text + shown[at + len(text) :], plan.affinity)
    if name == "length" and isinstance(value, int | float):
        return (str(base) * (int(value) + 1))[: int(value)] or "x" * int(value)
    return stored(text if name in ("lower", "upper") else value, plan.affinity)


def _from_pattern(pattern: str, op: str, rng: Random) -> str:
    many, one = ("%", "_") if op == "like" else ("*", "?")
    made: list[str] = []
    for letter in pattern:
        if letter == many:
            made.append(f" {word(rng)}" if made else f"{word(rng)} ")
        else:
            made.append(chr(97 + int(rng.random() * 26)) if letter == one else letter)
    text = "".join(made)
    return text if any(c.isalpha() for c in pattern) else text.replace(" ", "")


def _beyond(values: Sequence[Value], largest: bool, rng: Random, *, tie: bool) -> Value:
    """A value past every one of `values` on the side asked for; None where they have no order.

    With `tie` the outermost value itself.
    """
    outermost: Any = max if largest else min
    sign = 1 if largest else -1
    if numbers := [v for v in values if isinstance(v, int | float)]:
        edge: int | float = outermost(numbers)
        if tie:
            return edge
        span = max(1.0, (max(numbers) - min(numbers)) * 0.2 * rng.random())
        moved = edge + sign * span
        return int(moved) if isinstance(edge, int) else round(moved, 2)
    text: str | None = outermost((v for v in values if isinstance(v, str)), default=None)
    if tie or text is None:
        return text
    return moved_day(text, sign * (1 + int(rng.random() * 30)))


Values = dict[Site, Value]
"""Class of equal columns (named by one of them) to value."""


@dataclass(slots=True, kw_only=True)
class BoundFrame:
    """A frame bound to the tables of one database."""

    frame: Frame
    tables: list[TableRows]
    order: list[int]
    """Occurrences, parents first."""
    classes: dict[Site, Site] = field(default_factory=dict)
    """Site to its class."""
    members: list[list[tuple[int, Site]]]
    """For each occurrence: (column position, class) of every column that matters."""

    def class_of(self, site: Site) -> Site:
        """The class a site belongs to."""
        return self.classes.get(site, site)

    def column(self, site: Site) -> tuple[TableRows, int | None]:
        """The table of a site and the position of its column; None where it cannot be filled."""
        table = self.tables[site[0]]
        return table, table.at.get(site[1].lower())


def bind_frame(frame: Frame, workspace: Workspace) -> BoundFrame | None:
    """The frame with its tables; None where it reads what cannot be filled (views)."""
    names = [name.lower() for name in frame.sources]
    if not names or not all(name in workspace.tables for name in names):
        return None
    order = sorted(range(len(names)), key=lambda at: (workspace.ranks[names[at]], at))
    tables = [workspace.tables[name] for name in names]
    bound = BoundFrame(frame=frame, tables=tables, order=order, members=[[] for _ in names])
    equal = UnionFind()
    for pair in frame.same:
        equal.union(*pair)
    for site in dict.fromkeys(_sites(frame)):
        bound.classes[site] = equal[site]
        _, position = bound.column(site)
        if position is not None:
            bound.members[site[0]].append((position, equal[site]))
    return bound


def _sites(frame: Frame) -> Iterator[Site]:
    for pair in frame.same:
        yield from pair
    for clause in frame.clauses:
        for alternative in clause:
            for condition in alternative:
                yield condition.site
                if condition.other:
                    yield condition.other
    yield from (*frame.group, *frame.distinct, *frame.shown)
    for site, _ in (*frame.ordered, *frame.extremes):
        yield site


@dataclass(frozen=True, slots=True)
class Scenarios:
    """Plays frames: chooses values for the classes, then makes or finds a row an occurrence."""

    maker: RowMaker
    rng: Random

    def play(
        self,
        bound: BoundFrame,
        *,
        keep: Values | None = None,
        miss: int | None = None,
        bare: bool = False,
        lead: bool = False,
        reuse: float = REUSE,
        used: dict[int, int] | None = None,
        only: tuple[int, ...] = (),
        weight: float | None = None,
    ) -> Values | None:
        """The values of one played combination; None where the rules admit none.

        `keep` holds classes to given values, `miss` names a clause to miss, `bare` leaves
        optional occurrences out, `lead` puts the combination first in what a LIMIT, a rank, MAX or
        MIN looks at; `used` takes each occurrence's row; `only` plays these occurrences and no
        other, `weight` sets free numbers within their range (0 the smallest, 1 the largest).
        """
        conditions: list[Condition] = []
        for number, clause in enumerate(bound.frame.clauses):
            if number == miss:
                conditions += [negated(self.rng.choice(way)) for way in clause if way]
            else:
                conditions += clause[int(self.rng.random() * len(clause))]
        played = _Combination(
            bound=bound,
            maker=self.maker,
            rng=self.rng,
            conditions=conditions,
            values=dict(keep or {}),
            used={} if used is None else used,
        )
        played.choose_values(lead=lead)
        for occurrence in bound.order:
            if bare and occurrence in bound.frame.optional:
                continue
            if only and occurrence not in only:
                continue
            if not played.add_row(occurrence, reuse, weight):
                return None
        return played.values

    def group(
        self,
        bound: BoundFrame,
        count: int,
        *,
        duplicate: bool = False,
        lead: bool = False,
    ) -> None:
        """Plays `count` combinations of a group; `duplicate` repeats the last row of the first."""
        used: dict[int, int] = {}
        first = self.play(bound, lead=lead, used=used)
        if first is None:
            return
        last = bound.order[-1]
        if duplicate and last not in used:
            return
        keys = {bound.class_of(site) for site in bound.frame.group}
        kept = {name: value for name, value in first.items() if name in keys}
        for _ in range(count - 1):
            if duplicate:
                self.maker.clone(bound.tables[last], used[last])
            else:
                self.play(bound, keep=kept, reuse=0.0)


@dataclass(slots=True, kw_only=True)
class _Combination:
    """One combination while it is played."""

    bound: BoundFrame
    maker: RowMaker
    rng: Random
    conditions: list[Condition]
    """What its rows have to satisfy."""
    values: Values
    used: dict[int, int]
    """Occurrence to its row."""

    def _wanted(self, name: Site) -> list[Condition]:
        """The conditions that compare a class with literals."""
        class_of = self.bound.class_of
        return [c for c in self.conditions if c.other is None and class_of(c.site) == name]

    def choose_values(self, *, lead: bool) -> None:
        """Values for the classes that lead, then for those that are compared with literals."""
        frame = self.bound.frame
        for site, largest in (*frame.ordered, *frame.extremes) if lead else ():
            self._choose_leading(site, largest)
        for condition in self.conditions:
            if condition.other is None:
                self._choose(condition.site)

    def _choose_leading(self, site: Site, largest: bool) -> None:
        """A value beyond the largest (or smallest) the column holds now."""
        name = self.bound.class_of(site)
        table, position = self.bound.column(site)
        if position is None or name in self.values:
            return
        tie = (site, largest) in self.bound.frame.extremes and self.rng.random() < TIE
        plan, column = table.plans[position], [row[position] for row in table.rows]
        value = _beyond(column, largest, self.rng, tie=tie)
        if value is not None and all(plan.holds(c, value) for c in self._wanted(name)):
            self.values[name] = stored(value, plan.affinity)

    def _choose(self, site: Site) -> None:
        name = self.bound.class_of(site)
        table, position = self.bound.column(site)
        if position is None or name in self.values:
            return
        plan = table.plans[position]
        wanted = min(self._wanted(name), key=lambda c: _TIGHTEST.get(c.op, 5))
        self.values[name] = satisfying(wanted, plan, self.rng)

    def add_row(self, occurrence: int, reuse: float, weight: float | None) -> bool:
        """Binds an occurrence to a row, found or made; False where the rules admit none."""
        table, members = self.bound.tables[occurrence], self.bound.members[occurrence]
        fixed: Fixed = {
            position: stored(self.values[name], table.plans[position].affinity)
            for position, name in members
            if name in self.values
        }
        row = self._fitting(table, fixed) if fixed and self.rng.random() < reuse else None
        if row is None:
            row = table.holder(fixed)
            if row is not None and not self._follow(occurrence, row, fixed):
                return False
        if row is None:
            if weight is not None:
                fixed = {**weighted(table, weight, self.rng), **fixed}
            row = self.maker.make(table, fixed)
        if row is None:
            return False
        self.used[occurrence] = row
        for position, name in members:
            self.values.setdefault(name, table.rows[row][position])
        return True

    def _fitting(self, table: TableRows, fixed: Fixed) -> int | None:
        """A row of the table that holds `fixed` and is not bound yet."""
        taken = {row for other, row in self.used.items() if self.bound.tables[other] is table}
        rows = [row for row in table.holding(fixed) if row not in taken]
        return rows[int(self.rng.random() * len(rows))] if rows else None

    def _follow(self, occurrence: int, row: int, fixed: Fixed) -> bool:
        """Takes over the values of a row whose key exists already, where they still fit."""
        table, members = self.bound.tables[occurrence], self.bound.members
        cells = table.rows[row]
        for position, name in members[occurrence]:
            cell = cells[position]
            if fixed.get(position, cell) == cell:
                continue
            shared = any(name == other for o in self.used for _, other in members[o])
            if shared or not all(table.plans[position].holds(c, cell) for c in self._wanted(name)):
                return False
            self.values[name] = cell
        return True
