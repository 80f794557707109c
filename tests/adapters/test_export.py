import json
from pathlib import Path
from typing import Any

import datasets
import msgspec
import polars as pl
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.io.files import sha256_file
from envbuild.manifest.read import open_manifest
from envbuild.train.export import LAYOUTS, Exported, export_manifest
from envbuild.train.pool import PoolChoice, build_pool, write_schedule
from envbuild.train.schedule import Draws, load_schedule, parse_schedule
from envbuild.train.trainer_env import EpisodeSpec, TrainerEnv
from tests.small_manifest import manifest_row, write_database, write_manifest

SMALL = parse_schedule(
    b'name = "small"\nbuckets = ["short", "long"]\npool = [0.5, 0.5]\nsteps = 6\nquestions = 3\n'
    b"gate_steps = 4\n[[phases]]\nsteps = 6\nstart = [1.0, 0.0]\nend = [0.0, 1.0]\n",
    "small",
)
SECRET = "SELECT name FROM item WHERE id = 2"
PARQUET = [name for name in LAYOUTS if name not in ("nemo", "datasets")]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    rows = [
        manifest_row(
            f"r{i:02}",
            split="test" if i >= 10 else "train",
            bucket="short" if i % 2 else "long",
            question=f'Größe {i}: "what" is\n{"xyzuvwabcd"[i % 10] * 5} {i * 7}?',
            gold_sql=SECRET,
            literals=("2",),
            sqlite_file="shop.sqlite",
        )
        for i in range(10)
    ]
    return write_manifest(tmp_path / "manifest", rows)


@pytest.fixture
def scheduled(manifest: Path) -> Path:
    pool = build_pool(manifest, SMALL, PoolChoice())
    draws = Draws(SMALL, pool.rows, seed=0)
    write_schedule(manifest / "schedule.parquet", draws, pool, PoolChoice(), manifest)
    return manifest


def export(manifest: Path, out: Path, to: str) -> Exported:
    return export_manifest(out, to=to, env=TrainerEnv(manifest))


def load(path: Path, cache: Path, *, streaming: bool) -> list[dict[str, Any]]:
    kind = "json" if path.suffix == ".jsonl" else "parquet"
    loaded = datasets.load_dataset(
        kind, data_files=str(path), split="train", streaming=streaming, cache_dir=str(cache)
    )
    return list(loaded)


@pytest.mark.parametrize("to", [*PARQUET, "nemo"])
def test_a_layout_loads_in_schedule_order_streaming_or_not(
    scheduled: Path, tmp_path: Path, to: str
) -> None:
    (name,) = export(scheduled, tmp_path / "out", to).files
    export(scheduled, tmp_path / "again", to)
    assert sha256_file(tmp_path / "out" / name) == sha256_file(tmp_path / "again" / name)
    if to in PARQUET:
        table = pq.read_table(tmp_path / "out" / name)
        assert all(column.null_count == 0 for column in table.flatten().columns)
    whole = load(tmp_path / "out" / name, tmp_path / "cache", streaming=False)
    streamed = load(tmp_path / "out" / name, tmp_path / "cache", streaming=True)
    assert whole == streamed and len(whole) == 18
    specs = [msgspec.json.decode(row["env_json"], type=EpisodeSpec) for row in whole]
    assert [(t.schedule_step, t.schedule_slot) for t in specs] == [
        (step, slot) for step in range(6) for slot in range(3)
    ]
    assert [t.gate_probability for t in specs[::3]] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert {t.manifest_sha256 for t in specs} == {sha256_file(scheduled / "manifest.parquet")}
    messages = whole[0].get("prompt") or whole[0]["responses_create_params"]["input"]
    assert [m["role"] for m in messages] == ["system", "user"] and "Größe" in messages[1]["content"]


@pytest.mark.parametrize("to", [*PARQUET, "nemo"])
def test_no_answer_lies_where_a_prompt_template_can_reach_it(
    scheduled: Path, tmp_path: Path, to: str
) -> None:
    export(scheduled, tmp_path, to)
    name = "train.jsonl" if to == "nemo" else "train.parquet"
    rows = load(tmp_path / name, tmp_path / "cache", streaming=True)
    for row in rows:
        for_the_reward = row.pop("reward_model", None) or row.pop("reward_spec", None)
        assert SECRET not in json.dumps(row)
        if for_the_reward:
            assert for_the_reward["ground_truth"] == SECRET


def write_halves(folder: Path, *, leaking: int) -> Path:
    """Three rows to train on, two dev rows of another schema, and `leaking` train rows of that."""
    write_database(folder / "town.sqlite", "CREATE TABLE town (name TEXT);")
    towns = {"gold_sql": "SELECT name FROM town", "sqlite_file": "town.sqlite"}
    return write_manifest(
        folder,
        [
            *(manifest_row(f"r{i}", split="train") for i in range(3)),
            *(manifest_row(f"t{i}", split="dev", question=f"Where? {i}", **towns) for i in "ab"),
            *(manifest_row(f"x{i}", question=f"Who? {i}", **towns) for i in range(leaking)),
        ],
    )


