"""A part's questions with what their gold SQL's text alone decides: mask, bucket, row id."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from envbuild.buckets.cut import bucket_column, names_of
from envbuild.corpora.folder import CorpusFolder
from envbuild.manifest.hand_out import read_questions
from envbuild.manifest.layout import row_id_of
from envbuild.manifest.parts import Part
from envbuild.sql.text.mask import mask_column


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
