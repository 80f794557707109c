"""A part's questions become manifest rows, gold results and rejects."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.wording import is_placeholder
from envbuild.engine.seeds import derive_seed
from envbuild.errors import CorpusError
from envbuild.io.files import write_bytes
from envbuild.io.parquet import columns_of
from envbuild.manifest.golds import Gold, GoldRunner
from envbuild.manifest.layout import GOLD_SCHEMA, REJECT_SCHEMA, ROW_SCHEMA, VARIANT_SCHEMA
from envbuild.manifest.partition import Part, by_database, open_writer, read_masked
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.corpus import DatabaseRow, Reject, SampledSchema
from envbuild.records.manifest import GoldResult, VariantBatch
from envbuild.schema.sampler import draw_target, sample_schema


class ManifestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of questions: offered = rows + rejects, over all reasons."""

    offered: int
    rows: int
    golds: int
    rejects: dict[str, int]
    """Reason -> questions (phrasings) left out for it."""
    buckets: dict[str, int]
    sizes: dict[int, int]
    """Tables of a sample -> rows."""
    variants: dict[str, int] = {}
    """`made`, and reason -> golds that a variant cannot judge."""

    @property
    def rejected(self) -> int:
        """Questions (phrasings) left out, whatever the reason."""
        return sum(self.rejects.values())


def make_part(part: Part) -> int:
    """Writes the part's rows, golds and rejects, last the counts that mark it as done.

    Returns the part's number.
    """
    corpus = CorpusFolder(Path(part.corpus_root))
    questions = read_masked(part, corpus)
    databases = {row.db_id: row for row in corpus.databases()}
    cells: dict[str, list[Any]] = defaultdict(list)
    """Column -> its value in each row, in the order the rows are built."""
    rejects: list[Reject] = []
    golds = 0
    judged_by: dict[str, tuple[str, ...]] = {}
    variants: Counter[str] = Counter()
    with (
        open_writer(part.file("golds"), GOLD_SCHEMA) as gold_writer,
        open_writer(part.file("variants"), VARIANT_SCHEMA) as variant_writer,
    ):
        for db_id, rows in by_database(questions, part):
            with RowBuilder(part, corpus, db_id, databases.get(db_id)) as builder:
                for fields in rows:
                    built = builder.build(fields)
                    if isinstance(built, Reject):
                        rejects.append(built)
                        continue
                    for name, value in built.items():
                        cells[name].append(value)
                used, batch = builder.used_golds(), builder.variants()
            golds += len(used)
            judged_by |= {gold.gold_id: batch.ids_of(gold.gold_id) for gold in used}
            variants.update(skipped.reason for skipped in batch.skipped)
            variants["made"] += len(batch.variants)
            if used:
                every = sorted((*used, *batch.golds), key=lambda gold: (gold.gold_id, gold.variant))
                gold_writer.write_batch(columns_of(every, GOLD_SCHEMA))
            if batch.variants:
                variant_writer.write_batch(columns_of(batch.variants, VARIANT_SCHEMA))
    cells["variants"] = [judged_by[gold_id] for gold_id in cells["gold_id"]]
    table = _rows(questions, cells, part)
    with open_writer(part.file("rows"), ROW_SCHEMA) as writer:
        writer.write_table(table)
    with open_writer(part.file("rejects"), REJECT_SCHEMA) as writer:
        writer.write_batch(columns_of(rejects, REJECT_SCHEMA))
    counts = ManifestCounts(
        offered=len(questions),
        rows=table.num_rows,
        golds=golds,
        rejects=Counter(reject.reason for reject in rejects),
        buckets=Counter(table.column("bucket").to_pylist()),
        sizes=Counter(map(len, cells["tables"])),
        variants=+variants,
    )
    write_bytes(part.file("done"), msgspec.json.encode(counts))
    return part.number


