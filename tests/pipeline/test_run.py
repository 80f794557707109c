"""`envbuild run` over the corpora that ship: stages resume, and stop where they are asked to."""

import json
from functools import partial
from pathlib import Path

import pytest
import typer

from envbuild.cli import run as cli_run
from envbuild.pipeline.plan import PlannedStage
from envbuild.sql.connect import VERSIONS
from tests.shared import envbuild

DEMO = Path(__file__).parent.parent.parent / "pipelines" / "demo.toml"


run = partial(envbuild, "run")


def commands(errors: str) -> list[str]:
    return [line.split()[2] for line in errors.splitlines() if line.startswith("$ envbuild")]


@pytest.mark.slow
def test_a_second_run_repeats_only_what_was_changed(tmp_path: Path) -> None:
    out = tmp_path / "work"
    first = run(DEMO, "--out", str(out), "--json")
    assert first.returncode == 1, first.stderr  # the demo corpora have flaws
    document = json.loads(first.stdout)
    assert document["format"] == "envbuild.run/1"
    ends = [(stage["name"], stage["done"], stage["exit_code"]) for stage in document["stages"]]
    assert ends == [
        ("materialize", False, 0),
        ("preflight", False, 1),
        ("buckets", False, 0),
        ("manifest", False, 1),
        ("pool", False, 1),
    ]
    progress = json.loads((out / "run.json").read_bytes())
    assert all(stage["versions"] == VERSIONS for stage in progress.values())
    planned = json.loads(run(DEMO, "--out", str(out), "--dry-run", "--json").stdout)
    assert [stage["done"] for stage in planned["stages"]] == [False, True, True, True, True]
    assert [stage["resumed"] for stage in planned["stages"]] == [True, *[False] * 4]
    shown = run(DEMO, "--out", str(out), "--dry-run").stdout
    assert [line[:6].strip() for line in shown.splitlines()] == ["check", *["done"] * 4]
    kept = {path.name: path.read_bytes() for path in (out / "manifest").iterdir()}
    (out / "manifest" / "gold.parquet").unlink()
    (out / "manifest" / "manifest.json").unlink()
    again = run(DEMO, "--out", str(out))
    assert again.returncode == 1  # the answer is still no
    assert commands(again.stderr) == ["materialize", "manifest"]
    assert {path.name: path.read_bytes() for path in (out / "manifest").iterdir()} == kept


@pytest.mark.slow
def test_a_demo_goes_on_after_its_corpora_were_looked_at_again(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    assert envbuild("demo", "--out", out).returncode == 0
    signals = {p: p.read_bytes() for p in out.glob("corpus/*/signal.parquet")}
    assert envbuild("preflight", out / "corpus", "--quiet").returncode == 1
    assert {p: p.read_bytes() for p in signals} != signals, "another sample of golds was scored"
    again = envbuild("demo", "--out", out)
    assert (again.returncode, again.stdout.count("Rows per table")) == (0, 1), again.stderr
    index = out / "manifest" / "manifest.json"
    index.write_bytes(index.read_bytes() + b"\n")
    (out / "corpus" / "demo_bird" / "buckets.parquet").unlink()
    touched = envbuild("manifest", out / "corpus", "--out", out / "manifest")
    assert touched.returncode == 2 and "--replace" in touched.stderr


@pytest.mark.slow
def test_strict_and_until_stop(tmp_path: Path) -> None:
    quick = tmp_path / "quick.toml"
    quick.write_text(DEMO.read_text().replace('signal = "200"', 'signal = "off"'))
    out = str(tmp_path / "work")
    strict = run(quick, "--out", out, "--strict")
    assert strict.returncode == 1
    assert commands(strict.stderr) == ["materialize", "preflight"]
    until = run(quick, "--out", out, "--until", "buckets")
    assert until.returncode == 1
    assert commands(until.stderr) == ["materialize", "buckets"]
    assert not (tmp_path / "work" / "manifest").exists()


def test_a_wrong_stage_names_the_right_ones(tmp_path: Path) -> None:
    wrong = run(DEMO, "--out", str(tmp_path / "w"), "--until", "train", "--json")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "known: " in wrong.stderr and "manifest" in wrong.stderr


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), typer.Exit(2)])
def test_a_stage_that_does_not_end_is_not_done(
    raised: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def buckets(**_: object) -> None:
        raise raised

    monkeypatch.setitem(cli_run.COMMANDS, "buckets", buckets)
    stage = PlannedStage(name="buckets", arguments={}, digest="")
    with pytest.raises(type(raised)):
        cli_run.run_stages([stage], out=tmp_path, strict=False)
    assert not (tmp_path / "run.json").exists()


def test_a_folder_is_no_pipeline_file(tmp_path: Path) -> None:
    refused = run(tmp_path)
    assert refused.returncode == 2
    assert f"cannot read the pipeline file {tmp_path}" in refused.stderr


def test_paths_count_from_the_file_and_the_work_folder_from_here(tmp_path: Path) -> None:
    (tmp_path / "other dir" / "data").mkdir(parents=True)
    file = tmp_path / "other dir" / "p.toml"
    file.write_text('format = "envbuild.pipeline/1"\nname = "p"\n[source]\npaths = ["data"]\n')
    planned = json.loads(run(file, "--dry-run", "--json").stdout)
    command = planned["stages"][0]["command"]
    assert planned["out"] == "envbuild-p"
    assert command[:4] == ["materialize", str(file.parent / "data"), "--out", "envbuild-p/corpus"]
