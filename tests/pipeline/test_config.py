"""The pipelines that ship decode; a typo is named."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from envbuild.cli import data, preflight, questions
from envbuild.cli.options import command_line
from envbuild.errors import ConfigurationError
from envbuild.pipeline.config import read_pipeline, resolve_paths
from envbuild.pipeline.plan import PlannedStage, plan_stages

PIPELINES = Path(__file__).parent.parent.parent / "pipelines"


def test_shipped_pipelines_hold_the_published_values() -> None:
    for path in PIPELINES.glob("*.toml"):
        pipeline = read_pipeline(path)
        assert pipeline.name == path.stem
        assert pipeline.buckets.edges == (149, 278)
        assert pipeline.buckets.shares == (0.20, 0.25, 0.55)
        assert pipeline.manifest.tables == "4:64"


def test_a_typo_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        'format = "envbuild.pipeline/1"\nname = "x"\n[source]\npaths = ["a"]\nreeder = "sqale"\n'
    )
    with pytest.raises(ConfigurationError, match="reeder"):
        read_pipeline(path)
    path.write_text('format = "envbuild.pipeline/9"\nname = "x"\n[source]\npaths = ["a"]\n')
    with pytest.raises(ConfigurationError, match="this version reads"):
        read_pipeline(path)
    with pytest.raises(ConfigurationError, match="no pipeline file"):
        read_pipeline(tmp_path / "none.toml")


HEAD = 'format = "envbuild.pipeline/1"\nname = "p"\n[source]\npaths = ["demo:"]\n'
COMMANDS = {
    command.__name__: command
    for command in (
        data.materialize,
        preflight.preflight,
        questions.buckets,
        questions.manifest,
        questions.pool,
    )
}


def plan(folder: Path, text: str, **options: Any) -> list[PlannedStage]:
    (folder / "p.toml").write_text(HEAD + text)
    declared = read_pipeline(folder / "p.toml")
    resolved = resolve_paths(declared, beside=folder, out=folder / "out")
    return plan_stages(resolved, out=folder / "out", **options)


def shown(stages: list[PlannedStage]) -> dict[str, str]:
    return {s.name: " ".join(command_line(COMMANDS[s.name], s.arguments)) for s in stages}


def test_how_it_is_spread_makes_no_stage_run_again(tmp_path: Path) -> None:
    plain = plan(tmp_path, "[pool]\n")
    spread = plan(tmp_path, "[pool]\n", workers=3, engine="ray", quiet=True)
    assert [stage.digest for stage in spread] == [stage.digest for stage in plain]
    for name, command in shown(spread).items():
        each = "--workers 3" in command and "--engine ray" in command and "--quiet" in command
        assert each == (name in ("materialize", "preflight", "manifest"))
    assert plan(tmp_path, "[manifest]\nlimit = 3\n")[3].digest != plain[3].digest


def test_a_pipeline_may_set_what_its_commands_take(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    said = shown(
        plan(
            tmp_path,
            "[preflight]\nstrict = true\ngold_seconds = 5\n"
            '[manifest]\nleave_out = ["trivial_gold", "empty_gold"]\nlimit = 7\n'
            'edges = [100, 200]\nmask = "skeleton"\n'
            '[pool]\nsize = 9\nwhere = "signal >= 0.5"\n'
            'weigh_by_signal = true\ntest = ["dev"]\n',
        )
    )
    assert "--strict --gold-seconds 5.0" in said["preflight"]
    assert "--edges 149,278 --mask literals --shares 0.2,0.25,0.55" in said["buckets"]
    assert "--edges 100,200 --mask skeleton" in said["manifest"]
    assert "--leave-out trivial_gold,empty_gold" in said["manifest"]
    assert said["manifest"].count("--limit 7") == 1
    assert "--size 9 --where signal >= 0.5 --weigh-by-signal" in said["pool"]
    assert f"--test {tmp_path / 'dev'}" in said["pool"]


def test_every_option_of_a_stage_is_a_key_of_the_file() -> None:
    runs = {"corpus", "source", "manifest", "out", "seed", "workers", "engine", "shard", "replace"}
    shows = {"suggest", "step", "write", "plot", "plot_schedule", "html", "test", "limit"}
    for command in COMMANDS.values():
        own = set(inspect.signature(command).parameters) - {"settings", "json", "quiet"}
        assert own <= runs | shows, command
