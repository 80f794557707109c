"""A corpus's questions in parts: runs of databases in the order of their row ids.

A part is what one worker does at a time and what a resumed run finds finished. The cut depends on
the corpora alone, never on workers or machines. The questions reach their parts in one streamed
pass over each file, since a published corpus mixes its databases.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
import polars as pl
import pyarrow as pa

from envbuild.corpora.folder import CorpusFolder
from envbuild.io.files import atomic_path
from envbuild.io.parquet import GROUP_ROWS, arrow_schema, open_parquet
from envbuild.manifest.buckets import bucket_column, names_of
from envbuild.manifest.layout import escape_part, row_id_of
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.corpus import Question
from envbuild.records.manifest import VariantBatch
from envbuild.sql.mask import mask_column


@contextmanager
def open_writer(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """A writer of record batches; the file is there, whole, once the block ends well."""
    with (
        atomic_path(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        yield writer


def iter_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The record batches of a file that `open_writer` wrote."""
    with pa.OSFile(str(path)) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


PART_QUESTIONS = 4096
"""A part has about as many questions, and never less than one database's."""
MAX_PARTS = 512
"""A corpus's parts; each keeps a file open while questions are handed out."""


class VariantMaker(Protocol):
    """Makes one database's hidden variants for its golds; a function that can be pickled."""

    def __call__(
        self,
        path: Path,
        golds: Sequence[tuple[str, str]],
        *,
        corpus: str,
        db_id: str,
        count: int,
        seed: int,
    ) -> VariantBatch:
        """`count` variants for each group of (gold_id, SQL), and the golds' results on them."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One run of databases of one corpus."""

    number: int
    """Position among all parts; rows of a lower part have lower row ids."""
    corpus_root: str
    corpus: str
    revision: str
    db_ids: tuple[str, ...]
    """In the order of their row ids."""
    folder: str
    """Where the part's files lie while the manifest is built."""
    sqlite_root: str
    """The corpus folder as the manifest names it: relative to the manifest folder."""
    settings: ManifestSettings
    maker: Any = None
    """The VariantMaker, where the settings ask for variants."""

    def file(self, ending: str) -> Path:
        """A file of this part."""
        return Path(self.folder, f"{self.number:06}.{ending}")


