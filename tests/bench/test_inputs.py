"""The benches measure the same work on both sides."""

from importlib import import_module
from pathlib import Path

from envbuild.sql.connect import open_read_only
from envbuild.sql.gold_tables import GoldTableReader
from tests.bench import STAGES
from tests.bench.inputs import build_shape, gold_queries
from tests.bench.stages import tables_by_scope


def test_both_ways_find_the_same_tables_in_the_benches_queries(tmp_path: Path) -> None:
    path = build_shape(tmp_path / "shape.sqlite", tables=20)
    with GoldTableReader(open_read_only(path)) as reader:
        for sql in gold_queries(60, tables=20):
            assert set(reader.read(sql).tables) == tables_by_scope(sql)


def test_every_stage_is_there() -> None:
    for place in STAGES.values():
        module, _, function = place.partition(":")
        assert callable(getattr(import_module(f"tests.bench.{module}"), function))
