"""skyrl-gym's registry, life cycle and metrics, on the export that SkyRL reads."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("skyrl_gym", reason="tests/adapters/run.sh skyrl")

import skyrl_gym
from skyrl_gym.metrics import aggregate_for_environment

from envbuild.errors import ConfigurationError, StateError, UnknownNameError
from envbuild.io.parquet import open_parquet
from envbuild.train.skyrl import EpisodeEnv, register_environment
from tests.adapters.questions import (
    call,
    export_for,
    make_manifest,
    make_schedule,
    right_answer,
    wrong_answer,
)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return make_manifest(tmp_path / "manifest")


@pytest.fixture
def rows(manifest: Path, tmp_path: Path) -> list[dict[str, Any]]:
    plan = make_schedule(steps=2, questions=2, episodes=4, gate_steps=1)
    folder = export_for(manifest, tmp_path / "data", "skyrl", plan)
    found: list[dict[str, Any]] = open_parquet(folder / "train.parquet").read().to_pylist()
    return found


def make(manifest: Path | None, row: dict[str, Any]) -> EpisodeEnv:
    register_environment(manifest=str(manifest) if manifest else None)
    return skyrl_gym.make(row["env_class"], env_config={}, extras=dict(row))


def play(env: EpisodeEnv, lines: Any) -> Any:
    return [env.step(line) for line in lines][-1]


def test_rows_of_the_export_play_to_their_rewards(
    manifest: Path, rows: list[dict[str, Any]]
) -> None:
    metrics = []
    for row in rows[2:]:
        env = make(manifest, row)
        messages, said = env.init(row["prompt"])
        assert messages == row["prompt"] and said["row_id"] in row["env_json"]
        last = play(env, right_answer(said["row_id"]))
        assert last["reward"] == 3.0 and last["done"] and last["observations"] == []
        assert last["metadata"]["group_seen"] is False
        metrics.append(env.get_metrics())
        env.close()
    assert aggregate_for_environment("envbuild", metrics)["equivalent"] == 1.0


def test_the_gate_of_the_first_step_holds(manifest: Path, rows: list[dict[str, Any]]) -> None:
    env = make(manifest, rows[0])
    env.init(rows[0]["prompt"])
    refused = env.step(call("submit_sql", sql="SELECT 1"))
    assert not refused["done"] and "run_query" in refused["observations"][0]["content"]


def test_an_episode_left_early_is_closed_and_another_may_start(
    manifest: Path, rows: list[dict[str, Any]]
) -> None:
    env = make(manifest, rows[3])
    with pytest.raises(StateError):
        env.step("x")
    env.init(rows[3]["prompt"])
    assert env.step(call("list_tables"))["reward"] == 0.0
    env.close()
    env.init(rows[3]["prompt"])
    assert play(env, wrong_answer("SELECT 1"))["done"]
    with pytest.raises(StateError):
        env.step("more")


def test_what_is_wrong_is_said(
    manifest: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownNameError, match="conversation, string"):
        register_environment(mode="chat")
    monkeypatch.delenv("ENVBUILD_MANIFEST", raising=False)
    with pytest.raises(ConfigurationError, match="ENVBUILD_MANIFEST"):
        make(None, rows[0])
