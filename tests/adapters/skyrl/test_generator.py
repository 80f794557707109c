"""Our generator under SkyRL's own classes, on a scripted engine.

Needs SkyRL itself (Python 3.12): pip install 'skyrl==0.4.*' beside skyrl-gym.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("skyrl.train", reason="SkyRL itself is not installed (it needs Python 3.12)")

from skyrl.train.config import GeneratorConfig, SkyRLGymConfig
from skyrl.train.generators.base import TrajectoryID

from envbuild.testing.policies import ByteTokenizer
from envbuild.train.skyrl import EpisodeGenerator
from envbuild.train.trainer_env import TrainerEnv
from tests.adapters.drivers import END, HubLike, chat_template
from tests.adapters.questions import make_manifest
from tests.adapters.transcript import GROUP, reference, spec_json


class TemplateTokenizer(HubLike):
    eos_token = END

    def apply_chat_template(
        self, messages: Any, *, add_generation_prompt: bool = False, **_: Any
    ) -> list[int]:
        opening = "<|im_start|>assistant\n" if add_generation_prompt else ""
        return self.encode(chat_template(messages) + opening)


class ScriptedEngine:
    """Answers each session by a script of its own."""

    def __init__(self) -> None:
        self.left: dict[str, list[str]] = {}
        self.limits: set[int] = set()

    async def generate(self, asked: Any, model: str | None = None) -> dict[str, Any]:
        await asyncio.sleep(0)
        session = asked["session_ids"][0]
        member = int(session.rpartition("_")[2])
        line = self.left.setdefault(session, list(GROUP[member])).pop(0)
        if asked.get("sampling_params"):
            self.limits.add(asked["sampling_params"]["max_tokens"])
        ids = ByteTokenizer().encode(line + END)
        return {
            "responses": [line],
            "response_ids": [ids],
            "stop_reasons": ["stop"],
            "response_logprobs": [[-0.5] * len(ids)],
        }

    async def finish_session(self, session: str) -> None:
        pass


def test_our_generator_keeps_limits_masks_and_the_consensus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = make_manifest(tmp_path / "manifest")
    monkeypatch.setenv("ENVBUILD_MANIFEST", str(manifest))
    config, engine = GeneratorConfig(), ScriptedEngine()
    config.max_turns = 7
    config.batched = False
    config.max_input_length = 100_000
    config.sampling_params.logprobs = 0
    generator = EpisodeGenerator(config, SkyRLGymConfig(), engine, TemplateTokenizer())
    env_json = spec_json(TrainerEnv(manifest))
    batch = {
        "prompts": [[{"role": "user", "content": "?"}] for _ in GROUP],
        "env_classes": ["envbuild"] * len(GROUP),
        "env_extras": [{"env_json": env_json} for _ in GROUP],
        "sampling_params": None,
        "trajectory_ids": [TrajectoryID("q", n) for n in range(len(GROUP))],
        "batch_metadata": None,
    }
    output = asyncio.run(generator.generate(batch, disable_tqdm=True))
    expected = reference(manifest, consensus=True, tokens=True)
    assert [tuple(ids) for ids in output["prompt_token_ids"]] == [o.prompt_ids for o in expected]
    assert [tuple(ids) for ids in output["response_ids"]] == [o.response_ids for o in expected]
    assert [tuple(mask) for mask in output["loss_masks"]] == [o.response_mask for o in expected]
    assert [sum(r) for r in output["rewards"]] == [o.breakdown["reward"] for o in expected]
    assert output["rollout_metrics"]["environment/group_seen"] == 1.0
    assert engine.limits == {2048, 3072}
