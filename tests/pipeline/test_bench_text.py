"""The benches of SQL text and manifests run, and measure the same work on both sides."""

from pathlib import Path

import pytest

from envbuild.pipeline.bench import measure_stage
from envbuild.pipeline.bench_inputs import build_shape, gold_queries
from envbuild.sql.connect import open_read_only
from envbuild.sql.gold_tables import GoldTableReader
from envbuild.sql.sqlglot_ways import tables_by_scope


def test_both_ways_find_the_same_tables_in_the_benches_queries(tmp_path: Path) -> None:
    path = build_shape(tmp_path / "shape.sqlite", tables=20)
    with GoldTableReader(open_read_only(path)) as reader:
        for sql in gold_queries(60, tables=20):
            assert set(reader.read(sql).tables) == tables_by_scope(sql)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["gold_tables", "manifest", "mask"])
def test_a_stage_is_measured(stage: str) -> None:
    for line in measure_stage(stage, rounds=1):
        assert line["what"]
        assert float(line["ratio"]) > 1
