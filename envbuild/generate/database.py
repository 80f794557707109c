"""Amplifying one database: scenario rows per gold, fill to a target, repair, guided rounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from envbuild.engine.seeds import derived_random
from envbuild.generate.guided import (
    GoldMonitor,
    MutantSearch,
    Survivors,
    group_counts,
    open_hunts,
    rests_on_tie,
    tied_groups,
)
from envbuild.generate.plan import plan_workspace
from envbuild.generate.rows import RowMaker
from envbuild.generate.scenarios import BoundFrame, Stage, open_scene
from envbuild.generate.tables import Workspace, open_workspace
from envbuild.query.demand import read_demand
from envbuild.records.signal import (
    AddedRow,
    AmplifySettings,
    Demand,
    Gold,
    GoldState,
    Growth,
    TableGrowth,
)
from envbuild.schema.read import read_schema
from envbuild.sql.connect import open_writable_image
from envbuild.sql.verdicts import encode_rows

RESTORE_TRIES = 3
"""Rounds of scenarios for golds that a whole group's rows have emptied."""
FILL_STEPS = 4
"""Batches a table is filled in where filling it at once empties a gold."""
LARGEST_GROUP = 20
"""Rows of a group made to be the largest; where more would be needed, it is left."""
UNTIE_ROUNDS = 3
"""Passes over all golds that look for ties."""
UNTIE_TRIES = 4
"""Combinations tried to break a tie under a gold's LIMIT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amplified:
    """An amplified database: its bytes, and what was added."""

    image: bytes
    growth: Growth


def amplify_database(
    image: bytes, golds: Sequence[Gold], *, settings: AmplifySettings, db_id: str = ""
) -> Amplified:
    """The database with rows added for these golds, every original row as it was.

    `image` is the file's bytes. The same image, golds, settings and db_id give the same bytes.
    """
    connection = open_writable_image(image)
    try:
        connection.execute("BEGIN")
        workspace = open_workspace(connection, read_schema(connection))
        run = _Run(workspace, golds, settings, db_id)
        run.grow()
        connection.execute("COMMIT")
        return Amplified(image=connection.serialize("main"), growth=run.growth())
    finally:
        connection.close()


class _Run:
    """One database's amplification while it goes on."""

    def __init__(
        self, workspace: Workspace, golds: Sequence[Gold], settings: AmplifySettings, db_id: str
    ) -> None:
        self.workspace, self.golds, self.settings, self.db_id = workspace, golds, settings, db_id
        rng = derived_random(settings.seed, db_id, "amplify")
        self.rng: Random = rng
        distinct = list(dict.fromkeys(gold.sql for gold in golds))
        demands = [read_demand(sql, workspace.schema) for sql in distinct]
        ranks = plan_workspace(
            workspace, demands, observed=settings.observed, orphans=settings.orphans, rng=rng
        )
        self.ranks = ranks
        self.scenes = {
            sql: self._opened(demand) for sql, demand in zip(distinct, demands, strict=True)
        }
        self.order = sorted(ranks, key=lambda name: ranks[name])
        self.stage = Stage(RowMaker(workspace, rng), rng)
        self.watch = GoldMonitor(workspace, distinct)
        self.targets = {
            name: rng.randint(settings.rows_low, settings.rows_high) for name in self.order
        }
        self.rejected = 0
        self.hunts: dict[str, Survivors] = {}
        if settings.guided:
            self.hunts = open_hunts(distinct, workspace.schema, self.watch)

    def grow(self) -> None:
        """All phases, in groups of golds."""
        sqls = list(self.scenes)
        # without a gold there is still one round, which fills the tables
        for start in range(0, len(sqls) or 1, self.settings.group):
            group = sqls[start : start + self.settings.group]
            mark = self.workspace.mark("whole")
            self._scenarios(group)
            if start == 0:
                for name in self.order:
                    self._fill(name, self.targets[name])
            if self._restored():
                self.workspace.release("whole")
            else:
                self.workspace.roll_back("whole", mark)
                self._carefully(group, fill=start == 0)
            self._repair(group)
            if self.settings.guided:
                self._guide(group)
        for sql in sqls:
            if any(scene.frame.counted == "desc" for scene in self.scenes[sql]):
                self._guarded(partial(self._top_groups, sql))
        # rows of a later group may tie what an earlier one rests on, and so may untying itself
        for _ in range(UNTIE_ROUNDS):
            if not self._untie(sqls):
                break

    def _restored(self) -> bool:
        """True where no gold is emptied, if need be after playing what the emptied ones ask for."""
        for _ in range(RESTORE_TRIES):
            emptied = self.watch.emptied()
            if not emptied:
                return True
            self._scenarios(emptied)
        return not self.watch.emptied()

    def _carefully(self, group: Sequence[str], *, fill: bool) -> None:
        """The same in small batches, each taken back where it empties a gold."""
        for sql in group:
            self._guarded(partial(self._scenarios, [sql]))
        for step in range(1, FILL_STEPS + 1 if fill else 0):
            for name in self.order:
                self._guarded(partial(self._fill, name, self.targets[name] * step // FILL_STEPS))

    def _guarded(self, phase: Callable[[], None]) -> None:
        mark = self.workspace.mark("phase")
        phase()
        if self.watch.emptied():
            self.rejected += 1
            self.workspace.roll_back("phase", mark)
        else:
            self.workspace.release("phase")

    def _scenarios(self, group: Sequence[str]) -> None:
        for sql in group:
            for scene in self.scenes[sql]:
                self.play_all(scene)

    def play_all(self, scene: BoundFrame) -> None:
        frame = scene.frame
        for _ in range(max(1, min(frame.limit + 1, 4)) if frame.limit else 1):
            self.stage.group(scene, frame.siblings)
        lead = bool(frame.ordered or frame.extremes)
        for number in range(len(frame.clauses)):
            self.stage.play(scene, miss=number, lead=lead)
        if lead:
            self.stage.play(scene, lead=True)
        if frame.siblings > 1:
            self.stage.group(scene, frame.siblings - 1)
        for condition in frame.soft[:4]:
            self.stage.play(scene, soft=condition)
        if frame.optional:
            self.stage.play(scene, bare=True)
        if frame.shown:
            self.stage.group(scene, max(2, frame.siblings), duplicate=True)

    def _top_groups(self, sql: str) -> None:
        """The largest groups, of small values: the most rows are not the largest sum."""
        for scene in self.scenes[sql]:
            if scene.frame.counted == "desc":
                counts = group_counts(scene, self.workspace.connection)
                wanted = counts[0][0] + 1 if counts else 2
                if wanted <= LARGEST_GROUP:
                    self.stage.group(scene, wanted, weight=0.0)

    def _fill(self, name: str, target: int) -> None:
        table = self.workspace.tables[name]
        missing = target - len(table.rows)
        failures = 0
        while missing > 0 and failures < 10:
            if self.stage.maker.make(table, {}) is None:
                failures += 1
            else:
                missing -= 1

    def _repair(self, group: Sequence[str]) -> None:
        for sql in group:
            for _ in range(4):
                if self.watch.rows(sql) != 0:
                    break
                self._guarded(partial(self._scenarios, [sql]))

    def _guide(self, group: Sequence[str]) -> None:
        guide = MutantSearch(self.workspace, self.stage, self.watch, self._read_scenes, self.rng)
        for sql in group:
            if sql in self.hunts:
                guide.hunt(self.hunts[sql])
        self.rejected += guide.rejected

    def _untie(self, sqls: Sequence[str]) -> bool:
        """More rows for the winning group of a gold that rests on a tie; kept where that helps.

        True where a gold was untied.
        """
        untied = False
        for sql in sqls:
            for _ in range(UNTIE_TRIES):
                if not self.scenes[sql] or not rests_on_tie(sql, self.watch.run):
                    break
                mark = self.workspace.mark("untie")
                scenes = self.scenes[sql]
                for scene in scenes:
                    over, weight = scene.frame.counted_over, float(scene.frame.counted == "asc")
                    for keys in tied_groups(scene, self.workspace.connection):
                        self.stage.play(scene, keep=keys, only=over, reuse=0.0, weight=weight)
                if not any(scene.frame.counted for scene in scenes):
                    self.stage.play(scenes[0], lead=True)
                if rests_on_tie(sql, self.watch.run) or self.watch.emptied():
                    self.workspace.roll_back("untie", mark)
                else:
                    self.workspace.release("untie")
                    untied = True
        return untied

    def _opened(self, demand: Demand) -> list[BoundFrame]:
        opened = [open_scene(frame, self.workspace, self.ranks) for frame in demand.frames]
        return [scene for scene in opened if scene is not None]

    def _state(self, gold: Gold) -> GoldState:
        hunt = self.hunts.get(gold.sql)
        killed = 0
        if hunt is not None:
            alive = self.watch.alive(gold.sql, hunt.mutants, range(len(hunt.mutants)))
            killed = len(hunt.mutants) - len(alive)
        return GoldState(
            db_id=self.db_id,
            question_id=gold.question_id,
            rows_before=self.watch.before[gold.sql],
            rows_after=self.watch.rows(gold.sql),
            mutants=len(hunt.mutants) if hunt else 0,
            killed_before=hunt.killed_before if hunt else 0,
            killed=killed,
            tie_sensitive=rests_on_tie(gold.sql, self.watch.run)
            or self.watch.counts_through_ties(gold.sql),
        )

    def _read_scenes(self, sql: str) -> list[BoundFrame]:
        return self._opened(read_demand(sql, self.workspace.schema))

    def growth(self) -> Growth:
        """What was added: parents' tables first, in insertion order within each."""
        tables: list[TableGrowth] = []
        rows: list[AddedRow] = []
        for name in self.order:
            table = self.workspace.tables[name]
            tables.append(
                TableGrowth(
                    db_id=self.db_id,
                    table=table.table.name,
                    rows_before=table.total,
                    rows_added=table.added,
                    rows_refused=table.refused,
                    target=self.targets[name],
                )
            )
            for rowid, cells in zip(table.rowids, table.rows[table.original :], strict=True):
                rows.append(
                    AddedRow(
                        db_id=self.db_id,
                        table=table.table.name,
                        index=len(rows),
                        rowid=rowid,
                        columns=tuple(table.names),
                        cells=encode_rows([tuple(cells)]),
                    )
                )
        golds = tuple(self._state(gold) for gold in self.golds)
        return Growth(
            tables=tuple(tables),
            golds=golds,
            rows=tuple(rows),
            rejected_batches=self.rejected,
        )