def plan_parts(
    corpora: list[CorpusFolder],
    settings: ManifestSettings,
    *,
    folder: Path,
    out: Path,
    maker: VariantMaker | None = None,
) -> list[Part]:
    """Every part, in the order of row ids."""
    parts: list[Part] = []
    for corpus in sorted(corpora, key=lambda corpus: _order(corpus.name)):
        counts = _count_questions(corpus, settings.limit)
        size = max(PART_QUESTIONS, sum(counts.values()) // MAX_PARTS)
        for db_ids in _runs(sorted(counts, key=_order), counts, size):
            parts.append(
                Part(
                    number=len(parts),
                    corpus_root=str(corpus.root.absolute()),
                    corpus=corpus.name,
                    revision=str(corpus.index.get("revision") or ""),
                    db_ids=db_ids,
                    folder=str(folder),
                    sqlite_root=_relative(corpus.root, out),
                    settings=settings,
                    maker=maker if settings.variants else None,
                )
            )
    return parts


def _count_questions(corpus: CorpusFolder, limit: int | None) -> Counter[str]:
    counts: Counter[str] = Counter()
    if not corpus.catalogued:
        return counts
    left = limit
    file = open_parquet(corpus.root / "questions.parquet")
    for batch in file.iter_batches(columns=["db_id"], batch_size=GROUP_ROWS):
        db_ids = batch.column(0).to_pylist()[:left]
        counts.update(db_id or "" for db_id in db_ids)
        if left is not None:
            left -= len(db_ids)
    return counts


def _runs(db_ids: list[str], counts: Counter[str], size: int) -> Iterator[tuple[str, ...]]:
    run: list[str] = []
    questions = 0
    for db_id in db_ids:
        run.append(db_id)
        questions += counts[db_id]
        if questions >= size:
            yield tuple(run)
            run, questions = [], 0
    if run:
        yield tuple(run)


def _order(name: str) -> str:
    """Sorts names as row ids sort: `a/…` after `a!/…`."""
    return escape_part(name) + "/"


def _relative(root: Path, out: Path) -> str:
    """The corpus folder from the manifest folder, so that both can move together."""
    return Path(os.path.relpath(root.absolute(), out.absolute())).as_posix()


QUESTION_SCHEMA = arrow_schema(Question)
_ASKED = ("db_id", "question_id")
_KNOWN = {
    "signal": (*_ASKED, "signal_high", "mutants"),
    "findings": (*_ASKED, "code"),
}
"""Files of the corpus, by their stem, and the columns that parts take from them; never the rest:
the queries quoted in signal.parquet are gigabytes."""
FILES = ("questions", *_KNOWN)
"""Endings of the files a part is handed."""


def partition_questions(corpus: CorpusFolder, parts: list[Part], limit: int | None) -> None:
    """Writes each part's questions, with their signal and findings, to its own files."""
    if not parts:
        return
    _hand_out(_questions(corpus, limit), parts, "questions")
    for name, columns in _KNOWN.items():
        if (file := corpus.root / f"{name}.parquet").is_file():
            _hand_out(_frames(file, columns), parts, name)


def read_questions(part: Part) -> pl.DataFrame:
    """The part's questions, in the corpus's order, with signal, signal_mutants and findings."""
    questions = _read(part, "questions")
    signal = _read(part, "signal")
    if signal is None:
        signal = pl.DataFrame(schema=dict.fromkeys(_ASKED, pl.String))
        signal = signal.with_columns(signal_high=pl.lit(0.0), mutants=pl.lit(0))
    codes = _read(part, "findings")
    if codes is None:
        codes = pl.DataFrame(schema=dict.fromkeys((*_ASKED, "code"), pl.String))
    assert questions is not None
    return questions.join(
        signal.unique(_ASKED, keep="first").select(
            *_ASKED,
            pl.col("signal_high").cast(pl.Float32).alias("signal"),
            pl.col("mutants").cast(pl.Int16).alias("signal_mutants"),
        ),
        on=_ASKED,
        how="left",
        maintain_order="left",
    ).join(
        codes.group_by(_ASKED).agg(pl.col("code").unique().sort().alias("findings")),
        on=_ASKED,
        how="left",
        maintain_order="left",
    )


def remove_questions(part: Part) -> None:
    """Removes what the part was handed, once it is done."""
    for name in FILES:
        part.file(name).unlink(missing_ok=True)


def _hand_out(frames: Iterable[pl.DataFrame], parts: Sequence[Part], ending: str) -> None:
    """Appends each row to the file of the part that has its database."""
    by_number = {part.number: part for part in parts}
    part_of = pl.DataFrame(
        [(db_id, part.number) for part in parts for db_id in part.db_ids],
        schema={"db_id": pl.String, "part": pl.Int64},
        orient="row",
    )
    with ExitStack() as stack:
        writers: dict[Any, Any] = {}
        for frame in frames:
            joined = frame.join(part_of, on="db_id", how="inner", maintain_order="left")
            for (number,), rows in joined.partition_by("part", as_dict=True).items():
                table = rows.drop("part").to_arrow()
                if number not in writers:
                    path = by_number[number].file(ending)
                    sink = stack.enter_context(pa.OSFile(str(path), "wb"))
                    writers[number] = stack.enter_context(pa.ipc.new_file(sink, table.schema))
                writers[number].write_table(table)


def _read(part: Part, ending: str) -> pl.DataFrame | None:
    file = part.file(ending)
    if not file.is_file():
        return None
    with pa.OSFile(str(file)) as source:
        return pl.DataFrame(pa.ipc.open_file(source).read_all())


def _questions(corpus: CorpusFolder, limit: int | None) -> Iterator[pl.DataFrame]:
    file = open_parquet(corpus.root / "questions.parquet")
    left = limit
    for batch in file.iter_batches(batch_size=GROUP_ROWS):
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        # a file written by hand may lack what a record gives a default
        table = pa.Table.from_batches([batch])
        for field in QUESTION_SCHEMA:
            if field.name not in table.column_names:
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        frame: Any = pl.from_arrow(table.select(QUESTION_SCHEMA.names).cast(QUESTION_SCHEMA))
        yield frame.with_columns(
            pl.col(name).fill_null("")
            for name, kind in frame.schema.items()
            if kind == pl.String and name != "stored_result"
        )
        if left == 0:
            return


def _frames(path: Path, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    for batch in open_parquet(path).iter_batches(columns=columns, batch_size=GROUP_ROWS):
        frame: Any = pl.from_arrow(batch)
        yield frame.filter(pl.col("question_id") != "")


def read_masked(part: Part, corpus: CorpusFolder) -> pl.DataFrame:
    """The part's questions with masked_length, bucket, literals and row_id.

    `at` is a question's position, `repeated` whether its row id came before.
    """
    questions = read_questions(part)
    edges, mode = part.settings.cutting(corpus)
    masked = mask_column(
        questions.get_column("gold_sql"),
        identifiers=names_of(corpus, questions.get_column("db_id").to_list()),
        mode=mode,
    )
    phrasings = pl.len().over("db_id", "question_id") > 1
    named = questions.select(
        "db_id", "question_id", pl.when(phrasings).then("style").otherwise(pl.lit(""))
    )
    ids = [row_id_of(corpus.name, *names) for names in named.iter_rows()]
    return (
        pl.concat([questions, masked.drop("masked_sql")], how="horizontal")
        .with_columns(
            bucket_column(masked.get_column("masked_length"), edges),
            pl.Series("row_id", ids, dtype=pl.String),
        )
        .with_columns(pl.col("row_id").is_first_distinct().not_().alias("repeated"))
        .with_row_index("at")
    )


def by_database(
    questions: pl.DataFrame, part: Part
) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    """(db_id, its questions as dictionaries), in the part's order."""
    grouped = questions.partition_by("db_id", as_dict=True)
    for db_id in part.db_ids:
        yield db_id, grouped.pop((db_id,)).iter_rows(named=True)
