"""What a run draws at which step (CONTRACT 11)."""

import msgspec


class Phase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some steps over which the mixture goes linearly from `start` to `end`."""

    steps: int
    """Its length; the mixture reaches `end` at the first step after it."""
    start: tuple[float, ...]
    """Shares a bucket, in the schedule's bucket order; sums to 1."""
    end: tuple[float, ...] = ()
    """Empty: `start` is held."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which buckets a run draws from at which step, and how likely the submit gate is."""

    name: str
    buckets: tuple[str, ...] = ()
    """The manifest's bucket names, easiest first; empty: no curriculum, one pool of everything."""
    pool: tuple[float, ...] = ()
    """Share of the pool a bucket, same order; sums to 1."""
    phases: tuple[Phase, ...] = ()
    """In order; the last one's end holds for the rest of the run."""
    steps: int = 1800
    """Optimiser steps, one update each."""
    questions: int = 18
    """Groups a step."""
    episodes: int = 8
    """Episodes a group."""
    gate_steps: int = 80
    """Steps over which the submit gate's probability goes from 1 to 0."""


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One question of one step: a row of schedule.parquet."""

    schedule_step: int
    """0-based."""
    schedule_slot: int
    """0-based position within the step."""
    row_id: str
    bucket: str
    """The bucket whose share it fills."""
    epoch: int
    """How often that bucket had been spent before."""
    gate_probability: float
    """The submit gate's at this step."""


class BucketFill(msgspec.Struct, frozen=True, kw_only=True):
    """How one bucket's share of the pool was filled."""

    bucket: str
    share: float
    wanted: int
    """Rows its share asks for."""
    offered: int
    """Rows of the manifest that may be used."""
    taken: int
    """Rows of its own in the pool."""
    borrowed: int = 0
    """Rows of neighbouring buckets that stand in."""
    lenders: tuple[str, ...] = ()

    @property
    def lacking(self) -> int:
        """Rows that nothing filled."""
        return self.wanted - self.taken - self.borrowed
