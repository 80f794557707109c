"""Amplifying one database: scenario rows per gold, fill to a target, repair, guided rounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from envbuild.engine.seeds import derived_random
from envbuild.errors import GoldError
from envbuild.generate.golds import GoldMonitor, tied_groups
from envbuild.generate.plan import plan_workspace
from envbuild.generate.rows import RowMaker
from envbuild.generate.scenarios import BoundFrame, Scenarios, bind_frame
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
from envbuild.signal.mutants import Mutant, draw_mutants
from envbuild.signal.tree import compiler_for
from envbuild.sql.connect import open_writable_image
from envbuild.sql.verdicts import encode_rows

REPAIR_TRIES = 4
"""Rounds of scenarios for a gold that has no row."""
FILL_STEPS = 4
"""Batches a table is filled in where filling it at once empties a gold."""
FILL_FAILURES = 10
"""Rows that no rule admits before a table is left as it is."""
UNTIE_ROUNDS = 3
"""Passes over all golds that look for ties."""
UNTIE_TRIES = 4
"""Combinations tried to break a tie under a gold's LIMIT."""
MAX_FAILURES = 10
"""Batches in a row that kill nothing before a gold is given up."""
MAX_MUTANTS = 3
"""Survivors whose own scenarios one batch plays."""
BATCH_ROWS = 8
"""Rows of a batch that follows no scenario."""


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
        amplifier = _Amplifier(workspace, golds, settings, db_id)
        amplifier.grow()
        connection.execute("COMMIT")
        return Amplified(image=connection.serialize("main"), growth=amplifier.growth(golds, db_id))
    finally:
        connection.close()


