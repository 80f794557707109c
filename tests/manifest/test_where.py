"""`--where`: one expression over the manifest's columns selects rows, and reads nothing else."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.errors import ConfigurationError, UsageError
from envbuild.manifest.read import open_manifest, select_rows
from tests.small_manifest import write_small_manifest

FIRST = "music/music/1"
runner = CliRunner()


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_manifest(tmp_path_factory.mktemp("music"))


def test_an_expression_selects_rows_and_null_selects_none(manifest: Path) -> None:
    opened = open_manifest(manifest)
    ids = list(opened.row_ids)
    assert select_rows(opened, "") == select_rows(opened, "len(tables) > 0") == ids
    assert select_rows(opened, f"row_id = '{FIRST}' -- the first") == [FIRST]
    assert select_rows(opened, "coalesce(signal, 1) >= 0.5") == ids, "nothing was measured"
    with pytest.raises(UsageError, match=f"selects none of the {len(ids)} rows"):
        select_rows(opened, "signal >= 0.5")


@pytest.mark.parametrize(
    "where",
    [
        "true; SELECT 1",
        "true, true",
        " ",
        "nothing > 1",
        "row_id IN (SELECT content FROM read_text('/etc/hostname'))",
        "row_id IN (SELECT 'x' FROM glob('/*'))",
        "row_id IN (SELECT row_id FROM opened)",
        "count(*) > 0",
        "row_id",
    ],
)
def test_anything_else_is_refused_with_the_columns(manifest: Path, where: str) -> None:
    opened = open_manifest(manifest)
    with pytest.raises(UsageError, match="one DuckDB expression over the columns row_id, "):
        select_rows(opened, where)


def test_an_export_holds_and_records_what_was_selected(manifest: Path, tmp_path: Path) -> None:
    out, where = tmp_path / "out", ["--where", f"row_id = '{FIRST}'", "--json"]
    export = ["export", str(manifest), "--to", "trl", "--out", str(out)]
    document = json.loads(runner.invoke(app, [*export, *where]).stdout)
    assert document["files"] == {"train.parquet": 1}
    assert document["where"] == where[1]
    assert document["left_out"]["not_selected"] == len(open_manifest(manifest).row_ids) - 1
    with pytest.raises(ConfigurationError, match="made with another --where"):
        runner.invoke(app, export, catch_exceptions=False)


def test_a_rollout_asks_and_an_evaluation_needs_a_manifest(manifest: Path, tmp_path: Path) -> None:
    where = ["--where", "bucket = 'none'"]
    server = ["--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--out", str(tmp_path / "e")]
    with pytest.raises(UsageError, match="selects none"):
        runner.invoke(app, ["rollout", str(manifest), *server, *where], catch_exceptions=False)
    evaluate = ["evaluate", str(tmp_path), "--predictions", "p.json", *where]
    with pytest.raises(UsageError, match="--predictions have none"):
        runner.invoke(app, evaluate, catch_exceptions=False)
