"""One part of a manifest: its databases' questions become rows, golds and rejects."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from envbuild.corpora.folder import CorpusFolder
from envbuild.io.files import write_bytes
from envbuild.io.parquet import columns_of
from envbuild.manifest.arrow_files import open_writer
from envbuild.manifest.layout import GOLD_SCHEMA, REJECT_SCHEMA, ROW_SCHEMA, VARIANT_SCHEMA
from envbuild.manifest.masked_questions import by_database, read_masked
from envbuild.manifest.parts import Part
from envbuild.manifest.taker import QuestionTaker
from envbuild.records.corpus import Reject


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
    variants: dict[str, int] = {}
    """`made`, and reason -> golds that a variant cannot judge."""


def make_part(part: Part) -> PartCounts:
    """Writes the part's rows, golds and rejects, and last the counts that mark it as done."""
    corpus = CorpusFolder(Path(part.corpus_root))
    questions = read_masked(part, corpus)
    databases = {row.db_id: row for row in corpus.databases()}
    taken: dict[str, list[Any]] = defaultdict(list)
    rejects: list[Reject] = []
    golds = 0
    judged_by: dict[str, tuple[str, ...]] = {}
    variants: Counter[str] = Counter()
    with (
        open_writer(part.file("golds"), GOLD_SCHEMA) as gold_writer,
        open_writer(part.file("variants"), VARIANT_SCHEMA) as variant_writer,
    ):
        for db_id, rows in by_database(questions, part):
            with QuestionTaker(part, corpus, db_id, databases.get(db_id)) as taker:
                for fields in rows:
                    cells = taker.take(fields)
                    if isinstance(cells, Reject):
                        rejects.append(cells)
                        continue
                    for name, value in cells.items():
                        taken[name].append(value)
                used, batch = taker.used_golds(), taker.variants()
            golds += len(used)
            judged_by |= {gold.gold_id: batch.ids_of(gold.gold_id) for gold in used}
            variants.update(skipped.reason for skipped in batch.skipped)
            variants["made"] += len(batch.variants)
            if used:
                every = sorted((*used, *batch.golds), key=lambda gold: (gold.gold_id, gold.variant))
                gold_writer.write_batch(columns_of(every, GOLD_SCHEMA))
            if batch.variants:
                variant_writer.write_batch(columns_of(batch.variants, VARIANT_SCHEMA))
    taken["variants"] = [judged_by[gold_id] for gold_id in taken["gold_id"]]
    table = _rows(questions, taken, part)
    _write(part.file("rows"), table)
    _write(part.file("rejects"), pa.Table.from_batches([columns_of(rejects, REJECT_SCHEMA)]))
    counts = PartCounts(
        number=part.number,
        offered=len(questions),
        rows=table.num_rows,
        golds=golds,
        rejects=dict(sorted(Counter(reject.reason for reject in rejects).items())),
        buckets=dict(sorted(Counter(table.column("bucket").to_pylist()).items())),
        sizes=dict(sorted(Counter(map(len, taken["tables"])).items())),
        variants={name: number for name, number in sorted(variants.items()) if number},
    )
    write_bytes(part.file("done"), msgspec.json.encode(counts))
    return counts


def _rows(questions: pl.DataFrame, taken: dict[str, list[Any]], part: Part) -> pa.Table:
    """The part's rows in the manifest's columns, sorted by row id."""
    shared = questions[taken.get("at", [])].with_columns(
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
            columns.append(pa.array(taken.get(field.name, []), type=field.type))
    table = pa.Table.from_arrays(columns, schema=ROW_SCHEMA)
    return table.take(order.to_arrow()).combine_chunks()


def _write(path: Path, table: pa.Table) -> None:
    with open_writer(path, table.schema) as writer:
        writer.write_table(table)
