"""What the options of `rollout` and `play` do to the requests, and what the episodes keep of it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.env.client import CompletionsClient
from envbuild.env.prompts import load_prompts
from envbuild.errors import ConfigurationError
from envbuild.io.episodes import iter_episodes, read_index
from envbuild.records.episode import EndedBy, Episode, Sampling
from envbuild.testing.policies import call
from envbuild.testing.server import PolicyServer
from tests.env.served import ROW, Scripted, note_waits, roll_one
from tests.small_manifest import QUESTIONS

GOLD = QUESTIONS[0].gold
KEY = "sk-not-for-any-eyes-0123456789"


SUBMIT = call("submit_sql", sql=GOLD)


def play(manifest: Path, typed: str, *options: str) -> dict[str, Any]:
    """The document of a played episode, with what was said beside it."""
    found = CliRunner().invoke(
        app, ["play", str(manifest), "--row", ROW, "--json", *options], input=typed
    )
    assert found.exit_code == 0, (found.output, found.exception)
    return {**json.loads(found.stdout), "said": found.stderr}


def test_prompts_of_ones_own(manifest: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("system = 'Just answer. {tools}'\nturn_left = '<one more>'")
    own = load_prompts(file).sha256
    server = PolicyServer(manifest)
    episode = roll_one(server, manifest, tmp_path / "own", "--prompts", str(file))
    assert "Just answer. " in server.requests[0]["prompt"]
    assert QUESTIONS[0].question in server.requests[0]["prompt"], "the others stay the package's"
    assert episode.prompts_sha256 == own
    assert read_index(tmp_path / "own").configuration["prompts_sha256"] == own
    played = play(manifest, f"prompt\nsubmit {GOLD}\n", "--prompts", str(file))
    assert played["episode"]["prompts_sha256"] == own
    assert "Just answer. " in played["said"] and "Just answer. " in played["episode"]["prompt"]


@pytest.mark.parametrize(
    ("preset", "recorded", "rule", "ran"),
    [
        ("one-call", "one-call", "one_call", 1),
        ("several-calls", "default", "several_calls", 2),
        ("default", "default", "several_calls", 2),
    ],
)
def test_a_preset_rules_the_calls_of_a_turn(
    manifest: Path, tmp_path: Path, preset: str, recorded: str, rule: str, ran: int
) -> None:
    twice = call("run_query", sql="SELECT 1") + " " + call("run_query", sql="SELECT 2")
    server = Scripted(manifest, twice, SUBMIT)
    episode = roll_one(server, manifest, tmp_path, "--preset", preset)
    played = msgspec.convert(
        play(manifest, f"{twice}\nsubmit {GOLD}\n", "--preset", preset)["episode"], Episode
    )
    prompts = load_prompts()
    others = {prompts.one_call, prompts.several_calls} - {getattr(prompts, rule)}
    for one in (episode, played):
        assert one.preset == recorded
        assert getattr(prompts, rule) in one.prompt
        assert not [other for other in others if other in one.prompt]
        assert [c.outcome for c in one.turns[0].calls].count("ok") == ran
    assert server.requests[0]["prompt"] == episode.prompt


def test_evaluation_samples_as_published_and_has_no_gate(manifest: Path, tmp_path: Path) -> None:
    server = Scripted(manifest, SUBMIT)
    episode = roll_one(server, manifest, tmp_path, "--evaluation", "--step", "0")
    sampled = {key: server.requests[0][key] for key in ("temperature", "top_p", "top_k")}
    assert sampled == {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
    assert (episode.gate_probability, episode.gated, len(episode.turns)) == (0.0, False, 1)
    assert episode.ended_by is EndedBy.SUBMIT_SQL
    configuration: Any = read_index(tmp_path).configuration
    assert configuration["settings"]["evaluation"] is True
    assert configuration["sampling"] == sampled


@pytest.mark.parametrize(
    ("step", "probability", "gated"),
    [((), 0.0, False), (("--step", "0"), 1.0, True), (("--step", "80"), 0.0, False)],
)
def test_a_step_sets_the_submit_gate(
    manifest: Path, tmp_path: Path, step: tuple[str, ...], probability: float, gated: bool
) -> None:
    server = Scripted(manifest, SUBMIT, call("run_query", sql=GOLD), SUBMIT)
    episode = roll_one(server, manifest, tmp_path, *step)
    typed = f"submit {GOLD}\nsql {GOLD}\nsubmit {GOLD}\n"
    played = msgspec.convert(play(manifest, typed, *step)["episode"], Episode)
    for one in (episode, played):
        assert (one.gate_probability, one.gated) == (probability, gated)
        assert len(one.turns) == (3 if gated else 1)
        assert one.ended_by is EndedBy.SUBMIT_SQL and one.sql == GOLD
        assert (load_prompts().gate in one.turns[0].observation) == gated
    assert read_index(tmp_path).configuration["step"] == (int(step[1]) if step else None)


@pytest.mark.parametrize(
    ("said", "waited"),
    [
        ("0.2", 0.2),  # sooner than we would have come again
        ("7", 7.0),  # later
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0.5),
        ("nan", 0.5),
    ],
)
def test_a_server_says_when_to_come_again(
    manifest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    said: str,
    waited: float,
) -> None:
    waits = note_waits(monkeypatch)
    server = PolicyServer(manifest, failures={0: 429}, retry_after=said)
    roll_one(server, manifest, tmp_path)
    assert waits == [waited]
    assert server.requests[0] == server.requests[1], "the same one, once more"


class Telltale(PolicyServer):
    """Fails, and repeats the key."""

    def answer(self, payload: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        super().answer(payload)
        return 418, {"error": f"denied for {self.headers[-1].get('Authorization')}"}


@pytest.mark.parametrize("kind", [PolicyServer, Telltale])
def test_the_key_goes_out_and_nowhere_else(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[PolicyServer]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")  # as $(cat file) in some shells leaves it
    server = kind(manifest)
    with server as base_url:
        arguments = ["rollout", str(manifest), "--row", ROW, "--episodes", "1", "--trace"]
        arguments += ["--out", str(tmp_path), "--base-url", base_url, "--model", "oracle"]
        said = [CliRunner().invoke(app, arguments).output]
    assert {h["Authorization"] for h in server.headers} == {f"Bearer {KEY}"}
    said += [msgspec.json.encode(episode).decode() for episode in iter_episodes(tmp_path)]
    said += [file.read_bytes().decode(errors="replace") for file in tmp_path.iterdir()]
    assert any("denied for Bearer [the API key]" in text for text in said) == (kind is Telltale)
    assert not [text for text in said if KEY in text]


@pytest.mark.parametrize("key", ["sk-sécret", "sk-a\nb", "sk-\x00"])
def test_a_key_that_no_header_carries_is_refused_unseen(manifest: Path, key: str) -> None:
    with pytest.raises(ConfigurationError, match="no HTTP header can carry") as found:
        CompletionsClient("http://127.0.0.1:9/v1", "m", sampling=Sampling(), api_key=key)
    assert key not in str(found.value)
