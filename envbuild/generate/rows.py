"""Making one row: keys first, then references, then the values that are free."""

from collections.abc import Sequence
from random import Random

from envbuild.generate.columns import Kind, stored
from envbuild.generate.tables import Cells, Key, Link, TableRows, Workspace
from envbuild.records.execution import Value

TRIES = 6
"""Draws for one row before it is given up."""
DEEPEST = 4
"""Parents made for the sake of a child, one above the other."""
CONTEST = 3
"""Parents drawn for one reference, of which the most popular is taken: some have many children,
the least popular third next to none."""
MAX_ORPHANS = 0.25
"""Largest share of new references that point at no row, however many of the source's do."""
LOOSE = 0.12
"""Share of values outside the other side of a join that no foreign key declares."""

Fixed = dict[int, Value]
"""Position to value: what a row must hold."""


class RowMaker:
    """Makes rows that every declared and observed rule admits."""

    def __init__(self, workspace: Workspace, rng: Random) -> None:
        self.workspace = workspace
        self.rng = rng

    def make(self, table: TableRows, fixed: Fixed, *, depth: int = 0) -> int | None:
        """The number of a new row that holds `fixed`; None where the rules admit none."""
        if table.closed or any(fixed.get(position) is not None for position in table.void):
            return None
        for _ in range(TRIES):
            cells = self._cells(table, dict(fixed) | dict.fromkeys(table.void), depth)
            if cells is None:
                return None
            if (broken := table.clash(cells)) is not None and not self._mend(
                table, broken, cells, fixed
            ):
                if all(p in fixed for p in broken.positions):
                    return None
                continue
            if (number := self.workspace.insert(table, cells)) is not None:
                return number
        return None

    def clone(self, table: TableRows, row: int) -> int | None:
        """The number of a new row that repeats one in every column that may repeat."""
        single = {key.positions[0] for key in table.keys if len(key.positions) == 1}
        free = {p for p, plan in enumerate(table.plans) if plan.spread} | single
        cells = table.rows[row]
        return self.make(table, {p: v for p, v in enumerate(cells) if p not in free})

    def _cells(self, table: TableRows, chosen: Fixed, depth: int) -> Cells | None:
        for link in table.links:
            if not self._follow(table, link, chosen, depth):
                return None
        cells: Cells = [None] * len(table.names)
        for position, plan in enumerate(table.plans):
            if position in chosen:
                cells[position] = chosen[position]
            elif position == table.counter:
                cells[position] = table.next_serial
            else:
                cells[position] = plan.draw(self.rng)
                if plan.unique or plan.spread:
                    cells[position] = self._new(table, position, cells[position])
        return cells

    def _new(self, table: TableRows, position: int, value: Value) -> Value:
        """`value` where the column does not hold it yet, else a fresh one."""
        plan = table.plans[position]
        for attempt in range(8):
            if value is None or not table.having(position, value):
                return value
            value = plan.fresh(self.rng)
            if attempt > 2 and isinstance(value, int | float):
                # a narrow range is used up: step out of it rather than repeat a value
                span = max(float(len(table.rows)), plan.high - plan.low)
                moved = plan.high + span * self.rng.random() * (attempt - 1)
                value = stored(
                    int(moved) if isinstance(value, int) else round(moved, 2), plan.affinity
                )
            elif attempt > 2 and isinstance(value, str):
                value = f"{value} {1 + int(self.rng.random() * 99)}"
        return value

    def _mend(self, table: TableRows, broken: Key, cells: Cells, fixed: Fixed) -> bool:
        """Replaces a free part of the broken key that refers to nothing."""
        linked = {p for link in table.links if link.declared for p in link.positions}
        for position in broken.positions:
            if position not in fixed and position not in linked:
                cells[position] = self._new(table, position, table.plans[position].fresh(self.rng))
                return table.clash(cells) is None
        return False

    # references

    def _follow(self, table: TableRows, link: Link, chosen: Fixed, depth: int) -> bool:
        """Fills a reference's columns; False where no parent can be had and NULL is not allowed."""
        open_positions = [p for p in link.positions if p not in chosen]
        if not link.declared:
            rows = link.parent.rows
            if open_positions and self.rng.random() >= LOOSE and rows:
                self._refer(table, link, chosen, rows[self._skewed(len(rows))])
            return True
        if any(p in chosen and chosen[p] is None for p in link.positions):
            return True
        nulls = max((table.plans[p].nulls for p in open_positions), default=0.0)
        if nulls and self.rng.random() < nulls:
            chosen.update(dict.fromkeys(open_positions))
            return True
        if len(open_positions) == len(link.positions) and self._orphaned(table, link):
            orphan = link.orphans[int(self.rng.random() * len(link.orphans))]
            chosen.update(zip(link.positions, orphan, strict=True))
            return True
        parent = self._parent(table, link, chosen, depth)
        own = link.parent is table and link.parent_positions == (table.counter,)
        if parent is None and own and open_positions and not table.rows:
            # the first row of a table that refers to itself can only refer to itself
            chosen[open_positions[0]] = table.next_serial
            return True
        if parent is None:
            nullable = [p for p in open_positions if not table.plans[p].not_null]
            if not nullable or table.keyed.intersection(nullable):
                return False
            chosen[nullable[0]] = None
            return True
        self._refer(table, link, chosen, link.parent.rows[parent])
        return True

    def _refer(self, table: TableRows, link: Link, chosen: Fixed, parent: Cells) -> None:
        """Fills what is open of a reference with a parent's values."""
        for position, target in zip(link.positions, link.parent_positions, strict=True):
            if link.declared or parent[target] is not None:
                chosen.setdefault(position, stored(parent[target], table.plans[position].affinity))

    def _orphaned(self, table: TableRows, link: Link) -> bool:
        share = len(link.orphans) / table.total if link.orphans else 0.0
        return bool(share) and self.rng.random() < min(share, MAX_ORPHANS)

    def _parent(self, table: TableRows, link: Link, chosen: Fixed, depth: int) -> int | None:
        """The row to refer to: one that holds what is chosen, a popular one, or a new one."""
        parent = link.parent
        # SQLite compares a key with the parent's affinity: '5' in a text column refers to 5
        known = {
            target: stored(chosen[position], parent.plans[target].affinity)
            for position, target in zip(link.positions, link.parent_positions, strict=True)
            if position in chosen
        }
        candidates: Sequence[int] = parent.holding(known) if known else range(len(parent.rows))
        if not candidates:
            if depth >= DEEPEST or parent is table:
                return None
            return self.make(parent, known, depth=depth + 1)
        place = self._skewed(len(candidates))
        one_to_one = next((k for k in table.keys if k.positions == link.positions), None)
        if known or one_to_one is None:
            return candidates[place]
        # the reference is a key itself: a parent without a child, where there is one
        for number in (*candidates[place:], *candidates[:place]):
            if tuple(parent.rows[number][t] for t in link.parent_positions) not in one_to_one.taken:
                return number
        return candidates[place]

    def _skewed(self, count: int) -> int:
        """A row number; each has a popularity of its own, and the most popular of a few wins."""
        drawn = [int(self.rng.random() * count) for _ in range(CONTEST)]
        return max(drawn, key=_popularity)


def _popularity(number: int) -> int:
    return number * 2_654_435_761 % 4_294_967_296


def weighted(table: TableRows, weight: float, rng: Random) -> Fixed:
    """Values for the free numbers of a row: near `weight` of their range, 0 the smallest."""
    linked = {p for link in table.links for p in link.positions} | table.keyed
    numbers: Fixed = {}
    for position, plan in enumerate(table.plans):
        free = position not in linked and not (plan.unique or plan.allowed)
        if not free or plan.kind not in (Kind.INTEGER, Kind.REAL):
            continue
        place = weight + (0.1 if weight < 0.5 else -0.1) * rng.random()
        drawn = round(plan.low + place * (plan.high - plan.low), 2)
        whole = plan.kind is Kind.INTEGER
        value = stored(int(drawn) if whole else drawn, plan.affinity)
        if not plan.spread or not table.having(position, value):
            numbers[position] = value
    return numbers
