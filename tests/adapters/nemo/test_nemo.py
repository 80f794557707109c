"""The resources server under NeMo Gym's own base class, called as its simple agent calls it."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nemo_gym", reason="nemo-gym needs Python 3.12: tests/adapters/run.sh nemo")

from fastapi.testclient import TestClient
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf

from envbuild.train.nemo import EpisodeResourcesServer, EpisodeServerConfig
from tests.adapters.questions import QUESTIONS, export_for, make_manifest, make_schedule


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    manifest = make_manifest(tmp_path / "manifest")
    plan = make_schedule(steps=2, questions=2, episodes=2)
    data = export_for(manifest, tmp_path / "data", "nemo", plan)
    return [json.loads(line) for line in (data / "train.jsonl").read_text().splitlines()]


@pytest.fixture
def app(tmp_path: Path, rows: list[dict[str, Any]]) -> Any:
    config = EpisodeServerConfig(
        host="127.0.0.1",
        port=1,
        entrypoint="app.py",
        name="envbuild",
        domain="coding",
        manifest=str(tmp_path / "manifest"),
    )
    head = BaseServerConfig(host="127.0.0.1", port=1)
    client = ServerClient(head_server_config=head, global_config_dict=OmegaConf.create({}))
    server = EpisodeResourcesServer(config=config, server_client=client)
    app = server.setup_webserver()
    server.setup_session_middleware(app)
    return app


def verify(client: TestClient, row: dict[str, Any], said: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": said, "annotations": []}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    response = {
        "id": "r",
        "object": "response",
        "created_at": 0,
        "model": "m",
        "output": [message],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }
    answer = client.post("/verify", json={**row, "response": response})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def gold_of(row: dict[str, Any]) -> str:
    return QUESTIONS[int(row["row_id"].rpartition("q")[2])][1]


def test_tools_explore_and_a_submitted_answer_is_scored(app: Any, rows: Any) -> None:
    with TestClient(app) as client:
        assert client.post("/seed_session", json=rows[0]).status_code == 200
        assert "town" in client.post("/list_tables", json={}).text
        assert client.post("/run_query", json={"sql": gold_of(rows[0])}).status_code == 200
        over = client.post("/submit_sql", json={"sql": gold_of(rows[0])}).text
        assert "recorded" in over and "recorded" in client.post("/list_tables", json={}).text
        result = verify(client, rows[0], "Done.")
        assert result["reward"] == 3.0 and result["ended_by"] == "submit_sql"
        assert result["group_seen"] is False and result["scored"] is True


def test_last_words_are_the_answer_where_none_was_submitted(app: Any, rows: Any) -> None:
    with TestClient(app) as client:
        client.post("/seed_session", json=rows[1])
        assert verify(client, rows[1], f"```sql\n{gold_of(rows[1])}\n```")["reward"] == 3.0
        client.post("/seed_session", json=rows[2])
        assert verify(client, rows[2], "I do not know.")["ended_by"] == "no_answer"
        client.post("/seed_session", json=rows[2])
        client.post("/run_query", json={"sql": gold_of(rows[2])})
        last = verify(client, rows[2], "I do not know.")
        assert last["ended_by"] == "fallback_to_last_working_query" and last["reward"] == 3.0
