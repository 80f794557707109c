"""Scenario rows: a row combination that a gold looks for, and ones that miss it in one point."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
from networkx.utils import UnionFind

from envbuild.generate.columns import ColumnPlan, Kind, fresh_day, moved_day, stored, word
from envbuild.generate.rows import Fixed, RowMaker, weighted
from envbuild.generate.tables import TableRows, Workspace
from envbuild.query.parse import FLIPPED, OPPOSITE
from envbuild.records.execution import Value
from envbuild.records.signal import Condition, Frame, Site

REUSE = 0.35
"""How often an occurrence is bound to a row that already fits, instead of a new one."""
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
    """A value of the column that satisfies the condition, often just inside its bound."""
    values, op, form = condition.values, condition.op, condition.form
    match op:
        case "null":
            return None
        case "not null":
            return _drawn(plan, rng)
        case "in":
            return _formed(rng.choice(values), form, plan, rng) if values else None
        case "=":
            return _formed(values[0], form, plan, rng)
        case "like" | "glob":
            return stored(_from_pattern(str(values[0]), op, rng), plan.affinity)
        case "between":
            return _between(condition, plan, rng)
        case "<" | "<=" | ">" | ">=":
            return _bounded(condition, plan, rng)
    value = _met(condition, plan, rng, tries=8)
    if value is not None:
        return value
    return plan.beside(_formed(values[0] if values else 0, form, plan, rng), rng)


def _drawn(plan: ColumnPlan, rng: Random) -> Value:
    for _ in range(4):
        if (value := plan.draw(rng)) is not None:
            return value
    return plan.fresh(rng)


def _met(condition: Condition, plan: ColumnPlan, rng: Random, *, tries: int) -> Value:
    """A drawn value that satisfies the condition; None where none of `tries` does."""
    for _ in range(tries):
        if plan.holds(condition, value := _drawn(plan, rng)):
            return value
    return None


def _between(condition: Condition, plan: ColumnPlan, rng: Random) -> Value:
    low, high = condition.values[0], condition.values[-1]
    chance = rng.random()
    if chance < 0.5 or condition.form:
        return _formed(low if chance < 0.25 else high, condition.form, plan, rng)
    if (value := _met(condition, plan, rng, tries=4)) is not None:
        return value
    if isinstance(low, int | float) and isinstance(high, int | float):
        inside = low + (high - low) * rng.random()
        return stored(round(inside) if isinstance(low, int) else round(inside, 2), plan.affinity)
    return stored(low, plan.affinity)


def _bounded(condition: Condition, plan: ColumnPlan, rng: Random) -> Value:
    op, bound, form = condition.op, condition.values[0], condition.form
    inside = _met(condition, plan, rng, tries=3) if rng.random() < 0.4 and not form else None
    if inside is not None:
        return inside
    if op in ("<=", ">=") and rng.random() < 0.4:
        return _formed(bound, form, plan, rng)
    sign = 1 if op.startswith(">") else -1
    return _formed(_moved(bound, sign, plan, rng), form, plan, rng)


def _moved(bound: Value, sign: int, plan: ColumnPlan, rng: Random) -> Value:
    """A value beyond the bound: one step, or a good part of the range."""
    if isinstance(bound, str):
        if moved := moved_day(bound, sign * rng.choice((1, 1, 30, 400))):
            return moved
        if re.fullmatch(r"-?\d{1,15}", bound):
            return str(int(bound) + sign * rng.choice((1, 1, 2, 5))).zfill(len(bound))
        return bound + "a" if sign > 0 else bound[:-1]
    if not isinstance(bound, int | float):
        return bound
    far = max(1, int(abs(plan.high - plan.low) * rng.random() * 0.5))
    step = rng.choice((1, 1, far))
    if isinstance(bound, float):
        return round(bound + sign * rng.choice((0.1, 0.01, step)), 6)
    if plan.kind is Kind.REAL and rng.random() < 0.5:
        return round(bound + sign * rng.choice((0.5, 0.1)), 2)
    return bound + sign * step


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
    numeric: dict[Site, tuple[TableRows, int]] = field(default_factory=dict)
    """Classes that join text to numbers: the column of numbers their values come from."""

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
    columns: dict[Site, list[tuple[TableRows, int]]] = {}
    for occurrence in order:
        for position, name in bound.members[occurrence]:
            columns.setdefault(name, []).append((tables[occurrence], position))
    for name, places in columns.items():
        affinities = [table.plans[position].affinity for table, position in places]
        # where the number's own row is made first, its value is what the text follows
        if "integer" in affinities and affinities[0] != "integer":
            bound.numeric[name] = places[affinities.index("integer")]
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
    for condition in frame.soft:
        yield condition.site
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
        soft: Condition | None = None,
        bare: bool = False,
        lead: bool = False,
        reuse: float = REUSE,
        used: dict[int, int] | None = None,
        only: tuple[int, ...] = (),
        weight: float | None = None,
    ) -> Values | None:
        """The values of one played combination; None where the rules admit none.

        `keep` holds classes to given values, `miss` names a clause to miss, `soft` a condition
        to satisfy beside, `bare` leaves optional occurrences out, `lead` puts the combination
        first in what a LIMIT, a rank, MAX or MIN looks at; `used` takes each occurrence's row;
        `only` plays these occurrences and no other, `weight` sets free numbers within their range
        (0 the smallest, 1 the largest).
        """
        conditions: list[Condition] = []
        for number, clause in enumerate(bound.frame.clauses):
            if number == miss:
                conditions += [negated(self.rng.choice(way)) for way in clause if way]
            else:
                conditions += clause[int(self.rng.random() * len(clause))]
        if soft:
            conditions.append(soft)
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
        weight: float | None = None,
    ) -> None:
        """Plays `count` combinations of a group; `duplicate` repeats the last row of the first."""
        used: dict[int, int] = {}
        first = self.play(bound, lead=lead, used=used, weight=weight)
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
                self.play(bound, keep=kept, reuse=0.0, weight=weight)


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
        """Values for the classes that lead, that are compared with literals, that join numbers."""
        bound = self.bound
        for site, largest in (*bound.frame.ordered, *bound.frame.extremes) if lead else ():
            self._choose_leading(site, largest)
        for condition in self.conditions:
            if condition.other is None:
                self._choose(condition.site)
        for name, (table, position) in bound.numeric.items():
            if name not in self.values:
                # one past the rows there are: sometimes a new one
                drawn = int(self.rng.random() * (len(table.rows) + 2))
                known = drawn < len(table.rows)
                self.values[name] = table.rows[drawn][position] if known else table.next_serial

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
        wanted = sorted(self._wanted(name), key=lambda c: _TIGHTEST.get(c.op, 5))
        for attempt in range(8):
            tightest = wanted[0 if attempt < 6 else attempt % len(wanted)]
            self.values[name] = value = satisfying(tightest, plan, self.rng)
            if all(plan.holds(c, value) for c in wanted):
                break

    def add_row(self, occurrence: int, reuse: float, weight: float | None) -> bool:
        """Binds an occurrence to a row, found or made; False where the rules admit none."""
        self._relate(occurrence)
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

    def _relate(self, occurrence: int) -> None:
        """Turns comparisons with a column of known value into values of this occurrence."""
        for condition in self.conditions:
            if condition.other is None:
                continue
            for mine, other, op in (
                (condition.site, condition.other, condition.op),
                (condition.other, condition.site, FLIPPED.get(condition.op, condition.op)),
            ):
                name, known = self.bound.class_of(mine), self.values.get(self.bound.class_of(other))
                table, position = self.bound.column(mine)
                if mine[0] != occurrence or known is None or name in self.values:
                    continue
                if position is not None:
                    literal = Condition(site=mine, op=op, values=(known,))
                    self.values[name] = satisfying(literal, table.plans[position], self.rng)

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
