"""What the client waits for between attempts, told instead of waited."""

import asyncio

import pytest


def note_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the client sleeps from here on; none of them is slept."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    return waits
