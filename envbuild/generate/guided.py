"""Golds and their mutants on the growing database: which are emptied, tied or told apart."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from envbuild.errors import GoldError
from envbuild.generate.scenarios import BoundFrame, Stage, Values
from envbuild.generate.tables import TableRows, Workspace
from envbuild.query.nondeterminism import (
    ReorderedSession,
    break_ties,
    break_window_ties,
    columns_named,
    limit_sites,
    probe_columns,
)
from envbuild.records.corpus import Schema
from envbuild.records.execution import QueryResult, Value
from envbuild.records.signal import Site
from envbuild.signal.mutants import Mutant, draw_mutants
from envbuild.signal.score import SIGNAL_LIMITS, try_mutants
from envbuild.signal.tree import Compiler
from envbuild.sql.connect import Connection, iter_rows, quote_name
from envbuild.sql.execution.session import Session
from envbuild.sql.gold_tables import GoldTableReader
from envbuild.sql.verdicts import equal_bag

MAX_TIED = 40
"""Groups looked at when a tie is broken; more singles than that are left tied."""
_PLAIN = ("=", "!=", "<", "<=", ">", ">=")


def rests_on_tie(sql: str, run: Callable[[str], QueryResult]) -> bool:
    """True where breaking ties upwards and downwards gives two different results (SIGNAL 4)."""
    # most golds have no LIMIT, and reading tokens costs as much as running one
    sites = limit_sites(sql) if "limit" in sql.lower() else ()
    if not sites:
        return False
    columns = [(site, columns_named(run(probe_columns(sql, site)).error)) for site in sites]
    up, down = (run(break_ties(sql, columns, direction=way)) for way in ("ASC", "DESC"))
    return up.ok and down.ok and not equal_bag(up.rows, down.rows)


def tied_groups(scene: BoundFrame, connection: Connection) -> list[Values]:
    """The groups that share the extreme count under a scene's `ORDER BY count(*) LIMIT`.

    All but the one that should win for `asc`, the winner alone for `desc`; empty without a tie.
    """
    found = group_counts(scene, connection)
    tied = [values for count, values in found if count == found[0][0]]
    if len(tied) < 2:
        return []
    return tied[:1] if scene.frame.counted == "desc" else tied[1:]


def group_counts(scene: BoundFrame, connection: Connection) -> list[tuple[int, Values]]:
    """Rows and key values of the groups a scene counts, in its order; the first few."""
    frame, over = scene.frame, scene.frame.counted_over
    keys = [site for site in frame.group if site[0] in over]
    if not frame.counted or not keys:
        return []
    listed = ", ".join(_named(scene, site) for site in keys)
    sources = ", ".join(
        f"{quote_name(scene.tables[number].table.name)} AS t{number}" for number in over
    )
    tests = [
        f"{_named(scene, left)} = {_named(scene, right)}"
        for left, right in frame.same
        if left[0] in over and right[0] in over
    ]
    bound: list[Value] = []
    for clause in frame.clauses:
        if len(clause) == 1 and len(clause[0]) == 1:
            condition = clause[0][0]
            known = condition.site[0] in over and condition.values and condition.expression == "v"
            if condition.op in _PLAIN and known:
                tests.append(f"{_named(scene, condition.site)} {condition.op} ?")
                bound.append(condition.values[0])
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    order = f" GROUP BY {listed} ORDER BY count(*) {frame.counted}, {listed} LIMIT {MAX_TIED}"
    sql = f"SELECT count(*), {listed} FROM {sources}{where}{order}"
    roots = [scene.class_of(site) for site in keys]
    return [
        (row[0], dict(zip(roots, row[1:], strict=True)))
        for row in iter_rows(connection, sql, tuple(bound))
    ]


def _named(scene: BoundFrame, site: Site) -> str:
    table = scene.tables[site[0]]
    return f"t{site[0]}.{quote_name(site[1])}" if site[1].lower() in table.at else "NULL"


_RANDOM = re.compile("random", re.IGNORECASE)
MAX_ROWS_KEPT = 1000
"""Rows of a gold's result that is kept until its tables change."""


