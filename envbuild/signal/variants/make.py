"""Making a database's hidden variants: its own amplification, for groups of golds (SIGNAL 7)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from envbuild.engine.fanout import chunked
from envbuild.engine.seeds import derive_seed
from envbuild.errors import CorpusError
from envbuild.records.amplified import AddedRow, AmplifySettings, Gold
from envbuild.records.manifest import GoldResult
from envbuild.records.variant import SkippedGold, VariantBatch, VariantRow
from envbuild.signal.amplify.build import Amplified, amplify_database
from envbuild.signal.score import SIGNAL_LIMITS
from envbuild.sql.connect import SQLiteError, read_image
from envbuild.sql.executor import Session
from envbuild.sql.results import decode_rows, digest_rows, encode_rows
from envbuild.sql.text.order import order_matters

DEFAULT_SETTINGS = AmplifySettings(guided=True, orphans=True)
"""As advised: guided, what the rows show kept, groups of 20 golds worked on at a time."""
GOLDS_A_VARIANT = 100
"""Golds that share a variant: rows grow with them, and each tells others' wrong queries too."""


def make_variants(
    path: Path,
    golds: Sequence[tuple[str, str]],
    *,
    corpus: str,
    db_id: str,
    count: int,
    seed: int,
    settings: AmplifySettings = DEFAULT_SETTINGS,
) -> VariantBatch:
    """`count` hidden variants for the (gold_id, SQL) pairs, and the golds' results on them.

    A gold is skipped on a variant where it is empty, fails, or rests on a tie, and where SQLite
    cannot fill the tables. The same file, golds, count and seed give the same rows.
    `settings.seed` is replaced by derived ones.
    """
    image = read_image(path)
    digest = hashlib.sha256(image).hexdigest()
    variants: list[VariantRow] = []
    results: list[GoldResult] = []
    skipped: list[SkippedGold] = []
    for number, group in enumerate(chunked(sorted(golds), GOLDS_A_VARIANT)):
        for turn in range(count):
            name = f"{corpus}/{db_id}/{turn}.{number}"
            own = derive_seed(seed, name, "variant")
            try:
                grown = amplify_database(
                    image,
                    [Gold(question_id=gold_id, sql=sql) for gold_id, sql in group],
                    settings=msgspec.structs.replace(settings, seed=own),
                    db_id=db_id,
                )
            except (SQLiteError, CorpusError):
                skipped += [
                    SkippedGold(gold_id=gold_id, variant=name, reason="not_amplified")
                    for gold_id, _ in group
                ]
                continue
            variants.append(
                VariantRow(
                    variant=name,
                    corpus=corpus,
                    db_id=db_id,
                    seed=own,
                    database_sha256=digest,
                    rows_added=len(grown.growth.rows),
                    rows=_packed(grown.growth.rows),
                )
            )
            found, refused = _results(grown, group, name)
            results += found
            skipped += refused
    return VariantBatch(
        variants=tuple(variants),
        golds=tuple(sorted(results, key=lambda gold: (gold.gold_id, gold.variant))),
        skipped=tuple(skipped),
    )


def _results(
    grown: Amplified, group: Sequence[tuple[str, str]], variant: str
) -> tuple[list[GoldResult], list[SkippedGold]]:
    ties = {state.question_id for state in grown.growth.golds if state.tie_sensitive}
    found, skipped = [], []
    with Session.open_image(grown.image, limits=SIGNAL_LIMITS) as session:
        for gold_id, sql in group:
            result = session.run(sql)
            reason = "gold_failed" if not result.ok else "" if result.rows else "gold_empty"
            if not reason and gold_id in ties:
                reason = "tie_sensitive"
            if reason:
                skipped.append(SkippedGold(gold_id=gold_id, variant=variant, reason=reason))
                continue
            ordered = order_matters(sql)
            found.append(
                GoldResult(
                    gold_id=gold_id,
                    variant=variant,
                    outcome=result.outcome.value,
                    columns=result.columns,
                    ordered=ordered,
                    digest=digest_rows(result.rows, ordered=ordered),
                    result=encode_rows(result.rows),
                )
            )
    return found, skipped


def _packed(rows: Sequence[AddedRow]) -> bytes:
    """The rows by table, in the order they were added."""
    tables: dict[str, tuple[str, tuple[str, ...], list[list[object]]]] = {}
    for row in rows:
        _, _, listed = tables.setdefault(row.table, (row.table, row.columns, []))
        listed.append([row.rowid, *decode_rows(row.cells)[0]])
    return msgspec.msgpack.encode(list(tables.values()))
