import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.errors import CorpusFolderError, UsageError
from envbuild.records.manifest import ManifestRow
from envbuild.train.pool import PoolChoice, build_pool, read_schedule_file, write_schedule
from envbuild.train.schedule import Draws, load_schedule, mixture_at
from tests.shared import envbuild
from tests.small_manifest import manifest_row, write_database, write_manifest

SYNSQL = load_schedule("synsql")
LENGTHS = {"short": 90, "medium": 200, "long": 400}
WORDS = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay")


def question(number: int) -> str:
    """A question that shares few words with any other."""
    return " ".join(f"{WORDS[int(d)]}{place}" for place, d in enumerate(f"{number:05}"))


def rows_of(**sizes: int) -> Iterator[ManifestRow]:
    number = 0
    for bucket, size in sizes.items():
        for position in range(size):
            number += 1
            yield manifest_row(
                f"made/shop/{bucket}-{position:03}",
                bucket=bucket,
                masked_length=LENGTHS[bucket],
                question=question(number),
            )


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return write_manifest(tmp_path / "manifest", rows_of(short=60, medium=50, long=55))


def printed(*arguments: object, code: int = 0) -> str:
    ran = envbuild(*arguments)
    assert ran.returncode == code, ran.stderr
    return ran.stdout


def test_the_pool_is_as_large_as_its_scarcest_share_allows(manifest: Path) -> None:
    pool = build_pool(manifest, SYNSQL, PoolChoice())
    assert {name: len(ids) for name, ids in pool.rows.items()} == {
        "short": 20,
        "medium": 25,
        "long": 55,
    }
    assert pool.lacking == 0
    assert pool.left_out == {"beyond_share": 65}


def test_what_a_bucket_lacks_is_said(manifest: Path) -> None:
    short_of = build_pool(manifest, SYNSQL, PoolChoice(size=120))
    assert [(f.wanted, f.taken, f.lacking) for f in short_of.fills] == [
        (24, 24, 0),
        (30, 30, 0),
        (66, 55, 11),
    ]


def test_the_same_seed_gives_the_same_pool_and_another_another(manifest: Path) -> None:
    first = build_pool(manifest, SYNSQL, PoolChoice(seed=4))
    assert build_pool(manifest, SYNSQL, PoolChoice(seed=4)) == first
    assert build_pool(manifest, SYNSQL, PoolChoice(seed=5)).rows != first.rows


def test_signal_filters_and_weighs(tmp_path: Path) -> None:
    rows = [
        manifest_row(
            f"r{i:03}",
            question=question(i),
            signal=None if i % 10 == 0 else (0.05 if i % 2 else 0.95),
        )
        for i in range(400)
    ]
    folder = write_manifest(tmp_path / "m", rows)
    none = load_schedule("none")
    kept = build_pool(folder, none, PoolChoice(where="coalesce(signal, 1) >= 0.5"))
    assert kept.left_out == {"not_selected": 200} and kept.unmeasured == 40
    measured = build_pool(folder, none, PoolChoice(where="signal >= 0.5"))
    assert measured.left_out == {"not_selected": 240} and measured.unmeasured == 0
    weighed = build_pool(folder, none, PoolChoice(size=100, weigh_by_signal=True))
    low = sum(int(row_id[1:]) % 2 for row_id in weighed.rows["all"])
    assert 2 <= low <= 20  # about 100 * 200*0.05 / (160*0.95 + 40*0.45 + 200*0.05) = 6


