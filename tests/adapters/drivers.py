"""Each adapter driven by the scripted group, through its trainer's own calls where that is here.

A driver returns (outcomes, whether the adapter saw the group). One whose trainer is not installed
skips, with the command that installs it.
"""

import asyncio
import http.server
import json
import runpy
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.env.reward import with_consensus
from envbuild.testing.policies import ByteTokenizer
from envbuild.train.export import export_manifest
from envbuild.train.trainer_env import TrainerEnv
from tests.adapters.transcript import GROUP, ROW, Outcome, outcome, spec_json

END = "<|im_end|>"
Driven = tuple[list[Outcome], bool]


class HubLike:
    """The byte tokenizer with the call signatures of a Hugging Face tokenizer."""

    pad_token_id = ByteTokenizer().encode("<|endoftext|>")[0]
    eos_token_id = ByteTokenizer().encode(END)[0]

    def __init__(self) -> None:
        self._bytes = ByteTokenizer()

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return self._bytes.encode(text)

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return self._bytes.decode(ids)


def needs(module: str, name: str) -> None:
    pytest.importorskip(
        module, reason=f"{name} has an environment of its own: tests/adapters/run.sh {name}"
    )


def sampled(line: str) -> tuple[list[int], list[float]]:
    ids = ByteTokenizer().encode(line + END)
    return ids, [-0.5] * len(ids)


def drive_minimal(manifest: Path) -> Driven:
    """The example of an adapter of one's own, which needs no trainer."""
    example = Path(__file__).parents[2] / "pipelines" / "examples" / "minimal_trainer.py"
    play_rows = runpy.run_path(str(example))["play_rows"]
    env = TrainerEnv(manifest)
    lines = [completion for completions in GROUP for completion in completions]
    rows = [{"env_json": spec_json(env)}]
    (group,) = play_rows(
        rows, manifest, ByteTokenizer(), lambda _: sampled(lines.pop(0)), len(GROUP)
    )
    breakdowns = with_consensus([env.environment.score(e) for e, _ in group])
    mean = sum(b.reward or 0.0 for b in breakdowns) / len(GROUP)
    assert [advantage + mean for _, advantage in group] == pytest.approx(
        [b.reward for b in breakdowns]
    )
    return [outcome(e, b) for (e, _), b in zip(group, breakdowns, strict=True)], True


def drive_trl(manifest: Path) -> Driven:
    """The rollout function, on a stand-in for the trainer: it needs no TRL to be imported."""
    from envbuild.train.trl import RolloutFunction, RowEnvironment

    env = TrainerEnv(manifest)
    rows = [RowEnvironment() for _ in GROUP]
    for row in rows:
        row.reset(env_json=spec_json(env), prompt="")
    left = [list(completions) for completions in GROUP]

    def generate(contexts: Sequence[Any], *_: Any) -> tuple[list[list[int]], list[list[float]]]:
        live = [lines for lines in left if lines]
        assert len(live) == len(contexts)
        ids, logprobs = zip(*(sampled(lines.pop(0)) for lines in live), strict=True)
        return list(ids), list(logprobs)

    logged: dict[str, float] = {}
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=True),
        num_generations=len(GROUP),
        environments=rows,
        accelerator=SimpleNamespace(num_processes=1),
        use_vllm=False,
        generation_config=SimpleNamespace(),
        _tokenizer=HubLike(),
        _generate_single_turn=generate,
        _log_metric=logged.__setitem__,
    )
    given = RolloutFunction(env, SimpleNamespace(resample_rounds=0))(["p"] * 4, trainer)  # type: ignore[arg-type]
    outcomes = []
    for member in range(len(GROUP)):
        breakdown = json.loads(given["env_breakdown"][member])
        mask = given["env_mask"][member]
        assert given["env_reward"][member] == breakdown["reward"]
        assert [p != 0.0 for p in given["logprobs"][member]] == [bool(m) for m in mask]
        outcomes.append(
            Outcome(
                ended_by=given["env_ended_by"][member],
                breakdown=breakdown,
                prompt_ids=tuple(given["prompt_ids"][member]),
                response_ids=tuple(given["completion_ids"][member]),
                response_mask=tuple(mask),
            )
        )
    return outcomes, logged["episode/group_seen"] == 1.0


