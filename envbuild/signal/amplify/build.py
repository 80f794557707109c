"""Amplifying one database: scenario rows per gold, fill to a target, repair, guided rounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from envbuild.engine.seeds import derived_random
from envbuild.records.amplified import (
    AddedRow,
    AmplifySettings,
    Gold,
    GoldState,
    Growth,
    TableGrowth,
)
from envbuild.schema.read import read_schema
from envbuild.signal.amplify.plan import plan_workspace
from envbuild.signal.amplify.rows import RowMaker
from envbuild.signal.amplify.scenario import Scene, Stage, open_scene
from envbuild.signal.amplify.tables import Workspace
from envbuild.signal.amplify.watch import Watch
from envbuild.sql.connect import open_writable_image
from envbuild.sql.predicates import read_demand
from envbuild.sql.results import encode_rows


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
        run = _Run(Workspace(connection, read_schema(connection)), golds, settings, db_id)
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
        ranks = plan_workspace(workspace, demands, observed=settings.observed, rng=rng)
        self.scenes: dict[str, list[Scene]] = {}
        for sql, demand in zip(distinct, demands, strict=True):
            opened = [open_scene(frame, workspace, ranks) for frame in demand.frames]
            self.scenes[sql] = [scene for scene in opened if scene is not None]
        self.order = sorted(ranks, key=lambda name: ranks[name])
        self.stage = Stage(RowMaker(workspace, rng), rng)
        self.watch = Watch(workspace, distinct)
        self.targets = {
            name: rng.randint(settings.rows_low, settings.rows_high) for name in self.order
        }
        self.rejected = 0
        self.nulled = 0

    def grow(self) -> None:
        """All phases, in groups of golds."""
        sqls = list(self.scenes)
        for start in range(0, len(sqls), self.settings.group):
            group = sqls[start : start + self.settings.group]
            self._guarded(partial(self._scenarios, group))
            if start == 0:
                for name in self.order:
                    self._guarded(partial(self._fill, name))
            self._repair(group)

    def _guarded(self, phase: Callable[[], None]) -> None:
        lengths = self.workspace.mark("phase")
        phase()
        if self.watch.emptied():
            self.rejected += 1
            self.workspace.roll_back("phase", lengths)
        else:
            self.workspace.release("phase")

    def _scenarios(self, group: Sequence[str]) -> None:
        for sql in group:
            for scene in self.scenes[sql]:
                self.play_all(scene)

    def play_all(self, scene: Scene) -> None:
        frame = scene.frame
        for _ in range(max(1, min(frame.limit + 1, 4)) if frame.limit else 1):
            self.stage.group(scene, frame.siblings)
        for number in range(len(frame.clauses)):
            self.stage.play(scene, miss=number)
        for condition in frame.soft[:4]:
            self.stage.play(scene, soft=condition)
        if frame.optional:
            self.stage.play(scene, bare=True)
        if frame.shown:
            self.stage.group(scene, 2, duplicate=True)

    def _fill(self, name: str) -> None:
        table = self.workspace.tables[name]
        missing = self.targets[name] - len(table.rows)
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

    def growth(self) -> Growth:
        """What was added, in insertion order per table."""
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
        golds = tuple(
            GoldState(
                db_id=self.db_id,
                question_id=gold.question_id,
                rows_before=self.watch.before[gold.sql],
                rows_after=self.watch.rows(gold.sql),
            )
            for gold in self.golds
        )
        return Growth(
            tables=tuple(tables),
            golds=golds,
            rows=tuple(rows),
            nulled=self.nulled,
            rejected_batches=self.rejected,
        )
