"""Rollouts over real HTTP: kept, resumed after a kill, retried, clamped, refused in a sentence."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import envbuild
from envbuild.cli.app import app
from envbuild.env.client import ServerGenerate
from envbuild.errors import OperatorError, StateError
from envbuild.io.episodes import JOURNAL, iter_episodes
from envbuild.records.episode import EndedBy
from envbuild.testing.policies import ByteTokenizer, call
from envbuild.testing.server import PolicyServer
from tests.env.served import Scripted, roll
from tests.small_manifest import QUESTIONS

runner = CliRunner()
ROWS = len(QUESTIONS)
LISTS = '{"tool": "list_tables", "args": {}}'


@pytest.mark.parametrize("dialect", ["vllm", "openai"])
def test_oracle_over_http(manifest: Path, tmp_path: Path, dialect: str) -> None:
    server = PolicyServer(manifest)
    with server as base_url:
        found = roll(manifest, tmp_path, base_url, "--episodes", "2", "--dialect", dialect)
    assert found["ended_by"] == {"submit_sql": 2 * ROWS}
    assert all(isinstance(payload["prompt"], str) for payload in server.requests)
    later = [payload["prompt"] for payload in server.requests if "</think>" in payload["prompt"]]
    assert later, "the thinking of earlier turns stays in the prompt"
    assert ("skip_special_tokens" in server.requests[0]) == (dialect == "vllm")
    scored = runner.invoke(app, ["score", str(tmp_path), "--json"])
    assert scored.exit_code == 0, scored.output
    assert json.loads(scored.stdout)["mean_reward"] == 3.0
    page = tmp_path / "page.html"
    assert runner.invoke(app, ["view", str(tmp_path), "--html", str(page)]).exit_code == 0
    assert QUESTIONS[0].question in page.read_text()


def test_a_kill_loses_nothing_finished(manifest: Path, tmp_path: Path) -> None:
    server = PolicyServer(manifest)
    with server as base_url:
        command = [sys.executable, "-m", "envbuild", "rollout", str(manifest), "--out"]
        command += [str(tmp_path), "--base-url", base_url, "--model", "oracle"]
        command += ["--episodes", "40", "--concurrency", "2"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            journal = tmp_path / JOURNAL
            for _ in range(12_000):
                if journal.exists() and journal.read_bytes().count(b"\n") >= 5:
                    break
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
        kept = journal.read_bytes().count(b"\n")
        assert kept >= 5
        asked = len(server.requests)
        roll(manifest, tmp_path, base_url, "--episodes", "40")
    episodes = list(iter_episodes(tmp_path))
    assert len(episodes) == 40 * ROWS == len({episode.episode_id for episode in episodes})
    assert len(server.requests) - asked < sum(len(episode.turns) for episode in episodes)


def test_passing_faults_are_retried_and_lasting_ones_recorded(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envbuild.env.client.FIRST_WAIT", 0.001)
    with PolicyServer(manifest, failures={0: 503, 1: 429, 3: 500}) as base_url:
        found = roll(manifest, tmp_path / "a", base_url, "--episodes", "1", "--concurrency", "1")
    assert found["ended_by"] == {"submit_sql": ROWS}
    broken = dict.fromkeys(range(6), 500)
    with PolicyServer(manifest, failures=broken) as base_url:
        one = ("--episodes", "1", "--concurrency", "1")
        found = roll(manifest, tmp_path / "b", base_url, *one, exits=1)
    assert found["ended_by"] == {"server_error": 1, "submit_sql": ROWS - 1}
    failed = [e for e in iter_episodes(tmp_path / "b") if e.ended_by is EndedBy.SERVER_ERROR]
    assert "status 500" in failed[0].error


def test_an_outage_is_nobodys_zero_and_is_asked_again(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envbuild.env.client.FIRST_WAIT", 0.001)
    server = PolicyServer(manifest, failures=dict.fromkeys(range(1, 10_000), 500))
    with server as base_url:  # the first turn of the first episode is answered
        one = ("--episodes", "1", "--concurrency", "1")
        found = roll(manifest, tmp_path, base_url, *one, exits=1)
        assert (found["ended_by"], found["unanswered"]) == ({"server_error": ROWS}, ROWS)
        assert [len(e.turns) for e in iter_episodes(tmp_path)] == [1, *[0] * (ROWS - 1)]

        scored = runner.invoke(app, ["score", str(tmp_path), "--json"])
        document = json.loads(scored.stdout)
        assert (scored.exit_code, document["mean_reward"]) == (1, None)
        assert document["tiers"] == {"unscored": ROWS}
        judged = runner.invoke(app, ["evaluate", str(tmp_path), "--json"])
        evaluation = json.loads(judged.stdout)["evaluation"]
        assert judged.exit_code == 1 and "server_error" in judged.stderr
        assert (evaluation["scores"][0]["unscored"], evaluation["behaviour"]["episodes"]) == (
            ROWS,
            0,
        )
        page = tmp_path / "page.html"
        assert runner.invoke(app, ["view", str(tmp_path), "--html", str(page)]).exit_code == 0
        assert "server_error" in page.read_text()

        asked = len(server.requests)
        server.failures = {asked: 500, asked + 1: 500} | dict.fromkeys(range(asked + 7, 10**5), 500)
        found = roll(manifest, tmp_path, base_url, *one, exits=1)
        assert found["ended_by"] == {"submit_sql": 1, "server_error": ROWS - 1}
        seen = runner.invoke(app, ["view", str(tmp_path), "--html", str(page), "--json"])
        assert json.loads(seen.stdout)["scored"] == ROWS - 1, "one reward is out of date"
        server.failures = {}
        found = roll(manifest, tmp_path, base_url, *one)
    assert (found["ended_by"], found["unanswered"]) == ({"submit_sql": ROWS}, 0)
    assert len(list(iter_episodes(tmp_path))) == found["episodes"] == ROWS
    scored = runner.invoke(app, ["score", str(tmp_path), "--json"])
    assert (scored.exit_code, json.loads(scored.stdout)["mean_reward"]) == (0, 3.0)


def test_what_only_the_operator_can_mend_is_a_sentence(manifest: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with PolicyServer(manifest) as base_url:
        for url, model, said in (
            (f"http://127.0.0.1:{port}/v1", "oracle", "no server at"),
            ("localhost/v1", "oracle", "URL"),
            ("http://[::1/v1", "oracle", "URL"),
            (base_url, "nobody", "refuses model 'nobody'"),
        ):
            with pytest.raises(OperatorError, match=said):
                roll(manifest, tmp_path / model, url, model=model)
            assert not (tmp_path / model).exists(), "nothing was kept"


def test_ask_and_agent_over_ones_own_database(manifest: Path) -> None:
    database = next(manifest.parent.rglob("*.sqlite"))
    asked = QUESTIONS[0]
    before = database.read_bytes()
    with PolicyServer(manifest) as base_url:
        arguments = ["ask", "--db", str(database), "--question", asked.question]
        found = runner.invoke(
            app, [*arguments, "--base-url", base_url, "--model", "oracle", "--json"]
        )
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert document["episode"]["sql"] == asked.gold
    assert document["rows"]
    assert database.read_bytes() == before

    def generate(prompts: list[str]) -> list[str]:
        return ['{"tool": "submit_sql", "args": {"sql": "SELECT count(*) FROM singer"}}'] * len(
            prompts
        )

    agent = envbuild.Agent(generate)
    episodes = agent.run_many([("How many?", database), ("And now?", str(database))])
    assert [e.sql for e in episodes] == ["SELECT count(*) FROM singer"] * 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([], "0 completions for 1"),
        ("x", "gave a str, not a list"),
        (None, "gave a NoneType"),
        ([7], "a int as"),
    ],
)
def test_what_is_no_list_of_completions_is_refused(manifest: Path, wrong: Any, said: str) -> None:
    database = next(manifest.parent.rglob("*.sqlite"))
    with pytest.raises(StateError, match=said):
        envbuild.Agent(lambda prompts: wrong).run("How many?", database)


MANY = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"


@pytest.mark.parametrize(
    ("sql", "exits", "outcome", "said"),
    [
        ("SELECT 7 AS seven", 0, "ok", "seven"),
        (MANY, 0, "truncated", "more than 100000 rows; the first 50 are shown"),
        ("SELECT nope", 0, "error", "no such column: nope"),
        ("", 1, "", "no answer: the episode ended by no_answer"),
    ],
)
def test_ask_shows_what_there_is_and_exits_1_without_sql(
    manifest: Path, sql: str, exits: int, outcome: str, said: str
) -> None:
    database = next(manifest.parent.rglob("*.sqlite"))
    said_by_it = call("submit_sql", sql=sql) if sql else "I do not know."
    with Scripted(manifest, said_by_it) as base_url:
        arguments = ["ask", "--db", str(database), "--question", "?", "--base-url", base_url]
        arguments += ["--model", "m"]
        shown = runner.invoke(app, arguments)
        found = runner.invoke(app, [*arguments, "--json"])
    assert (shown.exit_code, found.exit_code) == (exits, exits)
    assert said in shown.stdout
    document = json.loads(found.stdout)
    assert document["outcome"] == outcome
    assert document["columns"] == {"ok": ["seven"], "truncated": ["i"]}.get(outcome, [])
    assert bool(document["rows"]) == bool(document["columns"])
    assert ("nope" in document["error"]) == (outcome == "error")


def test_a_callable_may_take_the_token_limits(manifest: Path) -> None:
    database = next(manifest.parent.rglob("*.sqlite"))
    seen: list[list[int]] = []

    def limited(prompts: list[str], max_new_tokens: list[int]) -> list[str]:
        seen.append(max_new_tokens)
        return [LISTS + " " * 400_000 for _ in prompts]

    def optional(prompts: list[str], temperature: float = 0.5) -> list[str]:
        assert temperature == 0.5
        return [LISTS] * len(prompts)

    (episode, _) = envbuild.Agent(limited).run_many([("How many?", database)] * 2)
    assert seen[0] == [2048, 2048] and seen[-1][0] < 2048
    assert episode.ended_by is EndedBy.TOKEN_BUDGET
    assert all(turn.truncated for turn in episode.turns)
    exact = envbuild.Agent(limited, tokenizer=ByteTokenizer()).run("How many?", database)
    assert [len(turn.completion) for turn in exact.turns[:2]] == [2048, 2048]
    assert envbuild.Agent(optional).run("How many?", database).ended_by is EndedBy.NO_ANSWER


def test_every_completion_has_a_seed_of_its_own(manifest: Path, tmp_path: Path) -> None:
    database = next(manifest.parent.rglob("*.sqlite"))
    asked = [(question.question, database) for question in QUESTIONS[:2]]

    def seeds(seed: int) -> list[int]:
        server = PolicyServer(manifest)
        with server as base_url:
            generate = ServerGenerate(base_url, "oracle", seed=seed)
            envbuild.Agent(generate).run_many(asked)
        return sorted(payload["seed"] for payload in server.requests)

    first = seeds(1)
    assert len(set(first)) == len(first) >= 6
    assert first == seeds(1) and not set(first) & set(seeds(2))


def test_the_scripted_server_is_a_command(manifest: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "envbuild.testing.server", str(manifest), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        base_url = p.stdout.readline().split()[1]
        assert "oracle" in p.stdout.readline()
        roll(manifest, tmp_path, base_url, "--episodes", "1")
        with pytest.raises(OperatorError, match="known: oracle, lazy"):
            roll(manifest, tmp_path / "b", base_url, model="nobody")
        p.send_signal(signal.SIGINT)
        assert p.wait(600) == 0
    gone = subprocess.run([*command[:3], str(tmp_path / "no")], capture_output=True, text=True)
    assert gone.returncode == 2 and "no manifest" in gone.stderr