class RowBuilder:
    """Builds the rows of one database's questions; it stays open meanwhile."""

    def __init__(
        self, part: Part, corpus: CorpusFolder, db_id: str, row: DatabaseRow | None
    ) -> None:
        """`row` is the database's catalogue row; None where the corpus has no such database."""
        self.part, self.settings = part, part.settings
        self.corpus, self.db_id, self.row = corpus.name, db_id, row
        self.used: dict[str, Gold] = {}
        """Gold SQL -> what is known of it, for golds that rows refer to."""
        self.runner: GoldRunner | None = None
        self.refusal = ("unknown_db_id", f"the corpus has no database {db_id!r}")
        if row is not None:
            try:
                self.runner = GoldRunner(
                    corpus.root / row.sqlite_file,
                    corpus=corpus.name,
                    db_id=db_id,
                    limits=part.settings.limits,
                )
            except CorpusError as e:
                self.refusal = ("database_unreadable", str(e))

    def build(self, fields: dict[str, Any], *, check_view: bool = False) -> dict[str, Any] | Reject:
        """The question's own cells of a manifest row, or why it is left out.

        `check_view` runs the gold query on the sample's own view. Without it the check on the view
        of its gold tables alone stands for every sample, but for queries that read the catalogue.
        """
        refusal = refusal_before_gold(fields, self.settings)
        if refusal is not None:
            return self._reject(fields, *refusal)
        if self.runner is None or self.row is None:
            return self._reject(fields, *self.refusal)
        gold = self.runner.gold(fields["gold_sql"])
        if gold.stored is None:
            return self._reject(fields, gold.reason, gold.detail)
        seed = derive_seed(self.settings.seed, fields["row_id"], "sample")
        sample = self._sample(self.runner, gold, seed)
        if check_view or gold.tables.reads_schema:
            difference = self.runner.difference(sample.tables, gold)
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
            "sqlite_file": f"{self.part.sqlite_root}/{self.row.sqlite_file}",
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
        return len(self.runner.schema.tables) if self.runner else 0

    def keys_among(self, tables: tuple[str, ...]) -> tuple[str, ...]:
        """The foreign keys among these tables, as `child.col -> parent.col`."""
        keys = self.runner.schema.foreign_keys if self.runner else ()
        inside = set(tables)
        return tuple(k.render() for k in keys if k.child in inside and k.parent in inside)

    def variants(self) -> VariantBatch:
        """The database's hidden variants for the golds that rows refer to; none if not wanted."""
        golds = [(g.stored.gold_id, sql) for sql, g in self.used.items() if g.stored is not None]
        if self.part.maker is None or self.runner is None or not golds:
            return VariantBatch()
        batch: VariantBatch = self.part.maker(
            self.runner.path,
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

    def __enter__(self) -> "RowBuilder":
        return self

    def __exit__(self, *_: object) -> None:
        if self.runner is not None:
            self.runner.close()

    def _sample(self, runner: GoldRunner, gold: Gold, seed: int) -> SampledSchema:
        settings = self.settings
        return sample_schema(
            runner.schema,
            gold.tables.tables,
            target=draw_target(seed, smallest=settings.smallest, largest=settings.largest),
            seed=seed,
            distractors=settings.distractors,
            extra=settings.extra,
            full=settings.full,
            graph=runner.graph,
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


def refusal_before_gold(
    fields: dict[str, Any], settings: ManifestSettings
) -> tuple[str, str] | None:
    """(reason, detail) for a question that cannot or shall not be a row; None for all others."""
    if not fields["db_id"]:
        return ("missing_db_id", "the question names no database")
    if fields["repeated"]:
        return ("duplicate_question", "its question id and style were there before")
    if settings.styles and fields["style"] not in settings.styles:
        return ("style_not_taken", f"--styles takes {', '.join(settings.styles)}")
    if is_placeholder(fields["question"]):
        return ("placeholder_phrasing", fields["question"][:80] or "(empty)")
    if not fields["gold_sql"].strip():
        return ("no_gold_sql", "")
    found = [code for code in settings.leave_out if code in (fields["findings"] or ())]
    return (found[0], "left out for this finding") if found else None


def _rows(questions: pl.DataFrame, cells: dict[str, list[Any]], part: Part) -> pa.Table:
    """The part's rows in the manifest's columns, sorted by row id."""
    shared = questions[cells.get("at", [])].with_columns(
        pl.col("signal_mutants").fill_null(0),
        pl.col("findings").fill_null([]),
        corpus=pl.lit(part.corpus),
        corpus_revision=pl.lit(part.revision),
    )
    order = shared.get_column("row_id").arg_sort()
    columns = []
    for field in ROW_SCHEMA:
        if field.name in shared.columns:
            columns.append(shared.get_column(field.name).to_arrow().cast(field.type))
        else:
            columns.append(pa.array(cells.get(field.name, []), type=field.type))
    table = pa.Table.from_arrays(columns, schema=ROW_SCHEMA)
    return table.take(order.to_arrow()).combine_chunks()
