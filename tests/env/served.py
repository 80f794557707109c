"""Rollouts against a server of scripted policies, and the waits between attempts."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.io.episodes import iter_episodes
from envbuild.records.episode import Episode
from envbuild.testing.server import PolicyServer

ROW = "music/music/0"


def roll(
    manifest: Path, out: Path, base_url: str, *more: str, model: str = "oracle", exits: int = 0
) -> Any:
    """The document of `envbuild rollout`."""
    arguments = ["rollout", str(manifest), "--base-url", base_url, "--model", model]
    found = CliRunner().invoke(app, [*arguments, "--out", str(out), "--json", *more])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == exits, found.output
    return json.loads(found.stdout)


def roll_one(
    server: PolicyServer, manifest: Path, out: Path, *options: str, exits: int = 0
) -> Episode:
    """The one episode that came of it."""
    with server as base_url:
        one = ("--row", ROW, "--episodes", "1")
        roll(manifest, out, base_url, *one, *options, exits=exits)
    (episode,) = iter_episodes(out)
    return episode


class Scripted(PolicyServer):
    """Says one text a turn, the last one again and again."""

    def __init__(self, manifest: Path, *texts: str) -> None:
        super().__init__(manifest)
        self.texts = texts

    def answer(self, payload: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        super().answer(payload)
        text = self.texts[min(len(self.requests), len(self.texts)) - 1]
        return 200, {"choices": [{"text": text, "finish_reason": "stop"}]}


def note_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the client sleeps from here on; none of them is slept."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    return waits
