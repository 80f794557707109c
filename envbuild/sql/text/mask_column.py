"""A whole column of gold SQL masked at once: regular expressions in polars, odd texts scanned."""

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from envbuild.sql.text.mask import MaskMode, mask_sql
from envbuild.sql.text.plain_text import HOLE, NAME, STRING, TYPE_ARGUMENT, UNJUDGED

# Rust's regex has no lookaround, but its \b can be told to be ASCII only
_NUMBER = r"(?-u:\b)[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*"
_LETTERS = r"(?-u:\b)[0-9][0-9_.]*[A-Za-z_]|\.[0-9][0-9_.]*[A-Za-z_]"
_ODD = f"{UNJUDGED}|--|{_LETTERS}|{TYPE_ARGUMENT}"
_GAP = r"[ \t\n\f\r]{2,}|[\t\n\f\r]"


def mask_column(
    texts: Sequence[str] | pl.Series,
    *,
    identifiers: Callable[[int], frozenset[str] | None] | None = None,
    mode: str = MaskMode.LITERALS,
    literals: bool = False,
) -> pl.DataFrame:
    """One row a text, in order: `masked_sql`, `masked_length` and, if asked for, `literals`.

    Equal to `mask_sql` of each. `identifiers(row)` gives the names of that row's database; it is
    only asked for texts that need the scanner.
    """
    mode = MaskMode(mode)
    column = texts if isinstance(texts, pl.Series) else pl.Series(texts, dtype=pl.String)
    column = column.alias("sql")
    if mode is MaskMode.LITERALS:
        frame = column.to_frame().select(*_plain_columns(literals=literals))
        odd = frame.get_column("odd").arg_true().to_list()
        frame = frame.drop("odd")
    else:
        frame, odd = _no_columns(len(column), literals=literals), list(range(len(column)))
    if odd:
        scanned = [
            mask_sql(sql, identifiers=identifiers(row) if identifiers else None, mode=mode)
            for row, sql in zip(odd, column.gather(odd).to_list(), strict=True)
        ]
        frame = _put(frame, odd, "masked_sql", [masked.text for masked in scanned])
        if literals:
            frame = _put(frame, odd, "literals", [list(masked.literals) for masked in scanned])
    length = pl.col("masked_sql").str.len_chars().cast(pl.Int32).alias("masked_length")
    return frame.select("masked_sql", length, *(["literals"] if literals else []))


def _plain_columns(*, literals: bool) -> list[pl.Expr]:
    sql = pl.col("sql")
    bare = sql.str.replace_all(STRING, HOLE)
    masked = (
        bare.str.replace_all(_NUMBER, "?")
        .str.replace_all(HOLE, "?", literal=True)
        .str.replace_all(_GAP, " ")
        .str.strip_chars_start(" ")
        .str.strip_chars_end(" ;")
    )
    odd = bare.str.contains(_ODD) | sql.str.contains(f"[{HOLE}{NAME}]")
    columns = [odd.alias("odd"), masked.alias("masked_sql")]
    if literals:
        columns.append(sql.str.extract_all(f"{STRING}|{_NUMBER}").alias("literals"))
    return columns


def _no_columns(rows: int, *, literals: bool) -> pl.DataFrame:
    empty = {"masked_sql": pl.Series([""], dtype=pl.String).new_from_index(0, rows)}
    if literals:
        empty["literals"] = pl.Series([[]], dtype=pl.List(pl.String)).new_from_index(0, rows)
    return pl.DataFrame(empty)


def _put(frame: pl.DataFrame, rows: list[int], name: str, values: list[Any]) -> pl.DataFrame:
    """The frame with `values` at `rows` of one column."""
    if len(rows) == len(frame):
        return frame.with_columns(pl.Series(name, values, dtype=frame.schema[name]))
    positions = pl.Series("at", rows, dtype=pl.UInt32)
    patch = pl.DataFrame({"at": positions, "new": pl.Series(values, dtype=frame.schema[name])})
    return (
        frame.with_row_index("at")
        .join(patch, on="at", how="left", maintain_order="left")
        .with_columns(pl.coalesce("new", name).alias(name))
        .drop("at", "new")
    )
