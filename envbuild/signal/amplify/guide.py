"""Guided rounds: batches of rows for golds with surviving mutants, kept where they kill one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from envbuild.errors import GoldError
from envbuild.records.schema import Schema
from envbuild.signal.amplify.scenario import Stage
from envbuild.signal.amplify.scene import Scene
from envbuild.signal.amplify.tables import Workspace
from envbuild.signal.amplify.watch import Watch
from envbuild.signal.mutants import Mutant, draw_mutants
from envbuild.sql.mutants.compiler import Compiler

MOST_FAILURES = 10
"""Batches in a row that kill nothing before a gold is given up."""
MOST_MUTANTS = 3
"""Survivors whose own scenarios one batch plays."""
BATCH_ROWS = 8
"""Rows of a batch that follows no scenario."""


@dataclass(slots=True)
class Hunt:
    """One gold's mutants on the growing database."""

    sql: str
    mutants: tuple[Mutant, ...]
    alive: tuple[int, ...] = ()
    killed_before: int = 0
    """Killed on the database as it came."""
    scenes: dict[int, list[Scene]] = field(default_factory=dict)
    """What each surviving mutant asks of rows, read when first needed."""

    @property
    def killed(self) -> int:
        """Mutants told apart now."""
        return len(self.mutants) - len(self.alive)


class Guide:
    """Plays batches against survivors."""

    def __init__(
        self,
        workspace: Workspace,
        stage: Stage,
        watch: Watch,
        read_scenes: Callable[[str], list[Scene]],
        rng: Random,
    ) -> None:
        self.workspace, self.stage, self.watch = workspace, stage, watch
        self.read_scenes = read_scenes
        self.rng = rng
        self.rejected = 0

    def hunt(self, hunt: Hunt) -> None:
        """Adds batches for one gold until nothing survives or too many batches fail."""
        hunt.alive = self.watch.alive(hunt.sql, hunt.mutants, range(len(hunt.mutants)))
        failures = 0
        while hunt.alive and failures < MOST_FAILURES:
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

    def _batch(self, hunt: Hunt, attempt: int) -> None:
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

    def _play_mutants(self, hunt: Hunt) -> None:
        chosen = list(hunt.alive)
        self.rng.shuffle(chosen)
        for number in chosen[:MOST_MUTANTS]:
            for scene in self._scenes(hunt, number)[:2]:
                self.stage.group(scene, scene.frame.siblings, lead=True)
                self._miss(scene)
                if scene.frame.optional:
                    self.stage.play(scene, bare=True, lead=True)

    def _miss(self, scene: Scene) -> None:
        clauses = len(scene.frame.clauses)
        if clauses:
            self.stage.play(scene, miss=int(self.rng.random() * clauses), lead=True)
        self.stage.play(scene, lead=True)

    def _plain(self, scenes: Sequence[Scene]) -> None:
        tables = list({id(t): t for scene in scenes for t in scene.tables}.values())
        for _ in range(BATCH_ROWS if tables else 0):
            self.stage.maker.make(tables[int(self.rng.random() * len(tables))], {})

    def _scenes(self, hunt: Hunt, number: int) -> list[Scene]:
        if number not in hunt.scenes:
            sql = hunt.mutants[number].sql if number >= 0 else hunt.sql
            hunt.scenes[number] = self.read_scenes(sql)
        return hunt.scenes[number]


def open_hunts(sqls: Sequence[str], schema: Schema, watch: Watch) -> dict[str, Hunt]:
    """The mutants of every gold that runs and can be mutated, tried on the database as it is."""
    compiles = Compiler.of_schema(schema).compiles
    hunts = {}
    for sql in sqls:
        try:
            mutants = draw_mutants(sql, schema, compiles=compiles).mutants
        except GoldError:
            continue
        hunt = Hunt(sql=sql, mutants=mutants)
        hunt.alive = watch.alive(sql, mutants, range(len(mutants)))
        hunt.killed_before = hunt.killed
        hunts[sql] = hunt
    return hunts
