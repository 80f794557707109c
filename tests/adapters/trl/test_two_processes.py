"""Several training processes: whole groups on each, equal calls of generation, one checkpoint."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("trl", reason="tests/adapters/run.sh trl")

from tests.adapters.trl.test_training import PLAN, TinyRun

PROGRAM = """
import json, sys
from envbuild.train.trl_run import Run, make_trainer
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


SHARED_ENGINE = """
import json, sys
from types import SimpleNamespace
import torch
from accelerate import Accelerator
from trl.generation import vllm_generation
from envbuild.train.trl import _generate
from envbuild.records.episode import TokenRequest
accelerator = Accelerator(cpu=True)
rank = accelerator.process_index
asked, limits = [], []
# stands where vLLM would: each answer is its context's first token, again and again
def answer(prompts, limit):
    asked.append(len(prompts))
    limits.append(limit)
    return [[prompt[0]] * limit for prompt in prompts]
class Server:
    def generate(self, prompts, max_tokens, **_):
        ids = answer(prompts, max_tokens)
        return {"prompt_ids": prompts, "completion_ids": ids,
                "logprobs": [[[-float(one[0])]] * len(one) for one in ids]}
class Engine:
    def generate(self, prompts, sampling_params, **_):
        prompts = [prompt["prompt_token_ids"] for prompt in prompts]
        ids = answer(prompts, sampling_params["max_tokens"])
        return [SimpleNamespace(prompt_token_ids=prompt, outputs=[SimpleNamespace(token_ids=one,
            logprobs=[{t: SimpleNamespace(rank=1, logprob=-float(t))} for t in one])])
            for prompt, one in zip(prompts, ids)]
vllm_generation.SamplingParams = lambda **options: options
engine = object.__new__(vllm_generation.VLLMGeneration)
vars(engine).update(
    temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0, logprobs=0,
    max_completion_length=16, structured_outputs_regex=None, generation_kwargs={}, model=None,
    enable_sleep_mode=False, accelerator=accelerator, tensor_parallel_size=2,
    vllm_client=Server(), llm=Engine())
engine.tp_group, _ = torch.distributed.new_subgroups_by_enumeration([[0, 1]])
def single_turn(contexts, *_):
    _, ids, logprobs, _ = engine.generate(prompts=contexts, images=None, num_generations=1)
    return ids, [[tops[0] for tops in one] for one in logprobs]
trainer = SimpleNamespace(use_vllm=True, vllm_generation=engine, _generate_single_turn=single_turn,
                          _tokenizer=SimpleNamespace(pad_token_id=0))
seen = []
for mode, live in json.loads(sys.argv[1]):
    engine.mode = mode
    # each process has its own number of live episodes, and each episode its own limit
    requests = [TokenRequest(context=(1000 * (rank + 1) + place, 7), stop=(), stop_ids=(),
                             max_new_tokens=2 + rank + place) for place in range(live[rank])]
    wanted = [([r.context[0]] * r.max_new_tokens, [-float(r.context[0])] * r.max_new_tokens)
              for r in requests]
    seen.append({"right": [*zip(*_generate(trainer, requests))] == wanted, "asked": [*asked],
                 "limits": [*limits]})
    asked.clear(); limits.clear()
with open(f"{sys.argv[2]}.{rank}", "w") as file:
    json.dump(seen, file)
"""

END = """
import os
import torch.distributed
torch.distributed.barrier()
os._exit(0)  # both have written; gloo's threads may abort a process that is taken down in order
"""


@pytest.mark.slow
def test_a_shared_engine_answers_each_process_its_own_episodes(tmp_path: Path) -> None:
    """TRL's own `VLLMGeneration` in the two modes where one engine answers several processes."""
    cases = [(mode, live) for mode in ("server", "colocate") for live in ((5, 3), (0, 3), (4, 0))]
    out = tmp_path / "out"
    launch(tmp_path, SHARED_ENGINE, json.dumps(cases), str(out))
    first, second = (json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(2))
    for (_, live), here, there in zip(cases, first, second, strict=True):
        assert here["right"] and there["right"]
        assert here["asked"] == [sum(live)]  # nothing is sampled to be thrown away
        limits = [2 + rank + place for rank in range(2) for place in range(live[rank])]
        assert here["limits"] == [max(limits)]


@pytest.mark.slow
def test_two_processes_agree(tmp_path: Path) -> None:
    scene = TinyRun(tmp_path, PLAN)
    run = scene.run(max_steps=2)
    config = tmp_path / "run.json"
    config.write_text(json.dumps({**msgspec.to_builtins(run), "processes": 2}))
    launch(tmp_path, PROGRAM, str(config))
    first, second = (json.loads(Path(f"{config}.{rank}").read_text()) for rank in range(2))
    assert first["step"] == second["step"] == 2
    assert first["calls"] == second["calls"]
    assert first["beta"] == second["beta"]


def launch(folder: Path, program: str, *arguments: str) -> None:
    """Runs a program as two processes of one group, on a port of torch's own choice."""
    path = folder / "program.py"
    path.write_text(program + END)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    launched = subprocess.run(
        [*launcher, str(path), *arguments], capture_output=True, text=True, timeout=900, check=False
    )
    assert launched.returncode == 0, launched.stderr[-3000:]