def drive_verl(manifest: Path) -> Driven:
    """The agent loop's own `run`, its members as tasks of one event loop."""
    needs("verl", "verl")
    from envbuild.train.verl import EpisodeAgentLoop

    left = [list(completions) for completions in GROUP]

    def loop_for(member: int) -> Any:
        async def generate(**asked: Any) -> Any:
            await asyncio.sleep(0)
            assert asked["sampling_params"]["max_tokens"] in (2048, 3072)
            ids, logprobs = sampled(left[member].pop(0))
            return SimpleNamespace(token_ids=ids, log_probs=logprobs)

        loop = EpisodeAgentLoop.__new__(EpisodeAgentLoop)
        loop.tokenizer = HubLike()
        loop.data_config = {"envbuild_manifest": str(manifest)}
        loop.rollout_config = SimpleNamespace(n=len(GROUP))
        loop.server_manager = SimpleNamespace(generate=generate)
        return loop

    async def run() -> list[Any]:
        env_json = spec_json(TrainerEnv(manifest))
        row = {"env_json": env_json, "extra_info": {"split": "train"}, "uid": "u"}
        return await asyncio.gather(
            *(loop_for(n).run({}, session_id=n, **row) for n in range(len(GROUP)))
        )

    outcomes, seen = [], True
    for output in asyncio.run(run()):
        breakdown = json.loads(output.extra_fields["env_breakdown"])
        logged = output.extra_fields["reward_extra_info"]
        seen &= logged["group_seen"] == 1.0
        assert output.reward_score == breakdown["reward"]
        assert len(output.response_logprobs) == len(output.response_ids)
        outcomes.append(
            Outcome(
                ended_by=logged["ended_by"],
                breakdown=breakdown,
                prompt_ids=tuple(output.prompt_ids),
                response_ids=tuple(output.response_ids),
                response_mask=tuple(output.response_mask),
            )
        )
    return outcomes, seen


def chat_template(messages: Sequence[dict[str, str]]) -> str:
    """The ChatML that a trainer's template makes of messages."""
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)


def drive_openenv(manifest: Path) -> Driven:
    """The server over a socket, its generic client on the other side."""
    needs("openenv.core", "openenv")
    import uvicorn
    from openenv.core.generic_client import GenericEnvClient

    from envbuild.train.openenv import make_app

    config = uvicorn.Config(make_app(manifest), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        pass
    port = server.servers[0].sockets[0].getsockname()[1]
    outcomes, seen = [], True
    try:
        for candidate, completions in enumerate(GROUP):
            with GenericEnvClient(base_url=f"http://127.0.0.1:{port}").sync() as client:
                opened = client.reset(row_id=ROW, candidate=candidate)
                assert [m["role"] for m in opened.observation["messages"]] == ["system", "user"]
                turns = []
                for completion in completions:
                    result = client.step({"text": completion})
                    turns.append((completion, result.observation["text"]))
                assert result.done
                shown = result.observation
                assert result.reward == shown["breakdown"]["reward"]
                seen &= shown["group_seen"]
                outcomes.append(
                    Outcome(
                        turns=tuple(turns),
                        ended_by=shown["ended_by"],
                        breakdown=shown["breakdown"],
                    )
                )
    finally:
        server.should_exit = True
        thread.join(10)
    return outcomes, seen


def drive_verifiers(manifest: Path) -> Driven:
    """verifiers' agent, its interception server, and a scripted OpenAI-compatible endpoint."""
    needs("verifiers.v1", "verifiers")
    import verifiers.v1 as vf

    plugin = Path(__file__).parents[2] / "pipelines" / "trainers" / "verifiers"
    if str(plugin) not in sys.path:
        sys.path.insert(0, str(plugin))
    from envbuild.train.verifiers import EpisodeHarnessConfig as Config
    from envbuild.train.verifiers import EpisodeTaskset, EpisodeTasksetConfig

    export = manifest.parent / "verifiers"
    export_manifest(export, to="verifiers", env=TrainerEnv(manifest))
    taskset = EpisodeTaskset(EpisodeTasksetConfig(export=str(export), manifest=str(manifest)))
    (task,) = taskset.include(names=[ROW])
    outcomes, seen = [], True
    for completions in GROUP:
        with scripted_server(completions) as address:
            client = vf.EvalClientConfig(base_url=address, api_key_var="UNUSED")
            agent = vf.Agent(
                vf.AgentConfig(
                    harness=Config(),
                    model="scripted",
                    client=client,
                    runtime=vf.SubprocessConfig(),
                )
            )
            trace = asyncio.run(agent.run(task))
        assert not trace.errors, trace.errors
        result = dict(trace.info["envbuild"])
        assert trace.reward == (result["reward"] or 0.0)
        seen &= result.pop("group_seen")
        del result["metrics"]
        outcomes.append(
            Outcome(sql=result.pop("sql"), ended_by=result.pop("ended_by"), breakdown=result)
        )
    return outcomes, seen


@contextmanager
def scripted_server(completions: Sequence[str]) -> Iterator[str]:
    """A chat-completions endpoint that says these lines in order."""
    lines = list(completions)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"role": "assistant", "content": lines.pop(0)}
            body = {
                "id": "x",
                "object": "chat.completion",
                "created": 0,
                "model": "scripted",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
            encoded = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


DRIVERS: dict[str, Callable[[Path], Driven]] = {
    "minimal": drive_minimal,
    "trl": drive_trl,
    "verl": drive_verl,
    "openenv": drive_openenv,
    "verifiers": drive_verifiers,
}
SEES_GROUP = {"minimal", "trl", "verl"}
"""The others are shown one episode at a time, and must say so."""
