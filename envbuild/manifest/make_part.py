"""One part of a manifest: its databases' questions become rows, golds and rejects."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from envbuild.buckets.cut import bucket_column, names_of
from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.seeds import derive_seed
from envbuild.io.files import write_bytes
from envbuild.io.parquet import columns_of
from envbuild.manifest.arrow_files import open_writer
from envbuild.manifest.golds import Gold, GoldDesk, open_desk
from envbuild.manifest.layout import GOLD_SCHEMA, REJECT_SCHEMA, ROW_SCHEMA, row_id_of
from envbuild.manifest.parts import Part, read_questions
from envbuild.manifest.refusals import refusal_before_gold
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.corpus import DatabaseRow, Reject
from envbuild.records.schema import SampledSchema
from envbuild.schema.sampler import draw_target, sample_schema
from envbuild.sql.mask_column import mask_column


class PartCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a part's questions."""

    number: int
    offered: int
    rows: int
    golds: int
    rejects: dict[str, int]
    """Reason -> questions (phrasings) left out for it."""
    buckets: dict[str, int]
    sizes: dict[int, int] = {}
    """Tables of a sample -> rows."""


def make_part(part: Part) -> PartCounts:
    """Writes the part's rows, golds and rejects, and last the counts that mark it as done."""
    corpus = CorpusFolder(Path(part.corpus_root))
    questions = _with_masks(read_questions(part), corpus, part.settings)
    databases = {row.db_id: row for row in corpus.databases()}
    taken: dict[str, list[Any]] = defaultdict(list)
    rejects: list[Reject] = []
    golds = 0
    with open_writer(part.file("golds"), GOLD_SCHEMA) as writer:
        for db_id in part.db_ids:
            work = _Database(part, corpus, db_id, databases.get(db_id))
            for fields in questions.filter(pl.col("db_id") == db_id).iter_rows(named=True):
                outcome = work.take(fields)
                if isinstance(outcome, Reject):
                    rejects.append(outcome)
                    continue
                for name, value in outcome.items():
                    taken[name].append(value)
            used = work.close()
            golds += len(used)
            if used:
                writer.write_batch(columns_of(used, GOLD_SCHEMA))
    rows = _rows(questions, taken, part)
    _write(part.file("rows"), rows)
    _write(part.file("rejects"), pa.Table.from_batches([columns_of(rejects, REJECT_SCHEMA)]))
    counts = PartCounts(
        number=part.number,
        offered=len(questions),
        rows=rows.num_rows,
        golds=golds,
        rejects=dict(sorted(Counter(reject.reason for reject in rejects).items())),
        buckets=dict(sorted(Counter(rows.column("bucket").to_pylist()).items())),
        sizes=dict(sorted(Counter(map(len, taken["tables"])).items())),
    )
    write_bytes(part.file("done"), msgspec.json.encode(counts))
    return counts


def _with_masks(
    questions: pl.DataFrame, corpus: CorpusFolder, settings: ManifestSettings
) -> pl.DataFrame:
    """Adds position, masked_length, bucket, literals, row_id and whether the row id came before."""
    edges, mode = settings.cutting(corpus)
    masked = mask_column(
        questions.get_column("gold_sql"),
        identifiers=names_of(corpus, questions.get_column("db_id").to_list()),
        mode=mode,
        literals=True,
    )
    phrasings = pl.len().over("db_id", "question_id") > 1
    named = questions.select(
        "db_id", "question_id", pl.when(phrasings).then("style").otherwise(pl.lit("")).alias("s")
    )
    ids = [row_id_of(corpus.name, *names) for names in named.iter_rows()]
    return (
        pl.concat([questions, masked.drop("masked_sql")], how="horizontal")
        .with_columns(bucket_column(edges), pl.Series("row_id", ids, dtype=pl.String))
        .with_columns(pl.col("row_id").is_first_distinct().not_().alias("repeated"))
        .with_row_index("at")
    )


class _Database:
    """One database's questions: each becomes the cells that are its own, or a Reject."""

    def __init__(
        self, part: Part, corpus: CorpusFolder, db_id: str, row: DatabaseRow | None
    ) -> None:
        self.settings = part.settings
        self.corpus, self.db_id, self.row = corpus.name, db_id, row
        self.used: dict[str, Gold] = {}
        self.desk: GoldDesk | str = f"the corpus has no database {db_id!r}"
        if row is not None:
            self.desk = open_desk(
                corpus.root / row.sqlite_file,
                corpus=corpus.name,
                db_id=db_id,
                limits=part.settings.limits,
            )
        self.file = f"{part.sqlite_root}/{row.sqlite_file}" if row else ""

    def take(self, fields: dict[str, Any]) -> dict[str, Any] | Reject:
        refusal = refusal_before_gold(fields, self.settings)
        if not refusal and isinstance(self.desk, str):
            refusal = ("database_unreadable" if self.row else "unknown_db_id", self.desk)
        if refusal:
            return self._reject(fields, *refusal)
        assert isinstance(self.desk, GoldDesk) and self.row is not None
        gold = self.desk.gold(fields["gold_sql"])
        if gold.stored is None:
            return self._reject(fields, gold.reason, gold.detail)
        seed = derive_seed(self.settings.seed, fields["row_id"], "sample")
        sample = self._sample(gold, seed)
        if gold.whole is not None and (
            difference := self.desk.views.difference(sample.tables, gold.sql, gold.whole)
        ):
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

    def close(self) -> list[Any]:
        """Closes the database; returns the gold results that rows refer to, by id."""
        if isinstance(self.desk, GoldDesk):
            self.desk.close()
        stored = [gold.stored for gold in self.used.values() if gold.stored is not None]
        return sorted(stored, key=lambda gold: gold.gold_id)

    def _sample(self, gold: Gold, seed: int) -> SampledSchema:
        assert isinstance(self.desk, GoldDesk)
        settings = self.settings
        return sample_schema(
            self.desk.schema,
            gold.tables.tables,
            target=draw_target(seed, smallest=settings.smallest, largest=settings.largest),
            seed=seed,
            distractors=settings.distractors,
            extra=settings.extra,
            full=settings.full,
            graph=self.desk.graph,
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


def _rows(questions: pl.DataFrame, taken: dict[str, list[Any]], part: Part) -> pa.Table:
    """The part's rows in the manifest's columns, sorted by row id."""
    shared = questions[taken.get("at", [])].with_columns(
        pl.col("signal_mutants").fill_null(0),
        pl.col("findings").fill_null([]),
        corpus=pl.lit(part.corpus),
        corpus_revision=pl.lit(part.revision),
        variants=pl.lit([], dtype=pl.List(pl.String)),
    )
    order = shared.get_column("row_id").arg_sort()
    columns = []
    for field in ROW_SCHEMA:
        if field.name in shared.columns:
            columns.append(shared.get_column(field.name).to_arrow().cast(field.type))
        else:
            columns.append(pa.array(taken.get(field.name, []), type=field.type))
    table = pa.Table.from_arrays(columns, schema=ROW_SCHEMA)
    return table.take(order.to_arrow()).combine_chunks()


def _write(path: Path, table: pa.Table) -> None:
    with open_writer(path, table.schema) as writer:
        writer.write_table(table)
