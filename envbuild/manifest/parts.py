"""The work of a manifest cut into parts: runs of databases in the order of their row ids.

A part is what one worker does at a time and what a resumed run finds finished. The cut depends on
the corpora alone, never on workers or machines. Each part's questions are copied out of
questions.parquet in one streamed pass, since a published corpus mixes its databases.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import msgspec
import polars as pl
import pyarrow as pa

from envbuild.corpora.folder import CorpusFolder
from envbuild.io.parquet import GROUP_ROWS, arrow_schema, open_parquet
from envbuild.manifest.layout import escape_part
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.corpus import Question
from envbuild.records.variant import VariantBatch

PART_QUESTIONS = 4096
"""A part has about as many questions, and never less than one database's."""
MOST_PARTS = 512
"""A corpus's parts; each keeps a file open while questions are handed out."""

_EXTRA: dict[str, Any] = {
    "signal": pl.Float32,
    "signal_mutants": pl.Int16,
    "findings": pl.List(pl.String),
}
QUESTION_SCHEMA = arrow_schema(Question)


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
        size = max(PART_QUESTIONS, sum(counts.values()) // MOST_PARTS)
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


def hand_out_questions(corpus: CorpusFolder, parts: list[Part], limit: int | None) -> None:
    """Writes each part's questions, with their signal and findings, to its own file."""
    if not parts:
        return
    part_of = pl.DataFrame(
        [(db_id, part.number) for part in parts for db_id in part.db_ids],
        schema={"db_id": pl.String, "part": pl.Int64},
        orient="row",
    )
    known = _known_of_questions(corpus)
    with ExitStack() as stack:
        writers: dict[int, Any] = {}
        for questions in _batches(corpus, limit):
            joined = questions.join(part_of, on="db_id", how="inner", maintain_order="left")
            joined = joined.join(known, on="question_id", how="left", maintain_order="left")
            for (number,), rows in joined.partition_by("part", as_dict=True).items():
                table = rows.drop("part").to_arrow()
                if number not in writers:
                    path = next(p for p in parts if p.number == number).file("questions")
                    sink = stack.enter_context(pa.OSFile(str(path), "wb"))
                    writers[int(number)] = stack.enter_context(pa.ipc.new_file(sink, table.schema))
                writers[int(number)].write_table(table)


def read_questions(part: Part) -> pl.DataFrame:
    """The part's questions as `hand_out_questions` left them."""
    with pa.OSFile(str(part.file("questions"))) as source:
        return pl.DataFrame(pa.ipc.open_file(source).read_all())


def _known_of_questions(corpus: CorpusFolder) -> pl.DataFrame:
    """question_id, signal, signal_mutants, findings: what earlier stages left in the corpus."""
    known = pl.DataFrame(schema={"question_id": pl.String, **_EXTRA})
    signal = corpus.root / "signal.parquet"
    findings = corpus.root / "findings.parquet"
    if signal.is_file():
        known = pl.read_parquet(signal).select(
            "question_id",
            pl.col("signal_high").cast(pl.Float32).alias("signal"),
            pl.col("mutants").cast(pl.Int16).alias("signal_mutants"),
        )
    if findings.is_file():
        codes = (
            pl.read_parquet(findings, columns=["question_id", "code"])
            .filter(pl.col("question_id") != "")
            .group_by("question_id")
            .agg(pl.col("code").unique().sort().alias("findings"))
        )
        known = known.drop("findings", strict=False).join(
            codes, on="question_id", how="full", coalesce=True
        )
    missing = [pl.lit(None, kind).alias(n) for n, kind in _EXTRA.items() if n not in known.columns]
    return (
        known.with_columns(missing)
        .unique("question_id", keep="first")
        .select("question_id", *_EXTRA)
    )


def _batches(corpus: CorpusFolder, limit: int | None) -> Iterator[pl.DataFrame]:
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
