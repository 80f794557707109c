"""Schedules by name or from a TOML file of the same form."""

from importlib import resources
from pathlib import Path

import msgspec

from envbuild.curriculum.schedule import exact
from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.records.curriculum import Schedule


def load_schedule(name: str) -> Schedule:
    """The preset called `name`, or the schedule in the TOML file at that path.

    Raises UnknownNameError where it is neither, ConfigurationError where it does not add up.
    """
    if name.endswith(".toml"):
        return read_schedule(Path(name))
    folder = resources.files("envbuild.curriculum") / "presets"
    known = [entry.name.removesuffix(".toml") for entry in folder.iterdir()]
    if name not in known:
        raise UnknownNameError("schedule", name, [*known, "a path that ends in .toml"])
    return parse_schedule((folder / f"{name}.toml").read_bytes(), name)


def read_schedule(path: Path) -> Schedule:
    """The schedule a TOML file describes."""
    try:
        text = path.read_bytes()
    except OSError as e:
        raise ConfigurationError(f"cannot read the schedule {path}: {e.strerror}") from e
    return parse_schedule(text, str(path))


def parse_schedule(text: bytes, source: str) -> Schedule:
    """The schedule in TOML text; `source` names it in errors."""
    try:
        schedule = msgspec.toml.decode(text, type=Schedule)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise ConfigurationError(f"schedule {source}: {e}") from e
    for fault in _faults(schedule):
        raise ConfigurationError(f"schedule {source}: {fault}")
    return schedule


def _faults(schedule: Schedule) -> list[str]:
    faults = [
        f"{name} must be at least 1, got {value}"
        for name, value in (
            ("steps", schedule.steps),
            ("questions", schedule.questions),
            ("episodes", schedule.episodes),
        )
        if value < 1
    ]
    if len(set(schedule.buckets)) != len(schedule.buckets):
        faults.append("a bucket is named twice")
    if schedule.buckets and not schedule.phases:
        faults.append("buckets need at least one [[phases]] entry")
    if not schedule.buckets and (schedule.phases or schedule.pool):
        faults.append("pool shares and phases need `buckets`")
    shares = {"pool": schedule.pool} if schedule.buckets else {}
    for position, phase in enumerate(schedule.phases, 1):
        shares[f"phase {position}'s start"] = phase.start
        if phase.end:
            shares[f"phase {position}'s end"] = phase.end
        if phase.steps < 1:
            faults.append(f"phase {position} must have at least 1 step")
    for label, values in shares.items():
        if len(values) != len(schedule.buckets):
            faults.append(f"{label} needs {len(schedule.buckets)} shares, has {len(values)}")
        elif min(values) < 0 or sum(exact(v) for v in values) != 1:
            faults.append(f"{label} must be shares that sum to 1, got {list(values)}")
    return faults
