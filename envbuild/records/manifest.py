"""The question pool's rows (CONTRACT 6), hidden variants, and what a run draws (CONTRACT 11)."""

from typing import Annotated

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]


class ManifestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One frozen training input: a row of manifest.parquet. Strings are never null."""

    row_id: str
    corpus: str
    corpus_revision: str = ""
    split: str = ""
    question_id: str
    db_id: str
    question: str
    style: str = ""
    evidence: str = ""
    gold_sql: str
    masked_length: int
    """Unicode characters of the masked gold SQL."""
    bucket: str
    difficulty: str = ""
    gold_tables: tuple[str, ...]
    literals: tuple[str, ...]
    """The gold SQL's literals as written, in order."""
    signal: float | None = None
    """Share of mutants that the database tells apart; None = not measured."""
    signal_mutants: int = 0
    variants: tuple[str, ...] = ()
    """Ids of the hidden variants."""
    tables: tuple[str, ...]
    """The sampled view, in shown order."""
    distractors: tuple[str, ...]
    target_size: int
    seed: int
    sqlite_file: str
    """Relative to the manifest folder, or absolute."""
    database_sha256: str
    gold_id: str
    gold_digest: str
    gold_rows: int
    gold_columns: int
    gold_ordered: bool
    """The outermost query has ORDER BY."""
    findings: tuple[str, ...] = ()
    """Codes of preflight's findings about this question, and of leaks: `leaked_schema`, …"""


class GoldResult(msgspec.Struct, frozen=True, kw_only=True):
    """One gold result, computed once: a row of gold.parquet, keyed by (gold_id, variant)."""

    gold_id: str
    variant: str = ""
    """Empty for the visible database."""
    outcome: str
    """An `Outcome` value; only `ok` can be scored."""
    columns: tuple[str, ...]
    ordered: bool
    digest: str
    """`sql.results.digest_rows` of the rows; empty unless ok."""
    result: bytes
    """`sql.results.encode_rows` of the rows (MessagePack): typed, blobs included."""


class VariantRow(msgspec.Struct, frozen=True, kw_only=True):
    """One hidden variant as seed and added rows: a row of variants.parquet.

    The variant is the visible database with these rows added.
    """

    variant: str
    """`corpus/db_id/k.g`: the k-th variant for the g-th hundred golds."""
    corpus: str
    db_id: str
    seed: int
    """Of its amplification."""
    database_sha256: str
    """Of the visible database's file that the rows belong to."""
    rows_added: int
    rows: bytes
    """MessagePack of [[table, columns, [[rowid, value, …], …]], …], parents first."""


class SkippedGold(msgspec.Struct, frozen=True, kw_only=True):
    """A gold that a variant cannot judge, and why."""

    gold_id: str
    variant: str
    reason: str
    """`gold_empty`, `gold_failed`, `tie_sensitive`, or `not_amplified`: no such variant."""


class VariantBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One database's hidden variants, and its golds' results on them."""

    variants: tuple[VariantRow, ...] = ()
    golds: tuple[GoldResult, ...] = ()
    """Sorted by (gold_id, variant); only golds that the variant can judge."""
    skipped: tuple[SkippedGold, ...] = ()

    def ids_of(self, gold_id: str) -> tuple[str, ...]:
        """The variants that judge a gold."""
        return tuple(gold.variant for gold in self.golds if gold.gold_id == gold_id)


class Phase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some steps over which the mixture goes linearly from `start` to `end`."""

    steps: Positive
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
    steps: Positive = 1800
    """Optimiser steps, one update each."""
    questions: Positive = 18
    """Groups a step."""
    episodes: Positive = 8
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
    """Rows in the pool."""

    @property
    def lacking(self) -> int:
        """Rows that it cannot give."""
        return self.wanted - self.taken


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The objective and optimiser of one run, free of any trainer's option names."""

    name: str
    model: str
    """Hub id of the policy the published run started from."""
    schedule: str = "synsql"
    """Schedule preset: questions, episodes, steps and the submit gate are its own."""
    episode_preset: str = "default"
    """Preset of the episode's rules."""

    learning_rate: float = 1e-5
    """AdamW, cosine to zero."""
    warmup_share: float = 0.05
    """Linear warm-up, share of all steps."""
    weight_decay: float = 0.0
    temperature: float = 1.0
    """Of the rollouts; no top-p, no top-k."""

    loss_divisor: int = 1024
    """A sequence's token losses are summed and divided by this, then averaged over sequences."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    ratio_level: str = "token"
    """`token` or `sequence`: what the importance ratio is taken over."""
    ratio_cap: float | None = None
    """Upper bound of the ratio, which bites where the advantage is negative; None: no bound."""
    sampler_ratio: bool = True
    """The ratio's denominator is the sampler's own log-probability."""
    advantage_clip: float = 2.0
    """Advantages (reward less group mean, not normalised) are clipped to ± this."""
    negative_weight: float = 0.7
    """Factor on negative advantages, after clipping."""

    kl_target: float = 0.005
    """Mean k3 estimate per token that β is steered to."""
    kl_beta: float = 0.02
    """β at the start, and its lower bound."""
    kl_beta_most: float = 1.0
    reference_every: int = 0
    """Updates between two re-anchorings of the reference; 0: it stays the start policy."""

    resample_rounds: int = 2
    """How often a group of identical rewards is rolled out anew."""
    checkpoint: str = "last"
    """What the card took: `last`, or a note such as `best on BIRD dev, step 1600`."""
