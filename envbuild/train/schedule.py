"""What each training step draws, from (seed, step) alone: mixtures, presets and draws."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from envbuild.engine.seeds import derived_random
from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.records.manifest import Phase, Recipe, Schedule, ScheduleRow

# The mixture and the submit gate at a step, exact: shares are fractions, never rounded floats.


EVERYTHING = "all"
"""The one bucket of a schedule that has none."""


def mixture_at(schedule: Schedule, step: int) -> dict[str, Fraction]:
    """Each bucket's share of the questions of `step` (0-based); a step past the end holds."""
    if not schedule.buckets:
        return {EVERYTHING: Fraction(1)}
    left = step
    for phase in schedule.phases[:-1]:
        if left < phase.steps:
            break
        left -= phase.steps
    else:
        phase = schedule.phases[-1]
    passed = min(Fraction(left, phase.steps), Fraction(1)) if phase.steps else Fraction(1)
    start = [exact(share) for share in phase.start]
    end = [exact(share) for share in phase.end or phase.start]
    shares = [a + (b - a) * passed for a, b in zip(start, end, strict=True)]
    return dict(zip(schedule.buckets, shares, strict=True))


def gate_at(schedule: Schedule, step: int) -> float:
    """The submit gate's probability: 1 at step 0, linearly to 0 at `gate_steps`."""
    if schedule.gate_steps <= 0:
        return 0.0
    return float(max(Fraction(0), 1 - Fraction(step, schedule.gate_steps)))


def iter_counts(schedule: Schedule) -> Iterator[dict[str, int]]:
    """Questions a bucket at step 0, 1, … without end; each step's sum to `schedule.questions`.

    Largest remainders of the cumulative shares: a step's questions go one by one to the bucket that
    is owed most of all that the shares have promised so far (a tie: to the earlier). Rounded step
    by step, 18 questions by 0.15, 0.20, 0.65 would be 3, 3 and 12 for as long as the shares hold.
    """
    owed = dict.fromkeys(schedule.buckets or (EVERYTHING,), Fraction(0))
    for step in itertools.count():
        for bucket, share in mixture_at(schedule, step).items():
            owed[bucket] += share * schedule.questions
        counts = dict.fromkeys(owed, 0)
        for _ in range(schedule.questions):
            bucket = max(owed, key=owed.__getitem__)
            owed[bucket] -= 1
            counts[bucket] += 1
        yield counts


def apportion(total: int, shares: Sequence[Fraction]) -> list[int]:
    """`total` split by shares that sum to 1, by largest remainders; a tie goes to the earlier."""
    quotas = [share * total for share in shares]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(shares)), key=lambda i: (counts[i] - quotas[i], i))
    for position in by_remainder[: total - sum(counts)]:
        counts[position] += 1
    return counts


def largest_total(available: Sequence[int], shares: Sequence[Fraction]) -> int:
    """The most that `apportion` divides without asking for more than a place has.

    All there is, where a place that has a share has nothing.
    """
    totals = [has / share for has, share in zip(available, shares, strict=True) if share]
    if not all(totals):
        return sum(available)
    total = min(sum(available), math.ceil(min(totals)))
    while any(count > has for count, has in zip(apportion(total, shares), available, strict=True)):
        total -= 1
    return total


def exact(share: float) -> Fraction:
    """The fraction a person meant by writing `share`: 0.3 is 3/10."""
    return Fraction(str(share))


# Schedules and recipes by name, or from a TOML file of the same form.


N = TypeVar("N", Schedule, Recipe)


def load_schedule(name: str) -> Schedule:
    """The preset called `name`, or the schedule in the TOML file at that path.

    Raises UnknownNameError where it is neither, ConfigurationError where it does not add up.
    """
    return parse_schedule(_named_text("schedule", name, "presets"), name)


def parse_schedule(text: bytes, source: str) -> Schedule:
    """The schedule in TOML text; `source` names it in errors."""
    schedule = _decoded(f"schedule {source}", text, Schedule)
    for fault in _faults(schedule):
        raise ConfigurationError(f"schedule {source}: {fault}")
    return schedule


def load_recipe(name: str) -> Recipe:
    """The published recipe called `name`, or the one in the TOML file at that path.

    The two cards of one published model differ, so there are two recipes, never a mixture. Raises
    UnknownNameError where it is neither, ConfigurationError where a value cannot be.
    """
    recipe = _decoded(f"recipe {name}", _named_text("recipe", name, "recipes"), Recipe)
    if recipe.ratio_level not in ("token", "sequence"):
        raise ConfigurationError(
            f"recipe {name}: ratio_level is token or sequence, not {recipe.ratio_level!r}"
        )
    return recipe


def _named_text(kind: str, name: str, folder: str) -> bytes:
    if name.endswith(".toml"):
        try:
            return Path(name).read_bytes()
        except OSError as e:
            raise ConfigurationError(f"cannot read the {kind} {name}: {e.strerror}") from e
    presets = resources.files("envbuild.train") / folder
    known = [entry.name.removesuffix(".toml") for entry in presets.iterdir()]
    if name not in known:
        raise UnknownNameError(kind, name, [*known, "a path that ends in .toml"])
    return (presets / f"{name}.toml").read_bytes()


