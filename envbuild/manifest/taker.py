"""One database's questions, one by one: each becomes the cells that are its own, or a Reject."""

from typing import Any

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.seeds import derive_seed
from envbuild.manifest.golds import Gold, GoldDesk, open_desk
from envbuild.manifest.parts import Part
from envbuild.manifest.refusals import refusal_before_gold
from envbuild.records.corpus import DatabaseRow, Reject, SampledSchema
from envbuild.records.manifest import GoldResult, VariantBatch
from envbuild.schema.sampler import draw_target, sample_schema


class QuestionTaker:
    """Takes the questions of one database, which stays open meanwhile."""

    def __init__(
        self, part: Part, corpus: CorpusFolder, db_id: str, row: DatabaseRow | None
    ) -> None:
        """`row` is the database's catalogue row; None where the corpus has no such database."""
        self.part, self.settings = part, part.settings
        self.corpus, self.db_id, self.row = corpus.name, db_id, row
        self.used: dict[str, Gold] = {}
        self.desk: GoldDesk | None = None
        self.refusal = ("unknown_db_id", f"the corpus has no database {db_id!r}")
        self.file = ""
        if row is not None:
            self.file = f"{part.sqlite_root}/{row.sqlite_file}"
            opened = open_desk(
                corpus.root / row.sqlite_file,
                corpus=corpus.name,
                db_id=db_id,
                limits=part.settings.limits,
            )
            if isinstance(opened, GoldDesk):
                self.desk = opened
            else:
                self.refusal = ("database_unreadable", opened)

    def take(self, fields: dict[str, Any], *, check_view: bool = False) -> dict[str, Any] | Reject:
        """The question's own cells of a manifest row, or why it is left out.

        `check_view` runs the gold query on the sample's own view. Without it the check on the view
        of its gold tables alone stands for every sample, but for queries that read the catalogue.
        """
        refusal = refusal_before_gold(fields, self.settings)
        if refusal is not None:
            return self._reject(fields, *refusal)
        if self.desk is None or self.row is None:
            return self._reject(fields, *self.refusal)
        gold = self.desk.gold(fields["gold_sql"])
        if gold.stored is None:
            return self._reject(fields, gold.reason, gold.detail)
        seed = derive_seed(self.settings.seed, fields["row_id"], "sample")
        sample = self._sample(self.desk, gold, seed)
        if check_view or gold.tables.reads_schema:
            difference = self.desk.difference(sample.tables, gold)
            if difference:
                return self._reject(fields, "view_differs", difference)
        self.used[gold.sql] = gold
        return {
            "at": fields["at"],
            "gold_tables": sample.gold_tables,
            "tables": sample.tables,
            "distractors": sample.distractors,
            "target_size": sample.target_size,
            "seed": seed,
            "sqlite_file": self.file,
            "database_sha256": self.row.sha256,
            "gold_id": gold.stored.gold_id,
            "gold_digest": gold.stored.digest,
            "gold_rows": gold.rows,
            "gold_columns": len(gold.stored.columns),
            "gold_ordered": gold.stored.ordered,
        }

    @property
    def num_tables(self) -> int:
        """Tables of the database; 0 where it cannot be read."""
        return len(self.desk.schema.tables) if self.desk else 0

    def keys_among(self, tables: tuple[str, ...]) -> tuple[str, ...]:
        """The foreign keys among these tables, as `child.col -> parent.col`."""
        keys = self.desk.schema.foreign_keys if self.desk else ()
        inside = set(tables)
        return tuple(k.render() for k in keys if k.child in inside and k.parent in inside)

    def variants(self) -> VariantBatch:
        """The database's hidden variants for the golds that rows refer to; none if not wanted."""
        golds = [(g.stored.gold_id, sql) for sql, g in self.used.items() if g.stored is not None]
        if self.part.maker is None or self.desk is None or not golds:
            return VariantBatch()
        batch: VariantBatch = self.part.maker(
            self.desk.path,
            sorted(golds),
            corpus=self.corpus,
            db_id=self.db_id,
            count=self.settings.variants,
            seed=self.settings.seed,
        )
        return batch

    def used_golds(self) -> list[GoldResult]:
        """The gold results that rows refer to, by id."""
        stored = [gold.stored for gold in self.used.values() if gold.stored is not None]
        return sorted(stored, key=lambda gold: gold.gold_id)

    def close(self) -> None:
        """Closes the database."""
        if self.desk is not None:
            self.desk.close()

    def __enter__(self) -> "QuestionTaker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sample(self, desk: GoldDesk, gold: Gold, seed: int) -> SampledSchema:
        settings = self.settings
        return sample_schema(
            desk.schema,
            gold.tables.tables,
            target=draw_target(seed, smallest=settings.smallest, largest=settings.largest),
            seed=seed,
            distractors=settings.distractors,
            extra=settings.extra,
            full=settings.full,
            graph=desk.graph,
        )

    def _reject(self, fields: dict[str, Any], reason: str, detail: str) -> Reject:
        style = f"[{fields['style']}] " if fields["style"] else ""
        return Reject(
            corpus=self.corpus,
            db_id=self.db_id,
            question_id=fields["question_id"],
            kind="question",
            reason=reason,
            detail=(style + detail).strip(),
        )
