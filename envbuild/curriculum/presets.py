"""Schedules by name or from a TOML file of the same form."""

from collections.abc import Mapping
from fractions import Fraction
from importlib import resources
from pathlib import Path

import msgspec

from envbuild.curriculum.schedule import apportion, exact
from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.records.curriculum import Phase, Schedule


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


def suggest_schedule(shares: Mapping[str, int]) -> Schedule:
    """A schedule for a manifest's own buckets: `shares` counts its rows a bucket, easiest first.

    The published shape, without its numbers: warm-up on the easiest bucket, an anneal from equal
    shares to the manifest's own, then these to the end.
    """
    total = sum(shares.values())
    # thousandths that sum to one exactly
    own = apportion(1000, [Fraction(count, total) for count in shares.values()])
    equal = apportion(1000, [Fraction(1, len(shares))] * len(shares))
    first = (1.0, *[0.0] * (len(shares) - 1))
    end, start = (tuple(part / 1000 for part in parts) for parts in (own, equal))
    return Schedule(
        name="suggested",
        buckets=tuple(shares),
        pool=end,
        phases=(
            Phase(steps=400, start=first),
            Phase(steps=1000, start=start, end=end),
            Phase(steps=400, start=end),
        ),
    )


def render_schedule(schedule: Schedule) -> str:
    """The schedule as TOML that `load_schedule` reads back."""

    def value(field: object) -> str:
        return msgspec.json.encode(field).decode()

    lines = [
        f"{name} = {value(getattr(schedule, name))}"
        for name in schedule.__struct_fields__
        if name != "phases" and getattr(schedule, name) != ()
    ]
    for phase in schedule.phases:
        lines += ["", "[[phases]]", f"steps = {phase.steps}", f"start = {value(phase.start)}"]
        lines += [f"end = {value(phase.end)}"] if phase.end else []
    return "\n".join(lines) + "\n"


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
