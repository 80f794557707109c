import multiprocessing
from pathlib import Path

import msgspec
import pytest

from envbuild.env.prompts import draw_gate
from envbuild.errors import ConfigurationError
from envbuild.train.completions import completion_rewards, completion_text, compute_score
from envbuild.train.trainer_env import EpisodeSpec, TrainerEnv, candidate_number, shared_trainer_env
from tests.adapters.questions import QUESTIONS, call, make_manifest


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_manifest(tmp_path / "manifest")
    monkeypatch.setenv("ENVBUILD_MANIFEST", str(folder))
    return folder


def env_json(manifest: Path, row_id: str) -> str:
    spec = EpisodeSpec(row_id=row_id, manifest_sha256=TrainerEnv(manifest).manifest_sha256)
    return msgspec.json.encode(spec).decode()


def test_text_and_messages_earn_the_same(manifest: Path) -> None:
    gold = QUESTIONS[1][1]
    said = [
        call("submit_sql", sql=gold),
        f"<think>count</think>\nHere it is:\n```sql\n{gold};\n```",
        f"{gold} ; That counts them.",
        "SELECT name FROM town",
        "SELEC",
        "",
    ]
    specs = [env_json(manifest, "towns/q1")] * len(said)
    plain = completion_rewards(completions=said, env_json=specs)
    messages = [[{"role": "assistant", "content": text}] for text in said]
    parts = [[{"role": "assistant", "content": [{"type": "text", "text": text}]}] for text in said]
    assert plain[:3] == [3.0, 3.0, 3.0] and plain[4:] == [0.0, 0.0]
    assert 1.0 <= plain[3] < 2.1  # type: ignore[operator]
    assert completion_rewards(completions=messages, env_json=specs) == plain
    assert completion_rewards(completions=parts, env_json=specs) == plain


def test_verl_gets_a_number_and_flat_parts_of_one_shape(manifest: Path) -> None:
    extra = {"env_json": env_json(manifest, "towns/q0")}
    records = [
        compute_score("envbuild/towns", said, "ignored", extra)
        for said in ("SELECT name FROM town", "SELECT id FROM town", "no", "SELECT nope FROM town")
    ]
    assert [r["score"] for r in records][::2] == [3.0, 0.0] and records[3]["score"] == 0.5
    assert all(r.keys() == records[0].keys() for r in records)
    assert all(isinstance(r["score"], float) and r["group_seen"] is False for r in records)


def test_another_manifest_is_refused(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = msgspec.json.encode(EpisodeSpec(row_id="towns/q0", manifest_sha256="0")).decode()
    with pytest.raises(ConfigurationError, match="another manifest"):
        completion_rewards(completions=["x"], env_json=[other])
    monkeypatch.delenv("ENVBUILD_MANIFEST")
    with pytest.raises(ConfigurationError, match="ENVBUILD_MANIFEST"):
        shared_trainer_env()


def test_the_last_assistant_message_is_the_answer() -> None:
    talk = [
        {"role": "assistant", "content": "SELECT 1"},
        {"role": "user", "content": "SELECT 2"},
        {"role": "assistant", "content": "SELECT 3"},
        {"role": "tool", "content": "SELECT 4"},
    ]
    assert completion_text(talk) == "SELECT 3"
    assert completion_text([]) == ""


def test_members_of_a_group_get_numbers_of_their_own_in_every_process() -> None:
    assert [candidate_number(given) for given in (0, 7, "3")] == [0, 7, 3]
    with multiprocessing.get_context("fork").Pool(2) as workers:
        numbers = workers.map(candidate_number, [None] * 64, chunksize=1)
    assert len(set(numbers)) == 64
    gates = [draw_gate(0.5, seed=0, row_id="r", candidate=number) for number in numbers]
    assert 8 < sum(gates) < 56  # a fair draw is outside once in 10**9