def test_train_never_shares_a_schema_or_a_question_with_test(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_database(folder / "copy.sqlite", "CREATE TABLE ITEM (name TEXT, id INTEGER PRIMARY KEY);")
    write_database(folder / "town.sqlite", "CREATE TABLE town (name TEXT);")
    write_database(folder / "lake.sqlite", "CREATE TABLE lake (name TEXT);")
    towns = {"gold_sql": "SELECT name FROM town", "sqlite_file": "town.sqlite"}
    lakes = {"gold_sql": "SELECT name FROM lake", "sqlite_file": "lake.sqlite"}
    rows = [
        manifest_row("test-1", split="dev", question="Which pens cost more than two euros?"),
        manifest_row("copy", sqlite_file="copy.sqlite", question="Anything else at all?"),
        manifest_row("same", question="which pens cost more than two euros", **towns),
        manifest_row("free", question="How many towns are there?", **towns),
        manifest_row("lake", question="How deep is it?", **lakes),
    ]
    write_manifest(folder, rows)
    pool = build_pool(folder, load_schedule("none"), PoolChoice())
    assert pool.rows == {"all": ("free", "lake")}
    assert pool.left_out == {
        "near_duplicate_of_test": 1,
        "shares_schema_with_test": 1,
        "test_split": 1,
    }
    other = tmp_path / "other"
    write_database(other / "x.sqlite", "CREATE TABLE Lake (NAME TEXT);")
    write_manifest(
        other, [manifest_row("t", sqlite_file="x.sqlite", gold_sql="SELECT name FROM lake")]
    )
    pool = build_pool(folder, load_schedule("none"), PoolChoice(), test=[other])
    assert pool.rows == {"all": ("free",)}


def test_a_manifest_of_test_rows_alone_gives_no_pool(tmp_path: Path) -> None:
    rows = [manifest_row(f"r{i}", split="dev", question=question(i)) for i in range(3)]
    folder = write_manifest(tmp_path / "m", rows)
    with pytest.raises(UsageError, match="may be trained on \\(3 test_split\\)"):
        build_pool(folder, load_schedule("none"), PoolChoice())
    assert printed("pool", folder, "--suggest", code=2) == ""


def test_the_schedule_file_holds_every_slot_and_the_gate(manifest: Path, tmp_path: Path) -> None:
    pool = build_pool(manifest, SYNSQL, PoolChoice())
    draws = Draws(SYNSQL, pool.rows, seed=0)
    files = [tmp_path / name for name in ("a.parquet", "b.parquet")]
    for path in files:
        assert write_schedule(path, draws, pool, PoolChoice(), manifest) == 32_400
    assert files[0].read_bytes() == files[1].read_bytes()
    read = read_schedule_file(files[0])
    assert [(r.schedule_step, r.schedule_slot) for r in read.rows] == [
        (step, slot) for step in range(1800) for slot in range(18)
    ]
    assert read.schedule == SYNSQL
    assert {r.bucket for r in read.rows[: 400 * 18]} == {"short"}
    assert read.rows[40 * 18].gate_probability == 0.5
    assert Counter(r.bucket for r in read.rows[-18:]) == {"short": 2, "medium": 4, "long": 12}
    with pytest.raises(CorpusFolderError, match="not a schedule"):
        read_schedule_file(manifest / "manifest.parquet")


def test_the_command_shows_the_step_and_its_reasons(manifest: Path) -> None:
    shown = printed("pool", manifest, "--step", 900)
    assert max(map(len, shown.splitlines())) <= 80
    assert "step 900: short 0.275, medium 0.250, long 0.475; submit gate 0" in shown
    document = json.loads(printed("pool", manifest, "--step", 900, "--json"))
    assert document["format"] == "envbuild.pool/1"
    step = document["step"]
    assert step["counts"] == {"short": 5, "medium": 5, "long": 8}
    assert len(step["questions"]) == 18 and step["lacking"] == {}
    again = json.loads(printed("pool", manifest, "--step", 900, "--json"))
    assert again == document


def test_a_suggested_schedule_fits_the_manifest_and_can_be_used(
    manifest: Path, tmp_path: Path
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(printed("pool", manifest, "--suggest"))
    plan = load_schedule(str(path))
    document = json.loads(printed("pool", manifest, "--suggest", "--json"))
    assert document["suggested"]["pool"] == list(plan.pool)
    assert plan.buckets == ("short", "medium", "long") and plan.pool == (0.364, 0.303, 0.333)
    assert mixture_at(plan, 0)["short"] == 1 and float(mixture_at(plan, 1400)["long"]) == 0.333
    assert "step 1500" in printed("pool", manifest, "--schedule", path, "--step", 1500)


@pytest.mark.parametrize(
    ("sizes", "questions"),
    [
        ({"short": 40, "medium": 30, "long": 35}, 18),
        ({"short": 14, "medium": 4, "long": 9}, 12),  # 4.7 of 14 would be medium's
        ({"short": 40, "medium": 1, "long": 600}, 18),  # medium is under a hundredth
    ],
)
def test_a_suggested_schedule_can_be_filled_by_the_rows_that_may_be_drawn(
    tmp_path: Path, sizes: dict[str, int], questions: int
) -> None:
    folder = tmp_path / "m"
    write_database(folder / "town.sqlite", "CREATE TABLE town (name TEXT);")
    towns = {"gold_sql": "SELECT name FROM town", "sqlite_file": "town.sqlite"}
    held_out = [
        manifest_row(
            f"t{number}",
            split="dev" if number % 2 else "train",  # the same schema, so it is held out too
            question=question(5000 + number),
            **towns,
        )
        for number in range(60)
    ]
    write_manifest(folder, [*rows_of(**sizes), *held_out])
    plan = tmp_path / "own.toml"
    plan.write_text(printed("pool", folder, "--suggest"))
    schedule = load_schedule(str(plan))
    assert schedule.questions == questions
    pool = build_pool(folder, schedule, PoolChoice())
    draws = Draws(schedule, pool.rows, seed=0)
    assert not pool.lacking
    assert not any(draws.at(step).lacking for step in range(schedule.steps))


def test_a_bucket_that_cannot_fill_its_share_is_exit_1(tmp_path: Path) -> None:
    folder = write_manifest(tmp_path / "m", rows_of(short=6, medium=9, long=9))
    found = CliRunner().invoke(app, ["pool", str(folder), "--step", "1500", "--json"])
    assert found.exit_code == 1
    assert json.loads(found.stdout)["step"]["lacking"] == {"long": 3}
    found = CliRunner().invoke(app, ["pool", str(folder), "--size", "40", "--step", "1500"])
    assert found.exit_code == 1 and "lacking" in found.stdout
    assert "wants 12 questions of long, and the pool has 9" in found.stderr
    assert "--suggest" in found.stderr


def test_a_step_past_the_schedule_is_refused(manifest: Path) -> None:
    found = CliRunner().invoke(app, ["pool", str(manifest), "--step", "1800"])
    assert isinstance(found.exception, UsageError)
    assert "--step takes 0 to 1799" in str(found.exception)


def test_the_command_writes_the_schedule_and_both_charts(manifest: Path, tmp_path: Path) -> None:
    plots = [tmp_path / name for name in ("l.png", "s.svg")]
    printed("pool", manifest, "--write", "--plot", plots[0], "--plot-schedule", plots[1])
    assert len(read_schedule_file(manifest / "schedule.parquet").rows) == 32_400
    for out, file in (("new", "new/schedule.parquet"), ("own.parquet", "own.parquet")):
        printed("pool", manifest, "--write", "--out", tmp_path / out)
        assert (tmp_path / file).is_file()
    assert plots[0].read_bytes().startswith(b"\x89PNG")
    svg = plots[1].read_text()
    assert "submit gate, 0 from step 80" in svg and "long 0.65" in svg
    printed("pool", manifest, "--plot", tmp_path / "x.pdf", code=2)
    printed("pool", manifest, "--schedule", "sinsql", code=2)