def _decoded(source: str, text: bytes, record: type[N]) -> N:
    try:
        return msgspec.toml.decode(text, type=record)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise ConfigurationError(f"{source}: {e}") from e


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
    sizes = apportion(largest_total(list(rows.values()), shares), shares)
    pool = dict(zip(rows, sizes, strict=True))
    kept = {name: n for name, n in rows.items() if pool[name] and n * 100 >= total}
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
    while any(
        count > pool[name]
        for counts in islice(iter_counts(plan), plan.steps)
        for name, count in counts.items()
    ):
        plan = replace(plan, questions=plan.questions - 1)
    return plan


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


def _faults(schedule: Schedule) -> Iterator[str]:
    shares = {"pool": schedule.pool} if schedule.buckets else {}
    for position, phase in enumerate(schedule.phases, 1):
        shares[f"phase {position}'s start"] = phase.start
        if phase.end:
            shares[f"phase {position}'s end"] = phase.end
    if len(set(schedule.buckets)) != len(schedule.buckets):
        yield "a bucket is named twice"
    if schedule.buckets and not schedule.phases:
        yield "buckets need at least one [[phases]] entry"
    if not schedule.buckets and (schedule.phases or schedule.pool):
        yield "pool shares and phases need `buckets`"
    for label, values in shares.items():
        if len(values) != len(schedule.buckets):
            yield f"{label} needs {len(schedule.buckets)} shares, has {len(values)}"
        elif min(values) < 0 or sum(exact(v) for v in values) != 1:
            yield f"{label} must be shares that sum to 1, got {list(values)}"


# The questions of a step, from (seed, step) alone: no state, no order of calls.
#
# Each bucket is an endless row of shuffles of its questions; a step takes the next ones where all
# earlier steps together stopped. So nothing comes twice before its bucket is spent.


class StepDraw(msgspec.Struct, frozen=True, kw_only=True):
    """What one step draws, and why."""

    step: int
    mixture: dict[str, float]
    gate_probability: float
    counts: dict[str, int]
    """Questions a bucket."""
    rows: tuple[ScheduleRow, ...]
    lacking: dict[str, int]
    """Questions that a bucket's pool cannot give at once: repeated, or missing if it is empty."""


class Draws:
    """Every step's draw over one pool."""

    def __init__(self, schedule: Schedule, pool: Mapping[str, Sequence[str]], *, seed: int) -> None:
        """`pool`: row ids a bucket, in an order that does not depend on chance."""
        self.schedule, self.pool, self.seed = schedule, pool, seed
        self._orders: dict[tuple[str, int], list[str]] = {}
        self._counts = list(islice(iter_counts(schedule), schedule.steps))
        self._before: list[dict[str, int]] = [dict.fromkeys(self._counts[0], 0)]
        """Questions a bucket in all steps before each."""
        for counts in self._counts:
            self._before.append({name: self._before[-1][name] + n for name, n in counts.items()})

    def at(self, step: int) -> StepDraw:
        """The draw of `step`, from 0 to the schedule's last."""
        counts, gate = self._counts[step], gate_at(self.schedule, step)
        sizes = {bucket: len(self.pool.get(bucket, ())) for bucket in counts}
        drawn = []
        for bucket, count in counts.items():
            start = self._before[step][bucket]
            for position in range(start, start + count) if sizes[bucket] else ():
                epoch, place = divmod(position, sizes[bucket])
                drawn.append((bucket, epoch, self._order(bucket, epoch)[place]))
        derived_random(self.seed, str(step), "slots").shuffle(drawn)
        return StepDraw(
            step=step,
            mixture={name: float(share) for name, share in mixture_at(self.schedule, step).items()},
            gate_probability=gate,
            counts=counts,
            rows=tuple(
                ScheduleRow(
                    schedule_step=step,
                    schedule_slot=slot,
                    row_id=row_id,
                    bucket=bucket,
                    epoch=epoch,
                    gate_probability=gate,
                )
                for slot, (bucket, epoch, row_id) in enumerate(drawn)
            ),
            lacking={
                bucket: count - sizes[bucket]
                for bucket, count in counts.items()
                if count > sizes[bucket]
            },
        )

    def _order(self, bucket: str, epoch: int) -> list[str]:
        """The bucket's questions in the order of one epoch.

        Where an epoch begins, the last questions of the one before wait, so that a step across
        the border has none twice.
        """
        key = (bucket, epoch)
        if key not in self._orders:
            if len(self._orders) > 4 * len(self.pool):
                self._orders.clear()
            order = self._shuffle(bucket, epoch)
            # a third: the head that is rearranged never reaches the tail that the next epoch avoids
            wait = min(self.schedule.questions, len(order) // 3)
            if epoch and wait:
                recent = set(self._shuffle(bucket, epoch - 1)[-wait:])
                order[: 2 * wait] = sorted(order[: 2 * wait], key=recent.__contains__)
            self._orders[key] = order
        return self._orders[key]

    def _shuffle(self, bucket: str, epoch: int) -> list[str]:
        order = list(self.pool[bucket])
        derived_random(self.seed, f"{bucket}/{epoch}", "order").shuffle(order)
        return order
