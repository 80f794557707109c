"""What real servers do: full windows in their own words, fields refused, text as it comes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.env.client import read_window, shorter
from envbuild.records.episode import EndedBy
from envbuild.testing.policies import call
from envbuild.testing.server import CHARACTERS_A_TOKEN, PolicyServer
from tests.env.served import Scripted, roll_one
from tests.shared import envbuild
from tests.small_manifest import QUESTIONS

runner = CliRunner()


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "code": 400}}


def test_a_window_that_the_turns_fill_is_a_spent_budget(manifest: Path, tmp_path: Path) -> None:
    roomy = PolicyServer(manifest, window=100_000)
    assert roll_one(roomy, manifest, tmp_path / "a").ended_by is EndedBy.SUBMIT_SQL
    last = -(-len(roomy.requests[-1]["prompt"]) // CHARACTERS_A_TOKEN)
    assert last < 2048, "the window below is smaller than a turn's own token limit"

    episode = roll_one(PolicyServer(manifest, window=last), manifest, tmp_path / "b")
    assert episode.ended_by is EndedBy.TOKEN_BUDGET
    assert episode.error == f"the server's window of {last} tokens is full"
    assert len(episode.turns) == len(roomy.requests) - 1
    assert episode.answer_source == "last_working_query"
    assert episode.sql == QUESTIONS[0].gold


def test_a_prompt_that_never_fits_is_the_servers_failure(manifest: Path, tmp_path: Path) -> None:
    episode = roll_one(PolicyServer(manifest, window=20), manifest, tmp_path, exits=1)
    assert episode.ended_by is EndedBy.SERVER_ERROR
    assert "the server's window of 20 tokens" in episode.error


@pytest.mark.parametrize(
    ("said", "window", "prompt"),
    [
        (
            "This model's maximum context length is 4096 tokens. However, your prompt contains at "
            "least 4097 input tokens, which exceeds this limit even without any output tokens.",
            4096,
            4097,
        ),
        ("max_tokens=5000 cannot be greater than max_model_len=4096. Please", 4096, None),
        (
            "'max_tokens' is too large: 2048. This model's maximum context length is 4096 tokens "
            "and your request has 3000 input tokens (2048 > 4096 - 3000).",
            4096,
            3000,
        ),
        (
            "The prompt is 4100 tokens, which exceeds the model's maximum context length of 4096 "
            "tokens.",
            4096,
            4100,
        ),
        (
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You "
            "requested a total of 5000 tokens: 3000 tokens from the input messages and 2000 "
            "tokens for the completion.",
            4096,
            3000,
        ),
        (
            "The input (4100 tokens) is longer than the model's context length (4096 tokens).",
            4096,
            4100,
        ),
        ("request (4100 tokens) exceeds the available context size (4096 tokens)", 4096, 4100),
    ],
)
def test_servers_words(said: str, window: int, prompt: int | None) -> None:
    assert read_window(400, json.dumps(_error(said))) == (window, prompt)
    assert read_window(500, said) is None


def test_a_shorter_limit() -> None:
    assert shorter(2048, 4096, 3000) == 1096
    assert shorter(2048, 4096, 4097) == 0
    assert shorter(2048, 1536, None) == 1535
    assert shorter(2048, 4096, None) == 1024
    assert shorter(1, 4096, 100) == 0, "it always shrinks"
    assert read_window(400, "temperature must be positive") is None


class Plain(PolicyServer):
    """Refuses what only vLLM knows, in the words of `transformers serve`."""

    def answer(self, payload: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if "top_k" in payload:
            fields = "{'add_special_tokens', 'top_k'}"
            return 422, {"detail": f"Unexpected fields in the request: {fields}"}
        return super().answer(payload)


def test_a_server_without_the_dialect_stops_the_rollout(manifest: Path, tmp_path: Path) -> None:
    with Plain(manifest) as base_url:
        command = ("rollout", manifest, "--model", "oracle", "--base-url", base_url)
        found = envbuild(*command, "--episodes", "1", "--out", tmp_path)
        assert found.returncode == 2
        assert "refuses fields of dialect vllm: try openai" in found.stderr
        spoken = ("--episodes", "1", "--out", tmp_path, "--dialect", "openai", "--json")
        found = envbuild(*command, *spoken)
        assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["ended_by"] == {"submit_sql": len(QUESTIONS)}


def test_ask_shows_text_as_it_is(manifest: Path) -> None:
    database = next(manifest.parent.rglob("*.sqlite"))
    styled = "SELECT '[/b] [red]it' AS \"[bold]\", char(27) || '[31m' AS b"
    with Scripted(manifest, call("submit_sql", sql=styled)) as base_url:
        found = runner.invoke(
            app,
            [
                *("ask", "--db", str(database), "--question", QUESTIONS[0].question),
                *("--base-url", base_url, "--model", "oracle", "--trace"),
            ],
        )
    assert found.exit_code == 0, found.output
    table = found.stdout.partition("\n")[2]
    assert "[bold]" in table
    assert "[/b] [red]it" in table
    assert "\\x1b[31m" in table
    assert "\x1b" not in found.output
