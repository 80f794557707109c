"""A corpus's questions handed out to the parts, with what earlier stages found out about them.

One streamed pass over each file of the corpus, since a published corpus mixes its databases; what
belongs together is joined by the part, so that no table of all questions is ever held.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from envbuild.corpora.folder import CorpusFolder
from envbuild.io.parquet import GROUP_ROWS, arrow_schema, open_parquet
from envbuild.manifest.parts import Part
from envbuild.records.corpus import Question

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


def hand_out_questions(corpus: CorpusFolder, parts: list[Part], limit: int | None) -> None:
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
