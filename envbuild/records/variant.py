"""Hidden variants: other fillings of a database that an answer must be right on too."""

import msgspec

from envbuild.records.manifest import GoldResult


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
