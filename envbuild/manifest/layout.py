"""What a manifest folder holds: file names, column types, row ids (CONTRACT 6)."""

import re

import pyarrow as pa

from envbuild.io.parquet import arrow_schema
from envbuild.records.corpus import Reject
from envbuild.records.manifest import GoldResult, ManifestRow, VariantRow

FORMAT = "envbuild.manifest/2"
READABLE = (FORMAT, "envbuild.manifest/1")
"""In format 1 gold results held U+FFFD for text that is not valid; since 2 they keep its bytes."""
ROWS_FILE = "manifest.parquet"
GOLD_FILE = "gold.parquet"
REJECTS_FILE = "rejects.parquet"
VARIANTS_FILE = "variants.parquet"
"""Hidden variants as added rows; absent where a manifest has none."""
MANIFEST_FILE = "manifest.json"
"""Written last: its presence means that the folder is complete."""
PARTS_FOLDER = ".parts"
"""What a build that has not ended keeps in the folder."""
LOCK_FILE = "lock"
"""In it: held by the processes that build."""

ROW_SCHEMA: pa.Schema = arrow_schema(
    ManifestRow,
    masked_length=pa.int32(),
    signal=pa.float32(),
    signal_mutants=pa.int16(),
    target_size=pa.int16(),
    gold_rows=pa.int32(),
    gold_columns=pa.int32(),
)
GOLD_SCHEMA: pa.Schema = arrow_schema(GoldResult)
REJECT_SCHEMA: pa.Schema = arrow_schema(Reject)
VARIANT_SCHEMA: pa.Schema = arrow_schema(VariantRow)

_UNSAFE = re.compile(r"[%/\x00-\x1f\x7f\ud800-\udfff]")


def row_id_of(corpus: str, db_id: str, question_id: str, style: str = "") -> str:
    """`corpus/db_id/question_id`, and `/style` where a question has several phrasings.

    Slashes, percent signs and control characters inside a part are written `%2F`, so that no two
    rows share an id and a database's rows are neighbours when sorted.
    """
    parts = [corpus, db_id, question_id] + ([style] if style else [])
    return "/".join(escape_part(part) for part in parts)


def escape_part(text: str) -> str:
    """`text` without slash, percent sign, control character or lone surrogate."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)
