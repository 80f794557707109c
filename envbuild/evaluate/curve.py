"""The reward of a training run step by step, from the trainer's own log."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from envbuild.errors import UsageError


class LoggedStep(msgspec.Struct, frozen=True, kw_only=True):
    """What a trainer logged of one step, or as a mean of the steps since it logged before."""

    step: int
    reward: float
    """Mean of the rewards."""
    spread: float
    """Their standard deviation; 0 where it was not logged."""


def read_training_log(path: Path) -> list[LoggedStep]:
    """The logged steps that have a reward, in order.

    `path` is TRL's `trainer_state.json` (the list `log_history`, whose entries have `step`,
    `reward` and `reward_std`), or the same entries as JSON lines. Of a step that was logged twice
    the last counts, as where a run went on from a checkpoint. Raises UsageError where the file
    cannot be read or holds no reward.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"cannot read the training log {path}: {e}") from e
    found = {}
    for entry in _entries(text):
        step, reward, spread = (entry.get(key) for key in ("step", "reward", "reward_std"))
        if isinstance(step, int) and _is_finite(reward):
            known = float(spread) if _is_finite(spread) else 0.0
            found[step] = LoggedStep(step=step, reward=float(reward), spread=known)
    if not found:
        raise UsageError(
            f"{path} logs no reward: give TRL's trainer_state.json (of a checkpoint), or JSON "
            "lines with `step` and `reward`"
        )
    return [found[step] for step in sorted(found)]


class RewardCurve:
    """The picture of it. Numbers are pixels, from its upper left corner."""

    WIDTH, HEIGHT = 960, 280
    LEFT, RIGHT, TOP, BOTTOM = 44, 16, 14, 40

    def __init__(self, steps: Sequence[LoggedStep]) -> None:
        rewards = [step.reward for step in steps]
        self.steps = steps
        self.first, self.last = steps[0].step, steps[-1].step
        self.low = min(0, math.floor(min(rewards)))
        self.high = max(3, math.ceil(max(rewards)))
        """The axis: envbuild's rewards lie between 0 and 3."""
        tenth = max(1, len(steps) // 10)
        self.ends = (_mean(rewards[:tenth]), _mean(rewards[-tenth:]))
        """Mean reward of the first and of the last tenth."""
        near = len(steps) // 40
        """Steps on either side that the smooth line takes in."""
        self.smooth = self._line(
            (step.step, _mean(rewards[max(0, at - near) : at + near + 1]))
            for at, step in enumerate(steps)
        )
        self.raw = self._line((step.step, step.reward) for step in steps)
        upper = [(step.step, step.reward + step.spread) for step in steps]
        lower = [(step.step, step.reward - step.spread) for step in reversed(steps)]
        self.band = self._line([*upper, *lower])

    def x(self, step: float) -> float:
        """Where a step stands."""
        share = (step - self.first) / max(1, self.last - self.first)
        return round(self.LEFT + share * (self.WIDTH - self.LEFT - self.RIGHT), 1)

    def y(self, reward: float) -> float:
        """Where a reward stands; one past the axis at its end."""
        share = (min(max(reward, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.HEIGHT - self.BOTTOM - share * (self.HEIGHT - self.TOP - self.BOTTOM), 1)

    def ticks(self) -> Iterable[int]:
        """Steps that are named under the axis."""
        span = self.last - self.first
        return sorted({self.first + span * part // 4 for part in range(5)})

    def _line(self, points: Iterable[tuple[int, float]]) -> str:
        return " ".join(f"{self.x(step)},{self.y(reward)}" for step, reward in points)


def _entries(text: str) -> list[dict[str, Any]]:
    """The log's records; what is none is left out."""
    try:
        document = json.loads(text)  # TRL writes NaN, which is JSON to Python alone
        found = document.get("log_history", [document]) if isinstance(document, dict) else document
    except json.JSONDecodeError:
        found = [_parse(line) for line in text.splitlines()]
    return [entry for entry in found or () if isinstance(entry, dict)]


def _parse(line: str) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError:  # the last line of a run that was stopped
        return None


def _is_finite(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and math.isfinite(value)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
