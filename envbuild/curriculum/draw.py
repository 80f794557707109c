"""The questions of a step, from (seed, step) alone: no state, no order of calls.

Each bucket is an endless row of shuffles of its questions; a step takes the next ones where all
earlier steps together stopped. So nothing comes twice before its bucket is spent.
"""

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from envbuild.curriculum.schedule import gate_at, iter_counts, mixture_at
from envbuild.engine.seeds import derived_random
from envbuild.records.manifest import Schedule, ScheduleRow


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
        self._counts = list(itertools.islice(iter_counts(schedule), schedule.steps))
        self._before = _sums(self._counts)

    def at(self, step: int) -> StepDraw:
        """The draw of `step`, from 0 to the schedule's last."""
        counts = self._counts[step]
        gate = gate_at(self.schedule, step)
        drawn = [
            (bucket, epoch, row_id)
            for bucket, count in counts.items()
            for epoch, row_id in self._take(bucket, self._before[step][bucket], count)
        ]
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
                bucket: count - len(self.pool.get(bucket, ()))
                for bucket, count in counts.items()
                if count > len(self.pool.get(bucket, ()))
            },
        )

    def _take(self, bucket: str, start: int, count: int) -> list[tuple[int, str]]:
        size = len(self.pool.get(bucket, ()))
        if not size:
            return []
        taken = []
        for position in range(start, start + count):
            epoch, place = divmod(position, size)
            taken.append((epoch, self._order(bucket, epoch)[place]))
        return taken

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


def _sums(counts: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
    """The questions a bucket before each step."""
    before: list[Mapping[str, int]] = [dict.fromkeys(counts[0], 0)]
    for step in counts:
        before.append({bucket: before[-1][bucket] + count for bucket, count in step.items()})
    return before
