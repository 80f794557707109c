"""Two training processes: whole groups on each, equal calls of generation, one checkpoint."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("trl", reason="tests/adapters/run.sh trl")

from tests.adapters.trl.test_training import PLAN, Scene

PROGRAM = """
import json, sys
from envbuild.adapters.trl.train import Run, make_trainer
from tests.adapters.trl.test_training import PLAN, mixed, scripted
import msgspec
trainer = make_trainer(msgspec.json.decode(open(sys.argv[1]).read(), type=Run), schedule=PLAN)
rank = trainer.accelerator.process_index
# the first process's groups are flat twice, so it goes on when the other has nothing to do
scripted(trainer, lambda row, n: ["SELEC"] * 7 if rank == 0 and n < 8 else mixed(row, n))
calls = []
generate = trainer._generate_single_turn
trainer._generate_single_turn = lambda *a: (calls.append(1), generate(*a))[1]
trainer.train()
with open(f"{sys.argv[1]}.{rank}", "w") as out:  # a shared stream would mix the two
    json.dump({"calls": len(calls), "step": trainer.state.global_step,
               "beta": trainer.beta, "history": trainer.state.log_history}, out)
"""


@pytest.mark.slow
def test_two_processes_agree(tmp_path: Path) -> None:
    scene = Scene(tmp_path, PLAN)
    run = scene.run(max_steps=2)
    config = tmp_path / "run.json"
    config.write_text(json.dumps({**msgspec.to_builtins(run), "processes": 2}))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    launched = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"),
            *("--master_port=29617", str(program), str(config)),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert launched.returncode == 0, launched.stderr[-3000:]
    first, second = (json.loads(Path(f"{config}.{rank}").read_text()) for rank in range(2))
    assert first["step"] == second["step"] == 2
    assert first["calls"] == second["calls"]
    assert first["beta"] == second["beta"]
