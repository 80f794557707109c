"""The manifest as a data set for a hub: questions in one configuration, answers in another.

What an agent may be shown and what decides its reward never lie in the same table.
"""

from collections.abc import Iterator

import pyarrow as pa

from envbuild.errors import CorpusFolderError
from envbuild.manifest.layout import GOLD_SCHEMA, ROW_SCHEMA

ANSWER_COLUMNS = ("gold_sql", "literals", "gold_tables", "distractors", "gold_digest")
"""Columns of the manifest that say something about the answer."""
QUESTION_SCHEMA = pa.schema([field for field in ROW_SCHEMA if field.name not in ANSWER_COLUMNS])
ANSWER_SCHEMA = pa.schema(
    [ROW_SCHEMA.field("row_id"), *(ROW_SCHEMA.field(name) for name in ANSWER_COLUMNS)]
)
RESULT_SCHEMA = GOLD_SCHEMA
CONFIGURATIONS = ("questions", "answers", "results")
README = "README.md"


def split_columns(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """A manifest's rows as (questions, answers), joined by `row_id`."""
    missing = [name for name in ROW_SCHEMA.names if name not in table.column_names]
    if missing:
        raise CorpusFolderError(f"the manifest lacks the columns {', '.join(missing)}")
    return table.select(QUESTION_SCHEMA.names), table.select(ANSWER_SCHEMA.names)


def front_matter(counts: dict[str, int]) -> Iterator[str]:
    """Lines of a README that tell `datasets` which file is which configuration and split."""
    yield "---"
    yield "configs:"
    for config in CONFIGURATIONS:
        yield f"- config_name: {config}"
        if config == "questions":
            yield "  default: true"
        yield "  data_files:"
        for split in ("train",) if config == "results" else counts:
            yield f"  - split: {split}"
            yield f"    path: {config}/{split}.parquet"
    yield "---"
    yield ""
    yield "# Question pool"
    yield ""
    yield "| split | questions |"
    yield "|---|---|"
    for split, count in counts.items():
        yield f"| {split} | {count:,} |"
    yield ""
    yield "`answers` joins `questions` by `row_id`; `results` holds gold results by `gold_id`."
