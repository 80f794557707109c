"""The run files as `start.sh` hands them on, taken by TRL's own configuration."""

import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("trl", reason="TRL has an environment of its own: tests/adapters/run.sh trl")

from trl import GRPOConfig

from envbuild.env.prompts import load_preset
from envbuild.errors import ConfigurationError
from envbuild.train.schedule import load_recipe, load_schedule
from envbuild.train.trl import grpo_arguments
from envbuild.train.trl_run import RUN_FILE, Run, RunRecord, check_checkpoints, read_run
from tests.adapters.pages import ROOT, page_command

FOLDER = Path(__file__).parents[3] / "pipelines" / "trainers" / "trl"
NEEDS_A_GPU = {"bf16", "use_vllm", "optim"}


@pytest.mark.parametrize("name", ["synsql-token", "synsql-sequence"])
def test_trl_takes_what_start_sh_prints(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANIFEST", "/pool/manifest")
    monkeypatch.setenv("DATA", "/pool/trl")
    command = ["sh", str(FOLDER / "start.sh"), "--print", str(FOLDER / f"{name}.toml")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    run = read_run(Path(printed[0]), printed[1:-1])
    started = shlex.split(page_command("trl.md", "trl_run"))
    assert started[:5] == ["accelerate", "launch", "--num_processes", "1", "-m"]
    of_page = read_run(ROOT / started[6], started[7:])
    assert of_page.recipe == "synsql-token" and of_page.trl == run.trl
    assert (run.manifest, run.dataset, run.schedule) == ("/pool/manifest", "/pool/trl", "synsql")
    recipe, plan = load_recipe(run.recipe), load_schedule(run.schedule)
    arguments = grpo_arguments(
        recipe,
        plan,
        load_preset(recipe.episode_preset),
        processes=run.processes,
        per_device=run.per_device,
    )
    own = {key: value for key, value in run.trl.items() if key not in NEEDS_A_GPU}
    given = {**arguments, "output_dir": "out", **own, "use_cpu": True, "bf16": False}
    configuration = GRPOConfig(**given)
    assert configuration.weight_decay == 0
    assert set(run.trl) <= set(vars(configuration))


def test_checkpoints_of_another_manifest_are_refused(tmp_path: Path) -> None:
    record = RunRecord(manifest_sha256="0" * 64, prompts_sha256="", reward_sha256="")
    (tmp_path / RUN_FILE).write_bytes(msgspec.json.encode(record))
    run = Run(recipe="synsql-token", manifest="m", dataset="d", output=str(tmp_path))
    check_checkpoints(run, "0" * 64)
    with pytest.raises(ConfigurationError, match="a run on another manifest"):
        check_checkpoints(run, "1" * 64)
    with pytest.raises(ConfigurationError, match="NAME=VALUE"):
        read_run(FOLDER / "synsql-token.toml", ["manifest"])