class _Amplifier:
    """One database's amplification while it goes on."""

    def __init__(
        self, workspace: Workspace, golds: Sequence[Gold], settings: AmplifySettings, db_id: str
    ) -> None:
        self.workspace, self.settings = workspace, settings
        self.rng = derived_random(settings.seed, db_id, "amplify")
        demands = {gold.sql: read_demand(gold.sql, workspace.schema) for gold in golds}
        plan_workspace(
            workspace,
            list(demands.values()),
            observed=settings.observed,
            orphans=settings.orphans,
            rng=self.rng,
        )
        self.sqls = list(demands)
        self.frames = {sql: self._bound(demand) for sql, demand in demands.items()}
        """What each gold, and each mutant that was looked at, asks of rows."""
        self.maker = RowMaker(workspace, self.rng)
        self.scenarios = Scenarios(self.maker, self.rng)
        self.golds = GoldMonitor(workspace, self.sqls)
        self.targets = {
            name: self.rng.randint(settings.rows_low, settings.rows_high)
            for name in workspace.ranks
        }
        self.rejected = 0
        self.mutants = self._draw_mutants() if settings.guided else {}
        self.killed_before = {sql: self._killed(sql) for sql in self.mutants}

    def _bound(self, demand: Demand) -> list[BoundFrame]:
        bound = [bind_frame(frame, self.workspace) for frame in demand.frames]
        return [one for one in bound if one is not None]

    def _frames_of(self, sql: str) -> list[BoundFrame]:
        if sql not in self.frames:
            self.frames[sql] = self._bound(read_demand(sql, self.workspace.schema))
        return self.frames[sql]

    def _draw_mutants(self) -> dict[str, tuple[Mutant, ...]]:
        """The mutants of every gold that runs and can be mutated."""
        schema, drawn = self.workspace.schema, {}
        compiles = compiler_for(schema)
        for sql in self.sqls:
            try:
                drawn[sql] = draw_mutants(sql, schema, compiles=compiles).mutants
            except GoldError:
                continue
        return drawn

    def _alive(self, sql: str) -> tuple[int, ...]:
        return self.golds.alive(sql, self.mutants[sql], range(len(self.mutants[sql])))

    def _killed(self, sql: str) -> int:
        return len(self.mutants[sql]) - len(self._alive(sql)) if sql in self.mutants else 0

    def grow(self) -> None:
        """All phases, in groups of golds."""
        # without a gold there is still one round, which fills the tables
        for start in range(0, len(self.sqls) or 1, self.settings.group):
            group = self.sqls[start : start + self.settings.group]
            if not self.workspace.add(
                partial(self._populate, group, start == 0), self._none_emptied
            ):
                self._populate_carefully(group, fill=start == 0)
            for sql in group:
                self._repair(sql)
            for sql in group:
                if sql in self.mutants:
                    self._kill_mutants(sql)
        # rows of a later group may tie what an earlier one rests on, and so may untying itself
        for _ in range(UNTIE_ROUNDS):
            if not sum(self._untie(sql) for sql in self.sqls):
                break

    def _populate(self, group: Sequence[str], fill: bool) -> None:
        self._play(group)
        for name in self.targets if fill else ():
            self._fill(name, self.targets[name])

    def _populate_carefully(self, group: Sequence[str], *, fill: bool) -> None:
        """The same in small batches, each taken back where it empties a gold."""
        for sql in group:
            self._add_guarded(partial(self._play, [sql]))
        for step in range(1, FILL_STEPS + 1 if fill else 0):
            for name, target in self.targets.items():
                self._add_guarded(partial(self._fill, name, target * step // FILL_STEPS))

    def _add_guarded(self, change: Callable[[], None]) -> None:
        """Adds rows, and takes them back where they empty a gold."""
        self.rejected += not self.workspace.add(change, self._none_emptied)

    def _none_emptied(self) -> bool:
        return not self.golds.emptied()

    def _play(self, group: Sequence[str]) -> None:
        """Every scenario of these golds: what their frames look for, and each near miss."""
        play, add_group = self.scenarios.play, self.scenarios.group
        for bound in [bound for sql in group for bound in self.frames[sql]]:
            frame = bound.frame
            for _ in range(max(1, min(frame.limit + 1, 4)) if frame.limit else 1):
                add_group(bound, frame.siblings)
            lead = bool(frame.ordered or frame.extremes)
            for number in range(len(frame.clauses)):
                play(bound, miss=number, lead=lead)
            if lead:
                play(bound, lead=True)
            if frame.siblings > 1:
                add_group(bound, frame.siblings - 1)
            if frame.optional:
                play(bound, bare=True)
            if frame.shown:
                add_group(bound, max(2, frame.siblings), duplicate=True)

    def _fill(self, name: str, target: int) -> None:
        table = self.workspace.tables[name]
        failures = 0
        while len(table.rows) < target and failures < FILL_FAILURES:
            failures += self.maker.make(table, {}) is None

    def _repair(self, sql: str) -> None:
        for _ in range(REPAIR_TRIES):
            if self.golds.rows(sql) == 0:
                self._add_guarded(partial(self._play, [sql]))

    def _kill_mutants(self, sql: str) -> None:
        """Adds batches for one gold until no mutant survives or too many batches fail."""
        mutants, alive = self.mutants[sql], self._alive(sql)
        failures = 0

        def some_killed() -> bool:
            nonlocal alive
            still = self.golds.alive(sql, mutants, alive)
            if len(still) == len(alive) or self.golds.emptied():
                return False
            alive = still
            return True

        while alive and failures < MAX_FAILURES:
            batch = partial(self._add_batch, sql, [mutants[at].sql for at in alive], failures)
            kept = self.workspace.add(batch, some_killed)
            failures = 0 if kept else failures + 1
            self.rejected += not kept

    def _add_batch(self, sql: str, survivors: list[str], attempt: int) -> None:
        """The moves in turn: what mutants ask, what the gold asks, repeats, plain rows."""
        gold = self.frames[sql]
        match attempt % 4:
            case 0:
                self.rng.shuffle(survivors)
                for mutant in survivors[:MAX_MUTANTS]:
                    for bound in self._frames_of(mutant)[:2]:
                        self.scenarios.group(bound, bound.frame.siblings, lead=True)
                        self._miss(bound)
                        self._leave_out_optional(bound)
            case 1:
                for bound in gold[:2]:
                    self._miss(bound)
            case 2:
                for bound in gold[:2]:
                    self.scenarios.group(bound, max(2, bound.frame.siblings), duplicate=True)
                    self._leave_out_optional(bound)
            case _:
                tables = list({id(t): t for bound in gold for t in bound.tables}.values())
                for _ in range(BATCH_ROWS if tables else 0):
                    self.maker.make(tables[int(self.rng.random() * len(tables))], {})

    def _miss(self, bound: BoundFrame) -> None:
        if clauses := len(bound.frame.clauses):
            self.scenarios.play(bound, miss=int(self.rng.random() * clauses), lead=True)
        self.scenarios.play(bound, lead=True)

    def _leave_out_optional(self, bound: BoundFrame) -> None:
        if bound.frame.optional:
            self.scenarios.play(bound, bare=True, lead=True)

    def _untie(self, sql: str) -> bool:
        """More rows for the winning group of a gold that rests on a tie; True where that helps."""
        untied = False
        for _ in range(UNTIE_TRIES):
            if not self.frames[sql] or not self.golds.rests_on_tie(sql):
                break
            untied |= self.workspace.add(
                partial(self._break_ties, self.frames[sql]),
                lambda: not self.golds.rests_on_tie(sql) and not self.golds.emptied(),
            )
        return untied

    def _break_ties(self, frames: list[BoundFrame]) -> None:
        for bound in frames:
            over, weight = bound.frame.counted_over, float(bound.frame.counted == "asc")
            for keys in tied_groups(bound, self.workspace.connection):
                self.scenarios.play(bound, keep=keys, only=over, reuse=0.0, weight=weight)
        if not any(bound.frame.counted for bound in frames):
            self.scenarios.play(frames[0], lead=True)

    def growth(self, golds: Sequence[Gold], db_id: str) -> Growth:
        """What was added: parents' tables first, in insertion order within each."""
        tables = [(self.workspace.tables[name], target) for name, target in self.targets.items()]
        added = [
            (table, rowid, cells)
            for table, _ in tables
            for rowid, cells in zip(table.rowids, table.rows[table.original :], strict=True)
        ]
        return Growth(
            tables=tuple(
                TableGrowth(
                    db_id=db_id,
                    table=table.table.name,
                    rows_before=table.total,
                    rows_added=len(table.rowids),
                    rows_refused=table.refused,
                    target=target,
                )
                for table, target in tables
            ),
            golds=tuple(
                GoldState(
                    db_id=db_id,
                    question_id=gold.question_id,
                    rows_before=self.golds.before[gold.sql],
                    rows_after=self.golds.rows(gold.sql),
                    mutants=len(self.mutants.get(gold.sql, ())),
                    killed_before=self.killed_before.get(gold.sql, 0),
                    killed=self._killed(gold.sql),
                    tie_sensitive=self.golds.rests_on_tie(gold.sql)
                    or self.golds.counts_through_ties(gold.sql),
                )
                for gold in golds
            ),
            rows=tuple(
                AddedRow(
                    db_id=db_id,
                    table=table.table.name,
                    index=number,
                    rowid=rowid,
                    columns=tuple(table.names),
                    cells=encode_rows([tuple(cells)]),
                )
                for number, (table, rowid, cells) in enumerate(added)
            ),
            rejected_batches=self.rejected,
        )
