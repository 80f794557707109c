"""Schedules by name or from a TOML file of the same form."""

from collections.abc import Mapping
from fractions import Fraction
from importlib import resources
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from envbuild.curriculum.schedule import apportion, exact, iter_counts, largest_total
from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.records.manifest import Phase, Schedule


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


def suggest_schedule(rows: Mapping[str, int]) -> Schedule:
    """A schedule that these buckets can fill: `rows` counts what each offers, easiest first.

    The published shape, without its numbers: warm-up on the easiest bucket, an anneal from equal
    shares to the buckets' own, then these to the end. A bucket of under a hundredth of the rows is
    left out, and a step has fewer than 18 questions where no more can differ.
    """
    total = sum(rows.values())
    # thousandths that sum to one exactly
    own = apportion(1000, [Fraction(count, total) for count in rows.values()])
    equal = apportion(1000, [Fraction(1, len(rows))] * len(rows))
    shares = [Fraction(part, 1000) for part in own]
    pool = apportion(largest_total(list(rows.values()), shares), shares)
    kept = {
        name: count
        for (name, count), taken in zip(rows.items(), pool, strict=True)
        if taken and count * 100 >= total
    }
    if kept and len(kept) < len(rows):
        return suggest_schedule(kept)
    first = (1.0, *[0.0] * (len(rows) - 1))
    end, start = (tuple(part / 1000 for part in parts) for parts in (own, equal))
    plan = Schedule(
        name="suggested",
        buckets=tuple(rows),
        pool=end,
        phases=(
            Phase(steps=400, start=first),
            Phase(steps=1000, start=start, end=end),
            Phase(steps=400, start=end),
        ),
    )
    while not _fits(plan, dict(zip(rows, pool, strict=True))):
        plan = replace(plan, questions=plan.questions - 1)
    return plan


def _fits(plan: Schedule, pool: Mapping[str, int]) -> bool:
    """True where no step asks for more questions of a bucket than the pool has."""
    steps = islice(iter_counts(plan), plan.steps)
    return all(count <= pool[name] for step in steps for name, count in step.items())


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
