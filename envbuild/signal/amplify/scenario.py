"""Scenario rows: a row combination that a gold looks for, and ones that miss it in one point."""

from random import Random

from envbuild.records.demand import Condition
from envbuild.records.execution import Value
from envbuild.signal.amplify.kinds import stored
from envbuild.signal.amplify.rows import Fixed, RowMaker, weighted
from envbuild.signal.amplify.satisfy import beyond, negated, satisfying
from envbuild.signal.amplify.scene import Scene, Values
from envbuild.signal.amplify.tables import TableRows
from envbuild.sql.trees.comparisons import FLIPPED

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
        scene: Scene,
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
        scene: Scene,
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
        self, scene: Scene, miss: int | None, soft: Condition | None
    ) -> list[Condition]:
        chosen: list[Condition] = []
        for number, clause in enumerate(scene.frame.clauses):
            if number == miss:
                chosen += [negated(self.rng.choice(way)) for way in clause if way]
            else:
                chosen += clause[int(self.rng.random() * len(clause))]
        return [*chosen, soft] if soft else chosen

    def _choose(
        self, scene: Scene, condition: Condition, every: list[Condition], values: Values
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

    def _lead(self, scene: Scene, conditions: list[Condition], values: Values) -> None:
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
        self, scene: Scene, occurrence: int, conditions: list[Condition], values: Values
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
        scene: Scene,
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
