"""Scenario rows: a row combination that a gold looks for, and ones that miss it in one point."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec

from envbuild.generate.columns import ColumnPlan, Kind, fresh_value, moved_day, stored, word
from envbuild.generate.rows import Fixed, RowMaker, weighted
from envbuild.generate.tables import TableRows, Workspace
from envbuild.query.parse import FLIPPED, OPPOSITE
from envbuild.records.execution import Value
from envbuild.records.signal import Condition, Frame, Site

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
    values, op = condition.values, condition.op
    match op:
        case "null":
            return None
        case "not null":
            return _drawn(plan, rng)
        case "in":
            return _formed(rng.choice(values), condition.form, plan, rng) if values else None
        case "not in" | "not like" | "not glob" | "not between" | "!=":
            return _outside(condition, plan, rng)
        case "like" | "glob":
            return stored(_from_pattern(str(values[0]), op, rng), plan.affinity)
        case "between":
            return _between(condition, plan, rng)
        case _:
            return _bounded(condition, plan, rng)


def beyond(values: Sequence[Value], largest: bool, rng: Random, *, tie: bool = False) -> Value:
    """A value past every one of `values` on the side asked for; None where they have no order.

    With `tie` the outermost value itself.
    """
    numbers = [v for v in values if isinstance(v, int | float)]
    sign = 1 if largest else -1
    if numbers:
        edge = max(numbers) if largest else min(numbers)
        if tie:
            return edge
        span = max(1.0, (max(numbers) - min(numbers)) * 0.2 * rng.random())
        moved = edge + sign * span
        return int(moved) if isinstance(edge, int) else round(moved, 2)
    texts = [v for v in values if isinstance(v, str)]
    if not texts:
        return None
    edge_text = max(texts) if largest else min(texts)
    if tie:
        return edge_text
    return moved_day(edge_text, sign * (1 + int(rng.random() * 30)))


def _drawn(plan: ColumnPlan, rng: Random) -> Value:
    for _ in range(4):
        if (value := plan.draw(rng)) is not None:
            return value
    return plan.fresh(rng)


def _outside(condition: Condition, plan: ColumnPlan, rng: Random) -> Value:
    for _ in range(8):
        value = _drawn(plan, rng)
        if plan.holds(condition, value):
            return value
    first = condition.values[0] if condition.values else 0
    return plan.beside(_formed(first, condition.form, plan, rng), rng)


def _between(condition: Condition, plan: ColumnPlan, rng: Random) -> Value:
    low, high = condition.values[0], condition.values[-1]
    chance = rng.random()
    if chance < 0.5 or condition.form:
        return _formed(low if chance < 0.25 else high, condition.form, plan, rng)
    for _ in range(4):
        if plan.holds(condition, value := _drawn(plan, rng)):
            return value
    if isinstance(low, int | float) and isinstance(high, int | float):
        inside = low + (high - low) * rng.random()
        return stored(round(inside) if isinstance(low, int) else round(inside, 2), plan.affinity)
    return _formed(low, "", plan, rng)


def _bounded(condition: Condition, plan: ColumnPlan, rng: Random) -> Value:
    op, bound, form = condition.op, condition.values[0], condition.form
    if op == "=":
        return _formed(bound, form, plan, rng)
    if rng.random() < 0.4 and not form:
        for _ in range(3):
            if plan.holds(condition, value := _drawn(plan, rng)):
                return value
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
    if isinstance(bound, int | float):
        far = max(1, int(abs(plan.high - plan.low) * rng.random() * 0.5))
        step = rng.choice((1, 1, far))
        if isinstance(bound, float):
            return round(bound + sign * rng.choice((0.1, 0.01, step)), 6)
        if plan.kind is Kind.REAL and rng.random() < 0.5:
            return round(bound + sign * rng.choice((0.5, 0.1)), 2)
        return bound + sign * step
    return bound


def _formed(value: Value, form: str, plan: ColumnPlan, rng: Random) -> Value:
    """A column value whose `form` is `value`."""
    if not form or form == "same" or value is None:
        return stored(value, plan.affinity)
    base = _drawn(plan, rng)
    text = str(value)
    name, _, argument = form.partition(":")
    if name == "strftime":
        span = _PARTS.get(argument)
        if span is None or not isinstance(base, str) or moved_day(base, 0) is None:
            base = str(fresh_value(Kind.DATE, 2000, 2024, "", rng))
        if span is None:
            return base
        if span[0] > 10:
            base = f"{base[:19]:<10.10} {base[11:19] or '00:00:00':08}"
        return base[: span[0]] + text.zfill(span[1] - span[0]) + base[span[1] :]
    if name == "date":
        return text + base[10:] if isinstance(base, str) and moved_day(base, 0) else text
    if name == "substr":
        start, _, _length = argument.partition(":")
        at = int(start) - (int(start) > 0) if start.lstrip("-").isdigit() else 0
        shown = str(base)
        if at < 0:
            return shown[:at] + text
        return stored(shown[:at].ljust(at, "x") + text + shown[at + len(text) :], plan.affinity)
    if name == "length" and isinstance(value, int | float):
        return (str(base) * (int(value) + 1))[: int(value)] or "x" * int(value)
    return stored(text if name in ("lower", "upper") else value, plan.affinity)


def _from_pattern(pattern: str, op: str, rng: Random) -> str:
    many, one = ("%", "_") if op.endswith("like") else ("*", "?")
    made: list[str] = []
    for letter in pattern:
        if letter == many:
            made.append(f"{word(rng)} " if not made else f" {word(rng)}")
        else:
            made.append(chr(97 + int(rng.random() * 26)) if letter == one else letter)
    text = "".join(made)
    return text if any(c.isalpha() for c in pattern) else text.replace(" ", "")


Values = dict[Site, Value]
"""Class of equal columns (named by its first) to value."""


@dataclass(slots=True)
class BoundFrame:
    """A frame bound to the tables of one database."""

    frame: Frame
    tables: list[TableRows]
    order: list[int]
    """Occurrences, parents first."""
    root: dict[Site, Site] = field(default_factory=dict)
    """Site to its class."""
    numeric: dict[Site, tuple[TableRows, int]] = field(default_factory=dict)
    """Classes that join text to numbers: the column of numbers their values come from."""
    members: list[list[tuple[int, Site]]] = field(default_factory=list)
    """For each occurrence: (column position, class) of every column that matters."""

    def class_of(self, site: Site) -> Site:
        """The class a site belongs to."""
        return self.root.get(site, site)


def open_scene(frame: Frame, workspace: Workspace, rank: dict[str, int]) -> BoundFrame | None:
    """The frame with its tables; None where it reads what cannot be filled (views)."""
    tables = [workspace.tables.get(name.lower()) for name in frame.sources]
    found = [table for table in tables if table is not None]
    if len(found) < len(tables) or not found:
        return None
    order = sorted(range(len(found)), key=lambda i: (rank[found[i].table.name.lower()], i))
    scene = BoundFrame(frame=frame, tables=found, order=order, members=[[] for _ in found])
    sites = dict.fromkeys(_sites(frame))
    parent = {site: site for site in sites}

    def root(site: Site) -> Site:
        while parent[site] != site:
            site = parent[site]
        return site

    for left, right in frame.same:
        parent[root(right)] = root(left)
    for site in sites:
        position = found[site[0]].at.get(site[1].lower())
        scene.root[site] = root(site)
        if position is not None:
            scene.members[site[0]].append((position, scene.root[site]))
    _note_mixed(scene)
    return scene


def _note_mixed(scene: BoundFrame) -> None:
    kinds: dict[Site, set[str]] = {}
    for table, members in zip(scene.tables, scene.members, strict=True):
        for position, root in members:
            affinity = table.plans[position].affinity
            kinds.setdefault(root, set()).add(affinity)
            if affinity == "integer":
                scene.numeric[root] = (table, position)
    first: dict[Site, str] = {}
    for occurrence in scene.order:
        for position, root in scene.members[occurrence]:
            first.setdefault(root, scene.tables[occurrence].plans[position].affinity)
    # where the number's own row is made first, its value is what the text follows
    scene.numeric = {
        root: place
        for root, place in scene.numeric.items()
        if len(kinds[root]) > 1 and first[root] != "integer"
    }


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
    yield from frame.group
    yield from frame.distinct
    yield from frame.shown
    for site, _ in (*frame.ordered, *frame.extremes):
        yield site


REUSE = 0.35
"""How often an occurrence is bound to a row that already fits, instead of a new one."""
TIE = 0.4
"""How often a row that leads in a MAX or MIN equals the present one instead of passing it."""


class Stage:
    """Plays scenes: chooses values for the classes, then makes or finds a row an occurrence."""

    def __init__(self, maker: RowMaker, rng: Random) -> None:
        self.maker = maker
        self.rng = rng

    def play(
        self,
        scene: BoundFrame,
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
        conditions = self._conditions(scene, miss, soft)
        values: Values = dict(keep or {})
        if lead:
            self._lead(scene, conditions, values)
        for condition in conditions:
            if condition.other is None:
                self._choose(scene, condition, conditions, values)
        for root, (table, position) in scene.numeric.items():
            if root not in values:
                # one past the rows there are: sometimes a new one
                drawn = int(self.rng.random() * (len(table.rows) + 2))
                known = drawn < len(table.rows)
                values[root] = table.rows[drawn][position] if known else table.next_serial
        used = {} if used is None else used
        for occurrence in scene.order:
            if bare and occurrence in scene.frame.optional:
                continue
            if only and occurrence not in only:
                continue
            self._relate(scene, occurrence, conditions, values)
            row = self._row(scene, occurrence, values, conditions, used, reuse, weight)
            if row is None:
                return None
            used[occurrence] = row
            cells = scene.tables[occurrence].rows[row]
            for position, root in scene.members[occurrence]:
                values.setdefault(root, cells[position])
        return values

    def group(
        self,
        scene: BoundFrame,
        count: int,
        *,
        duplicate: bool = False,
        miss: int | None = None,
        keep: Values | None = None,
        lead: bool = False,
        weight: float | None = None,
    ) -> Values | None:
        """Plays `count` combinations of a group; `duplicate` repeats the last row of the first."""
        used: dict[int, int] = {}
        first = self.play(scene, miss=miss, keep=keep, lead=lead, used=used, weight=weight)
        if first is None:
            return None
        if duplicate:
            last = scene.order[-1]
            for _ in range(count - 1 if last in used else 0):
                self.maker.clone(scene.tables[last], used[last])
            return first
        keys = {scene.class_of(site) for site in scene.frame.group}
        for _ in range(count - 1):
            kept = {key: value for key, value in first.items() if key in keys}
            self.play(scene, keep=kept, miss=miss, reuse=0.0, weight=weight)
        return first

    def _conditions(
        self, scene: BoundFrame, miss: int | None, soft: Condition | None
    ) -> list[Condition]:
        chosen: list[Condition] = []
        for number, clause in enumerate(scene.frame.clauses):
            if number == miss:
                chosen += [negated(self.rng.choice(way)) for way in clause if way]
            else:
                chosen += clause[int(self.rng.random() * len(clause))]
        return [*chosen, soft] if soft else chosen

    def _choose(
        self, scene: BoundFrame, condition: Condition, every: list[Condition], values: Values
    ) -> None:
        root = scene.class_of(condition.site)
        if root in values:
            return
        table = scene.tables[condition.site[0]]
        position = table.at.get(condition.site[1].lower())
        if position is None:
            return
        plan = table.plans[position]
        mine = [c for c in every if scene.class_of(c.site) == root and c.other is None]
        mine.sort(key=lambda c: _TIGHTEST.get(c.op, 5))
        value: Value = None
        for attempt in range(8):
            value = satisfying(mine[0 if attempt < 6 else attempt % len(mine)], plan, self.rng)
            if all(plan.holds(c, value) for c in mine):
                break
        values[root] = value

    def _lead(self, scene: BoundFrame, conditions: list[Condition], values: Values) -> None:
        """Values beyond the largest (or smallest) the ordering columns hold now."""
        for site, largest in (*scene.frame.ordered, *scene.frame.extremes):
            root = scene.class_of(site)
            table = scene.tables[site[0]]
            position = table.at.get(site[1].lower())
            if position is None or root in values:
                continue
            tie = (site, largest) in scene.frame.extremes and self.rng.random() < TIE
            column = [row[position] for row in table.rows]
            value, plan = beyond(column, largest, self.rng, tie=tie), table.plans[position]
            mine = [c for c in conditions if scene.class_of(c.site) == root and c.other is None]
            if value is not None and all(plan.holds(c, value) for c in mine):
                values[root] = stored(value, plan.affinity)

    def _relate(
        self, scene: BoundFrame, occurrence: int, conditions: list[Condition], values: Values
    ) -> None:
        """Turns comparisons with a column of known value into values of this occurrence."""
        for condition in conditions:
            if condition.other is None:
                continue
            for mine, other, op in (
                (condition.site, condition.other, condition.op),
                (condition.other, condition.site, FLIPPED.get(condition.op, condition.op)),
            ):
                root, known = scene.class_of(mine), values.get(scene.class_of(other))
                if mine[0] != occurrence or known is None or root in values:
                    continue
                table = scene.tables[occurrence]
                position = table.at.get(mine[1].lower())
                if position is not None:
                    literal = Condition(site=mine, op=op, values=(known,))
                    values[root] = satisfying(literal, table.plans[position], self.rng)

    def _row(
        self,
        scene: BoundFrame,
        occurrence: int,
        values: Values,
        conditions: list[Condition],
        used: dict[int, int],
        reuse: float,
        weight: float | None,
    ) -> int | None:
        table = scene.tables[occurrence]
        fixed: Fixed = {}
        for position, root in scene.members[occurrence]:
            if root in values:
                fixed[position] = stored(values[root], table.plans[position].affinity)
        taken = {row for other, row in used.items() if scene.tables[other] is table}
        found = self._existing(table, fixed, taken, reuse)
        if found is not None:
            return found
        if (holder := self._holder(table, fixed)) is not None:
            # the key exists already: take that row as it is, where its values still fit
            cells = table.rows[holder]
            for position, root in scene.members[occurrence]:
                if fixed.get(position, cells[position]) != cells[position]:
                    plan = table.plans[position]
                    wanted = [
                        c for c in conditions if scene.class_of(c.site) == root and c.other is None
                    ]
                    shared = any(root == other for o in used for _, other in scene.members[o])
                    if shared or not all(plan.holds(c, cells[position]) for c in wanted):
                        return None
                    values[root] = cells[position]
            return holder
        if weight is not None:
            fixed = {**weighted(table, weight, self.rng), **fixed}
        return self.maker.make(table, fixed)

    def _holder(self, table: TableRows, fixed: Fixed) -> int | None:
        for key in table.keys:
            if all(p in fixed for p in key.positions):
                row = key.taken.get(tuple(fixed[p] for p in key.positions))
                if row is not None:
                    return row
        return None

    def _existing(
        self, table: TableRows, fixed: Fixed, taken: set[int], reuse: float
    ) -> int | None:
        if not fixed or self.rng.random() >= reuse:
            return None
        position, value = next(iter(fixed.items()))
        rows = [
            row
            for row in table.having(position, value)
            if row not in taken and all(table.rows[row][p] == v for p, v in fixed.items())
        ]
        return rows[int(self.rng.random() * len(rows))] if rows else None


_TIGHTEST = {"=": 0, "null": 0, "in": 1, "between": 2, "like": 2, "glob": 2}
