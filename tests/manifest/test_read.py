"""A manifest folder read back: rows by id and position, gold results typed."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from envbuild.errors import CorpusFolderError, UnknownNameError
from envbuild.io.parquet import write_records
from envbuild.manifest.read import (
    FORMAT,
    GOLD_SCHEMA,
    ROW_SCHEMA,
    escape_part,
    open_manifest,
    row_id_of,
)
from envbuild.records.manifest import GoldResult, ManifestRow
from envbuild.sql.verdicts import decode_rows, encode_rows

CELLS = ((18446744073709551615, b"\xff", "ff", None, 1.0, float("inf")),)


def row_of(number: int) -> ManifestRow:
    return ManifestRow(
        row_id=f"c/d/{number:03}", corpus="c", question_id=str(number), db_id="d",
        question="how many?", gold_sql="SELECT 1", masked_length=8, bucket="short",
        gold_tables=("t",), literals=("1",), tables=("t", "u"), distractors=("u",), target_size=2,
        seed=2**62, sqlite_file="../corpus/c/databases/d/d.sqlite", database_sha256="0",
        gold_id="c/d/g", gold_digest="0", gold_rows=1, gold_columns=6, gold_ordered=False,
        signal=None if number % 2 else 0.5, findings=("empty_gold",) if number == 3 else (),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_records(tmp_path / "manifest.parquet", [row_of(n) for n in range(100)], ROW_SCHEMA)
    golds = [
        GoldResult(
            gold_id="c/d/g", variant=variant, outcome="ok", columns=("a",) * 6, ordered=False,
            digest="0", result=encode_rows(CELLS),
        )
        for variant in ("", "v1")
    ]  # fmt: skip
    write_records(tmp_path / "gold.parquet", golds, GOLD_SCHEMA)
    (tmp_path / "manifest.json").write_bytes(msgspec.json.encode({"format": FORMAT}))
    return tmp_path


def test_rows_by_position_and_id(folder: Path) -> None:
    manifest = open_manifest(folder)
    assert len(manifest.rows) == 100
    assert list(manifest.rows) == [row_of(n) for n in range(100)]
    assert manifest.rows[-1] == manifest.row("c/d/099") == row_of(99)
    assert manifest.rows[2:4] == [row_of(2), row_of(3)]
    assert manifest.columns("bucket").column(0).to_pylist() == ["short"] * 100
    assert open_manifest(folder / "manifest.parquet").row("c/d/003").findings == ("empty_gold",)
    with pytest.raises(
        UnknownNameError,
        match=r"no row 'nope' among 100, such as c/d/000 or c/d/050; all are in column",
    ):
        manifest.row("nope")
    with pytest.raises(UnknownNameError, match=r"among 100; near: .*c/d/049, [^;]*$"):
        manifest.row("c/d/0499")


def test_threads_and_pickles_read_the_same(folder: Path) -> None:
    manifest = open_manifest(folder)
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(manifest.row, [f"c/d/{n % 100:03}" for n in range(400)]))
    assert rows == [row_of(n % 100) for n in range(400)]
    again = pickle.loads(pickle.dumps(manifest))
    assert again.row("c/d/007") == row_of(7)
    assert pickle.loads(pickle.dumps(manifest.rows))[7] == row_of(7)


def test_gold_values_keep_their_types(folder: Path) -> None:
    manifest = open_manifest(folder)
    assert decode_rows(manifest.gold("c/d/g").result) == CELLS
    assert manifest.gold("c/d/g", "v1").variant == "v1"
    with pytest.raises(UnknownNameError, match=r"gold 'c/d/g' on variant 'v2'; known: v1$"):
        manifest.gold("c/d/g", "v2")
    with pytest.raises(UnknownNameError, match=r"no gold result 'c/d/h'; known: c/d/g$"):
        manifest.gold("c/d/h", "v1")


def test_column_types_are_the_contracts() -> None:
    types = {field.name: str(field.type).replace("element", "item") for field in ROW_SCHEMA}
    small = {"masked_length": "int32", "target_size": "int16", "gold_rows": "int32",
             "gold_columns": "int32", "signal": "float", "signal_mutants": "int16",
             "seed": "int64", "gold_ordered": "bool"}  # fmt: skip
    lists = ("tables", "distractors", "gold_tables", "literals", "findings", "variants")
    assert types == {
        name: small.get(name, "list<item: string>" if name in lists else "string") for name in types
    }


def test_an_unfinished_or_foreign_folder_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(CorpusFolderError, match="no such folder"):
        open_manifest(tmp_path / "nowhere")
    with pytest.raises(CorpusFolderError, match="holds no manifest"):
        open_manifest(tmp_path)
    (tmp_path / ".parts").mkdir()
    with pytest.raises(CorpusFolderError, match="unfinished"):
        open_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "other/9"}')
    with pytest.raises(CorpusFolderError, match="other/9"):
        open_manifest(tmp_path)


def test_row_ids_never_collide() -> None:
    assert row_id_of("c", "../x", "1\n", "") == "c/..%2Fx/1%0A"
    assert row_id_of("c", "a", "b/c") != row_id_of("c", "a/b", "c")
    assert escape_part("größe%") == "größe%25"