class GoldMonitor:
    """The golds of one database, run by the one executor on the growing database.

    A gold is run again only where a table that it reads has other rows than the last time.
    """

    def __init__(self, workspace: Workspace, golds: Sequence[str]) -> None:
        self.workspace = workspace
        self.session = Session(workspace.connection, limits=SIGNAL_LIMITS)
        self._reordered: ReorderedSession | None = None
        self._tables = dict(self._read_tables(golds))
        self._results: dict[str, tuple[tuple[int, ...], QueryResult]] = {}
        """Gold to its last result, and the states of its tables then."""
        self.before = {sql: self.rows(sql) for sql in golds}
        self.filled = [sql for sql, rows in self.before.items() if rows > 0]
        """Golds that have rows: none of them may be emptied."""

    def run(self, sql: str) -> QueryResult:
        """The query's result now; the connection may be written again afterwards."""
        return self.session.run(sql)

    def gold(self, sql: str) -> QueryResult:
        """A watched gold's result now."""
        tables = self._tables.get(sql)
        if tables is None:
            return self.run(sql)
        states = tuple([table.state for table in tables])
        known = self._results.get(sql)
        if known is not None and known[0] == states:
            return known[1]
        result = self.run(sql)
        if len(result.rows) <= MAX_ROWS_KEPT:
            self._results[sql] = states, result
        return result

    def counts_through_ties(self, sql: str) -> bool:
        """True where a window gives rows that tie in its ORDER BY other values in another order."""
        spliced = break_window_ties(sql) if "over" in sql.lower() else None
        if spliced is None or _RANDOM.search(sql):
            return False
        if self._reordered is None:
            self._reordered = ReorderedSession(self.workspace.connection, limits=SIGNAL_LIMITS)
        return self._reordered.varies(spliced)

    def alive(
        self, sql: str, mutants: Sequence[Mutant], positions: Sequence[int]
    ) -> tuple[int, ...]:
        """Which of these mutants have the gold's own result now; all where the gold has none."""
        trial = try_mutants(
            sql,
            mutants,
            session=self.session,
            limits=SIGNAL_LIMITS,
            only=positions,
            gold=self.gold(sql),
        )
        return trial.alive if trial.gold.ok else tuple(positions)

    def rows(self, sql: str) -> int:
        """Rows of a gold's result; -1 where it does not run to its end."""
        result = self.gold(sql)
        return len(result.rows) if result.ok else -1

    def emptied(self) -> list[str]:
        """The golds that had rows and have none now, or ran and no longer end.

        Golds that gained rows join the watched.
        """
        counts = {sql: self.rows(sql) for sql in self.before}
        filled = set(self.filled)
        lost = [
            sql
            for sql, rows in counts.items()
            if (rows <= 0 and sql in filled) or rows < 0 <= self.before[sql]
        ]
        if not lost:
            self.filled = [sql for sql, rows in counts.items() if rows > 0]
        return lost

    def _read_tables(self, golds: Sequence[str]) -> Iterator[tuple[str, list[TableRows]]]:
        """The tables whose rows alone decide a gold's result; none for one that is not known."""
        with GoldTableReader(self.workspace.connection) as reader:
            for sql in golds:
                try:
                    names = reader.read(sql).tables
                except GoldError:
                    continue
                tables = [self.workspace.tables.get(name.lower()) for name in names]
                known = [table for table in tables if table is not None]
                if len(known) == len(tables):
                    yield sql, known


MAX_FAILURES = 10
"""Batches in a row that kill nothing before a gold is given up."""
MAX_MUTANTS = 3
"""Survivors whose own scenarios one batch plays."""
BATCH_ROWS = 8
"""Rows of a batch that follows no scenario."""