def row_ids(path: Path) -> list[str]:
    read = pl.read_ndjson(path) if path.suffix == ".jsonl" else pl.read_parquet(path)
    if "env_json" not in read.columns:
        return read["row_id"].to_list()
    return [json.loads(text)["row_id"] for text in read["env_json"]]


@pytest.mark.parametrize("to", LAYOUTS)
def test_what_a_pool_keeps_out_is_in_no_file(tmp_path: Path, to: str) -> None:
    manifest = write_halves(tmp_path / "m", leaking=4)
    exported = export(manifest, tmp_path / "out", to)
    assert exported.left_out == {"shares_schema_with_test": 4}
    for name, count in exported.files.items():
        if "results" not in name:
            ids = row_ids(tmp_path / "out" / name)
            assert ids == (["r0", "r1", "r2"] if "train" in name else ["ta", "tb"])
            assert count == len(ids)
    pool = build_pool(manifest, load_schedule("none"), PoolChoice())
    assert pool.rows["all"] == ("r0", "r1", "r2")


def test_a_schedule_that_draws_a_test_row_is_refused(scheduled: Path, tmp_path: Path) -> None:
    rows = [replace(row, split="dev") for row in open_manifest(scheduled).rows]
    write_manifest(scheduled, rows)
    path = scheduled / "schedule.parquet"
    table = pq.read_table(path)
    digest = sha256_file(scheduled / "manifest.parquet")
    metadata = {**table.schema.metadata, b"manifest_sha256": digest.encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(ConfigurationError, match=r"draws r0\d, which must not .*test_split"):
        export(scheduled, tmp_path / "out", "trl")


def test_the_hub_layout_keeps_answers_apart(manifest: Path, tmp_path: Path) -> None:
    index = json.loads((manifest / "manifest.json").read_text())
    index["licences"] = {"shop": "CC0-1.0"}
    (manifest / "manifest.json").write_text(json.dumps(index))
    exported = export(manifest, tmp_path / "out", "datasets")
    assert exported.licences == {"shop": "CC0-1.0"}
    assert "Data of shop: licence CC0-1.0." in (tmp_path / "out" / "README.md").read_text()
    out, cache = str(tmp_path / "out"), str(tmp_path / "cache")
    questions = datasets.load_dataset(out, "questions", split="train", cache_dir=cache)
    answers = datasets.load_dataset(out, "answers", split="train", cache_dir=cache)
    results = datasets.load_dataset(out, "results", split="train", streaming=True, cache_dir=cache)
    assert SECRET not in json.dumps(questions[:])
    assert set(answers["gold_sql"]) == {SECRET}
    assert questions["row_id"] == answers["row_id"]
    assert len(list(results)) == 10


def test_a_schedule_of_another_manifest_is_refused(scheduled: Path, tmp_path: Path) -> None:
    other = write_manifest(tmp_path / "other", [manifest_row("x")])
    with pytest.raises(ConfigurationError, match="another manifest"):
        export_manifest(
            tmp_path,
            to="trl",
            env=TrainerEnv(other),
            schedule=scheduled / "schedule.parquet",
        )
    with pytest.raises(UnknownNameError, match="verl"):
        export(scheduled, tmp_path, "vrl")


def test_another_export_is_not_overwritten_unasked(manifest: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(manifest, out, "trl")
    before = {path: path.read_bytes() for path in out.iterdir()}
    other = TrainerEnv(write_manifest(tmp_path / "other", [manifest_row("x")]))
    same = TrainerEnv(manifest)
    with pytest.raises(ConfigurationError, match=r"another --to: .* --replace"):
        export_manifest(out, to="verl", env=same)
    with pytest.raises(ConfigurationError, match="another --preset, --schema"):
        export_manifest(out, to="trl", env=same, preset="one-call", schema="full")
    with pytest.raises(ConfigurationError, match="another manifest: choose another --out"):
        export_manifest(out, to="trl", env=other)
    export(manifest, out, "trl")
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    assert export_manifest(out, to="verl", env=other, replace=True).to == "verl"


def test_an_export_anew_leaves_no_file_of_the_one_before(tmp_path: Path) -> None:
    manifest, out = write_halves(tmp_path / "both", leaking=0), tmp_path / "out"
    for to in ("datasets", "nemo", "trl"):
        export_manifest(out, to=to, env=TrainerEnv(manifest), replace=True)
    train = write_manifest(tmp_path / "train", [manifest_row("r0")])
    export_manifest(out, to="trl", env=TrainerEnv(train), replace=True)
    left = {path.name for path in out.rglob("*") if path.is_file()}
    assert left == {"export.json", "train.parquet"}


def test_a_full_schema_is_in_the_prompt_a_withheld_one_is_not(
    manifest: Path, tmp_path: Path
) -> None:
    for schema in ("withheld", "full"):
        export_manifest(tmp_path / schema, to="trl", env=TrainerEnv(manifest), schema=schema)
        path = tmp_path / schema / "train.parquet"
        row = load(path, tmp_path / "cache", streaming=True)[0]
        assert ("CREATE TABLE item" in row["prompt"][1]["content"]) is (schema == "full")
        assert json.loads(row["env_json"])["schema"] == schema
