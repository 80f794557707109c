"""TRL trains for real, on the CPU, with models of a few thousand weights."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("trl", reason="TRL has an environment of its own: tests/adapters/run.sh trl")

import torch

from envbuild.env.chat import HubTokenizer
from envbuild.env.episode import TokenEpisode
from envbuild.errors import ConfigurationError
from envbuild.evaluate.curve import read_training_log
from envbuild.records.manifest import Schedule
from envbuild.sql.connect import VERSIONS
from envbuild.train.trainer_env import EpisodeSpec
from envbuild.train.trl_run import PublishedTrainer, Run, make_trainer
from tests.adapters.questions import (
    QUESTIONS,
    call,
    export_for,
    make_manifest,
    make_schedule,
    right_answer,
    wrong_answer,
)
from tests.adapters.trl.tiny import make_model, make_tokenizer

PLAN = make_schedule(steps=3, questions=2, episodes=4)
TEXTS = [q for pair in QUESTIONS for q in pair] + [
    call(tool, sql="SELECT name FROM town") for tool in ("submit_sql", "run_query")
]
SHORT_PROMPTS = """
system = "Use the tools."
user = "{question}"
turns_left = "{turns} turns left"
turn_left = "1 turn left"
final = "SQL now. {last_query}"
"""
CPU = {
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "save_strategy": "no",
    "disable_tqdm": True,
    "seed": 1,
}


class TinyRun:
    """A manifest, its export and a random model, in one folder."""

    def __init__(self, folder: Path, plan: Schedule) -> None:
        self.folder, self.plan = folder, plan
        self.manifest = make_manifest(folder / "manifest")
        self.data = export_for(self.manifest, folder / "data", "trl", plan)
        self.prompts = folder / "prompts.toml"
        self.prompts.write_text(SHORT_PROMPTS)
        self.tokenizer = make_tokenizer(folder / "model", [*TEXTS, SHORT_PROMPTS])
        self.model = make_model(folder / "model", self.tokenizer, seed=7)

    def run(self, recipe: str = "synsql-token", **trl: Any) -> Run:
        return Run(
            recipe=recipe,
            model=str(self.model),
            manifest=str(self.manifest),
            dataset=str(self.data),
            prompts=str(self.prompts),
            output=str(self.folder / "out"),
            per_device=4,
            trl={**CPU, **trl},
        )


@pytest.fixture
def scene(tmp_path: Path) -> TinyRun:
    return TinyRun(tmp_path, PLAN)


Policy = Callable[[str, int], Sequence[str]]


def scripted(trainer: PublishedTrainer, policy: Policy, *, offset: float = 0.0) -> None:
    """Lets a script sample in the model's place; log-probabilities are the model's own plus offset.

    `policy`: completions of (row id, number of the episode among those of its row so far).
    """
    tokenizer = HubTokenizer(trainer._tokenizer)
    env = trainer.rollout_func.env
    begun: dict[str, int] = {}
    original = env.start_tokens
    queue: list[tuple[TokenEpisode, list[str]]] = []

    def start(spec: Any, **options: Any) -> TokenEpisode:
        episode = original(spec, **options)
        number = begun.get(spec.row_id, 0)
        begun[spec.row_id] = number + 1
        queue.append((episode, list(policy(spec.row_id, number))))
        return episode

    def generate(contexts: list[list[int]], *_: Any) -> tuple[list[list[int]], list[list[float]]]:
        live = [(e, lines) for e, lines in queue if e.next_request() is not None]
        if not live:  # another process has episodes left, and generation may be collective
            return [[trainer._tokenizer.pad_token_id]], [[0.0]]
        assert [list(e.next_request().context) for e, _ in live] == contexts  # type: ignore[union-attr]
        ids = [tokenizer.encode(lines.pop(0) + "<|im_end|>") for _, lines in live]
        return ids, [
            [p + offset for p in logprobs_of(trainer.model, context, said)]
            for context, said in zip(contexts, ids, strict=True)
        ]

    env.start_tokens = start
    trainer._generate_single_turn = generate


def logprobs_of(model: Any, context: Sequence[int], said: Sequence[int]) -> list[float]:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*context, *said]])).logits[0].float()
    every = torch.log_softmax(logits, dim=-1)
    places = range(len(context) - 1, len(context) + len(said) - 1)
    return [float(every[at, token]) for at, token in zip(places, said, strict=True)]


def mixed(row_id: str, number: int) -> Sequence[str]:
    """Two of four right, one wrong, one that is no SQL."""
    if number % 4 < 2:
        return right_answer(row_id)
    return wrong_answer("SELECT name FROM shop" if number % 4 == 2 else "SELEC")


@pytest.mark.parametrize("recipe", ["synsql-token", "synsql-sequence"])
def test_three_steps_have_the_loss_computed_by_hand(scene: TinyRun, recipe: str) -> None:
    trainer = make_trainer(scene.run(recipe), schedule=PLAN)
    scripted(trainer, mixed, offset=0.1)
    by_hand: list[float] = []
    tiers: list[list[float | None]] = []
    original, scored = trainer._compute_loss, trainer._generate_and_score_completions

    def compute_loss(model: Any, inputs: dict[str, Any]) -> Any:
        by_hand.append(loss_by_hand(trainer, model, inputs))
        return original(model, inputs)

    def generate(inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = scored(inputs)
        tiers.append([row["env_reward"] for row in inputs])
        rewards = [float(row["env_reward"]) for row in inputs]
        expected = []
        for at in (0, 4):
            mean = sum(rewards[at : at + 4]) / 4
            for reward in rewards[at : at + 4]:
                shaped = max(-2.0, min(2.0, reward - mean))
                expected.append(0.7 * shaped if shaped < 0 else shaped)
        assert batch["advantages"].tolist() == pytest.approx(expected, abs=1e-5)
        return batch

    trainer._compute_loss = compute_loss
    trainer._generate_and_score_completions = generate
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 3 and trainer.state.global_step == 3
    # two micro-batches a step, each divided by the number of them
    steps = [sum(by_hand[at : at + 2]) / 2 for at in range(0, len(by_hand), 2)]
    assert logged == pytest.approx(steps, abs=2e-6)
    assert any(abs(loss) > 1e-4 for loss in logged)
    assert tiers[0][:2] == [3.0, 3.0] and tiers[0][3] == 0.0 and 1.0 <= tiers[0][2] <= 2.1  # type: ignore[operator]
    after = trainer.model.parameters()
    assert any(not torch.equal(a, b) for a, b in zip(after, before, strict=True))
    first = trainer.state.log_history[0]
    assert first["tier/equivalent"] == 0.5 and first["groups/flat"] == 0.0
    record = json.loads((scene.folder / "out" / "envbuild_run.json").read_text())
    assert record["group_seen"] is True and record["recipe"] == recipe
    assert record["versions"] == VERSIONS


def loss_by_hand(trainer: PublishedTrainer, model: Any, inputs: dict[str, Any]) -> float:
    """The published objective, from the batch's ids and advantages alone."""
    recipe = trainer.recipe
    prompt, said = inputs["prompt_ids"], inputs["completion_ids"]
    ids = torch.cat([prompt, said], dim=1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    width = said.size(1)

    def chosen(net: Any) -> torch.Tensor:
        with torch.no_grad():
            logits = net(input_ids=ids, attention_mask=attention).logits[:, -width - 1 : -1].float()
        return torch.log_softmax(logits, -1).gather(2, said.unsqueeze(2)).squeeze(2)

    policy, reference = chosen(model), chosen(trainer.ref_model)
    mask = (inputs["completion_mask"] * inputs["tool_mask"]).float()
    log_ratio = policy - inputs["sampling_per_token_logps"]
    if recipe.ratio_level == "sequence":
        log_ratio = ((log_ratio * mask).sum(1) / mask.sum(1)).unsqueeze(1).expand_as(policy)
    ratio = log_ratio.exp()
    capped = ratio if recipe.ratio_cap is None else ratio.clamp(max=recipe.ratio_cap)
    clipped = ratio.clamp(1 - recipe.clip_low, 1 + recipe.clip_high)
    advantages = inputs["advantages"].unsqueeze(1)
    surrogate = torch.minimum(capped * advantages, clipped * advantages)
    gap = reference - policy
    k3 = gap.exp() - gap - 1
    token_loss = -surrogate + trainer.beta * k3
    return float((token_loss * mask).sum() / recipe.loss_divisor / len(said))


def test_flat_groups_are_rolled_out_anew_twice_and_no_more(scene: TinyRun) -> None:
    trainer = make_trainer(scene.run(max_steps=1), schedule=PLAN)
    asked: dict[str, int] = {}

    def policy(row_id: str, number: int) -> Sequence[str]:
        asked[row_id] = number + 1
        hard = row_id == sorted(asked)[0]
        return wrong_answer("SELEC") if hard or number < 4 else mixed(row_id, number)

    scripted(trainer, policy)
    trainer.train()
    assert sorted(asked.values()) == [8, 12]  # flat once, then not; flat three times
    entry = trainer.state.log_history[0]
    assert entry["groups/flat"] == 0.5 and entry["groups/attempts"] == 2.5


def test_beta_follows_the_kl_and_survives_a_checkpoint_with_its_reference(
    scene: TinyRun,
) -> None:
    plan = PLAN
    options = {
        "save_strategy": "steps",
        "save_steps": 2,
        "learning_rate": 0.02,
        "ref_model_sync_steps": 2,
        "warmup_steps": 0,
        "lr_scheduler_type": "constant",
    }
    run = scene.run("synsql-token", **options)
    trainer = make_trainer(run, schedule=plan)
    trainer.recipe = msgspec.structs.replace(trainer.recipe, reference_every=2)
    scripted(trainer, mixed)
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "kl_beta" in entry]
    kls, betas = [e["kl"] for e in entries], [e["kl_beta"] for e in entries]
    assert betas[0] == 0.02 and kls[0] == pytest.approx(0.0, abs=1e-6)
    assert kls[1] > 0.0075 and betas[2] == pytest.approx(0.03)
    assert kls[2] == pytest.approx(0.0, abs=1e-5)  # re-anchored after step 2
    checkpoint = scene.folder / "out" / "checkpoint-2"
    logged = read_training_log(checkpoint / "trainer_state.json")
    assert [one.reward for one in logged] == [entry["reward"] for entry in entries[:2]]
    resumed = make_trainer(run, schedule=plan)
    resumed.recipe = msgspec.structs.replace(resumed.recipe, reference_every=2)
    scripted(resumed, mixed)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    last = [entry for entry in resumed.state.log_history if "kl_beta" in entry][-1]
    assert last["kl_beta"] == pytest.approx(betas[2])
    assert last["kl"] == pytest.approx(kls[2], abs=1e-5)


def test_a_random_policy_trains_through_real_generation(scene: TinyRun) -> None:
    trainer = make_trainer(scene.run(), schedule=PLAN)
    short_turns(trainer)
    trainer.train()
    assert trainer.state.global_step == 3
    entry = trainer.state.log_history[0]
    assert entry["tier/invalid"] == 1.0 and entry["groups/attempts"] == 3.0


def short_turns(trainer: PublishedTrainer, tokens: int = 12) -> None:
    env = trainer.rollout_func.env
    rules = env.settings_of
    short = {"tool_turn_tokens": tokens, "final_turn_tokens": tokens, "tool_turns": 3}
    env.settings_of = lambda spec: msgspec.structs.replace(rules(spec), **short)


def test_what_does_not_fit_is_refused(scene: TinyRun) -> None:
    with pytest.raises(ConfigurationError, match="its part of a step"):
        make_trainer(scene.run(gradient_accumulation_steps=3), schedule=PLAN)
    with pytest.raises(ConfigurationError, match="another manifest"):
        make_trainer(scene.run(), schedule=PLAN).rollout_func.env.start_tokens(
            EpisodeSpec(row_id="towns/q0", manifest_sha256="0"), tokenizer=None, candidate=0
        )