@dataclass(slots=True)
class Survivors:
    """One gold's mutants on the growing database."""

    sql: str
    mutants: tuple[Mutant, ...]
    alive: tuple[int, ...] = ()
    killed_before: int = 0
    """Killed on the database as it came."""
    scenes: dict[int, list[BoundFrame]] = field(default_factory=dict)
    """What each surviving mutant asks of rows, read when first needed."""

    @property
    def killed(self) -> int:
        """Mutants told apart now."""
        return len(self.mutants) - len(self.alive)


class MutantSearch:
    """Plays batches against survivors."""

    def __init__(
        self,
        workspace: Workspace,
        stage: Stage,
        watch: GoldMonitor,
        read_scenes: Callable[[str], list[BoundFrame]],
        rng: Random,
    ) -> None:
        self.workspace, self.stage, self.watch = workspace, stage, watch
        self.read_scenes = read_scenes
        self.rng = rng
        self.rejected = 0

    def hunt(self, hunt: Survivors) -> None:
        """Adds batches for one gold until nothing survives or too many batches fail."""
        hunt.alive = self.watch.alive(hunt.sql, hunt.mutants, range(len(hunt.mutants)))
        failures = 0
        while hunt.alive and failures < MAX_FAILURES:
            mark = self.workspace.mark("batch")
            self._batch(hunt, failures)
            alive = hunt.alive
            if not self.workspace.unchanged(mark):
                alive = self.watch.alive(hunt.sql, hunt.mutants, alive)
            if len(alive) < len(hunt.alive) and not self.watch.emptied():
                self.workspace.release("batch")
                hunt.alive = alive
                failures = 0
            else:
                self.workspace.roll_back("batch", mark)
                self.rejected += 1
                failures += 1

    def _batch(self, hunt: Survivors, attempt: int) -> None:
        """The moves in turn: what mutants ask, what golds ask, repeats, plain rows."""
        gold = self._scenes(hunt, -1)
        match attempt % 4:
            case 0:
                self._play_mutants(hunt)
            case 1:
                for scene in gold[:2]:
                    self._miss(scene)
            case 2:
                for scene in gold[:2]:
                    self.stage.group(scene, max(2, scene.frame.siblings), duplicate=True)
                    if scene.frame.optional:
                        self.stage.play(scene, bare=True, lead=True)
            case _:
                self._plain(gold)

    def _play_mutants(self, hunt: Survivors) -> None:
        chosen = list(hunt.alive)
        self.rng.shuffle(chosen)
        for number in chosen[:MAX_MUTANTS]:
            for scene in self._scenes(hunt, number)[:2]:
                self.stage.group(scene, scene.frame.siblings, lead=True)
                self._miss(scene)
                if scene.frame.optional:
                    self.stage.play(scene, bare=True, lead=True)

    def _miss(self, scene: BoundFrame) -> None:
        clauses = len(scene.frame.clauses)
        if clauses:
            self.stage.play(scene, miss=int(self.rng.random() * clauses), lead=True)
        self.stage.play(scene, lead=True)

    def _plain(self, scenes: Sequence[BoundFrame]) -> None:
        tables = list({id(t): t for scene in scenes for t in scene.tables}.values())
        for _ in range(BATCH_ROWS if tables else 0):
            self.stage.maker.make(tables[int(self.rng.random() * len(tables))], {})

    def _scenes(self, hunt: Survivors, number: int) -> list[BoundFrame]:
        if number not in hunt.scenes:
            sql = hunt.mutants[number].sql if number >= 0 else hunt.sql
            hunt.scenes[number] = self.read_scenes(sql)
        return hunt.scenes[number]


def open_hunts(sqls: Sequence[str], schema: Schema, watch: GoldMonitor) -> dict[str, Survivors]:
    """The mutants of every gold that runs and can be mutated, tried on the database as it is."""
    compiles = Compiler.of_schema(schema).compiles
    hunts = {}
    for sql in sqls:
        try:
            mutants = draw_mutants(sql, schema, compiles=compiles).mutants
        except GoldError:
            continue
        hunt = Survivors(sql=sql, mutants=mutants)
        hunt.alive = watch.alive(sql, mutants, range(len(mutants)))
        hunt.killed_before = hunt.killed
        hunts[sql] = hunt
    return hunts
