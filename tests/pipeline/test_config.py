"""The pipelines that ship decode; a typo is named."""

from pathlib import Path

import pytest

from envbuild.errors import ConfigurationError
from envbuild.pipeline.config import read_pipeline
from envbuild.pipeline.plan import SPREAD, plan_stages

PIPELINES = Path(__file__).parent.parent.parent / "pipelines"


@pytest.mark.parametrize("path", sorted(PIPELINES.glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_pipelines_hold_the_published_values(path: Path) -> None:
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


def test_how_many_workers_and_where_makes_no_stage_run_again() -> None:
    declared = read_pipeline(PIPELINES / "synsql.toml")
    plain = plan_stages(declared, beside=PIPELINES, out=Path("o"))
    spread = plan_stages(declared, beside=PIPELINES, out=Path("o"), workers=3, engine="ray")
    assert [stage.digest for stage in spread] == [stage.digest for stage in plain]
    for one, other in zip(plain, spread, strict=True):
        added = ("--workers", "3", "--engine", "ray") if one.name in SPREAD else ()
        assert other.arguments == (*one.arguments, *added)


def test_a_pipeline_may_set_what_its_commands_take(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        'format = "envbuild.pipeline/1"\nname = "x"\n[source]\npaths = ["demo:"]\n'
        "[preflight]\nstrict = true\ngold_seconds = 5\n"
        '[manifest]\nleave_out = ["trivial_gold", "empty_gold"]\nlimit = 7\n'
        '[pool]\nsize = 9\nstyles = ["verbose"]\nmin_signal = 0.5\n'
        "weigh_by_signal = true\nborrow = true\n"
    )
    planned = plan_stages(read_pipeline(path), beside=tmp_path, out=Path("o"))
    said = {stage.name: " ".join(stage.arguments) for stage in planned}
    assert "--gold-seconds 5.0 --strict" in said["preflight"]
    assert "--leave-out trivial_gold,empty_gold --limit 7" in said["manifest"]
    assert "--size 9 --styles verbose --min-signal 0.5 --weigh-by-signal --borrow" in said["pool"]
