"""Hidden variants: made beside the manifest, stored as rows, built when the reward first asks."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from envbuild.engine.fanout import chunked
from envbuild.engine.seeds import derive_seed
from envbuild.errors import CorpusError, CorpusFolderError, UnknownNameError
from envbuild.generate.database import Amplified, amplify_database
from envbuild.io.parquet import arrow_schema, columns_of, open_parquet, write_batches
from envbuild.records.manifest import GoldResult, SkippedGold, VariantBatch, VariantRow
from envbuild.records.signal import AddedRow, AmplifySettings, Gold
from envbuild.signal.score import SIGNAL_LIMITS
from envbuild.sql.connect import SQLiteError, open_writable_image, quote_name, read_image
from envbuild.sql.execution.session import Session
from envbuild.sql.forks import KeyedLocks, renew_in_children
from envbuild.sql.from_names import order_matters
from envbuild.sql.verdicts import decode_rows, digest_rows, encode_rows

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


VARIANTS_FILE = "variants.parquet"
"""Beside manifest.parquet; absent where a manifest has no variants."""
GROUP_VARIANTS = 32
"""Variants of a row group: reading one of them decodes the group."""
MEMORY_BYTES = 256 * 1024 * 1024
"""What built variants may take together."""
COPIES = 2
"""A session holds its image, and SQLite's own copy of it."""


def write_variants(path: Path, variants: Iterable[VariantRow]) -> int:
    """Writes variants.parquet in the order given; returns how many."""
    schema, waiting = arrow_schema(VariantRow), iter(variants)
    groups = iter(lambda: list(islice(waiting, GROUP_VARIANTS)), [])
    return write_batches(path, (columns_of(group, schema) for group in groups), schema)


class _Kept(NamedTuple):
    """A built variant."""

    session: Session
    bytes: int


class VariantStore:
    """The variants of one manifest folder; safe to share among threads, and after a fork.

    Variants are built side by side, each once, and kept within `memory_bytes`: the least recently
    used go first, but never the one just asked for, however large.
    """

    def __init__(self, root: Path, *, memory_bytes: int = MEMORY_BYTES) -> None:
        """Reads ids only. A folder without variants.parquet has no variant."""
        self.path = Path(root) / VARIANTS_FILE
        self.memory_bytes = memory_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._places: dict[str, tuple[int, int]] | None = None
        self._building = KeyedLocks()
        self.renew_locks()
        renew_in_children(self)

    def session(self, variant: str, visible: Path) -> Session:
        """A session over the variant of the visible database; do not close it.

        One that is dropped meanwhile lives as long as it is held. Raises UnknownNameError for a
        variant that is not stored, CorpusFolderError where the visible file is not the one it
        belongs to.
        """
        with self._lock:
            if variant in self._kept:
                self._kept.move_to_end(variant)
                return self._kept[variant].session
        with self._building.of(variant):  # the group's first answer builds, the others wait for it
            with self._lock:
                if variant in self._kept:
                    return self._kept[variant].session
            image = build_image(self.row(variant), read_image(visible))
            built = _Kept(Session.open_image(image), COPIES * len(image))
            with self._lock:
                self._kept[variant] = built
                self._make_room()
        return built.session

    def renew_locks(self) -> None:
        """For a forked child: another thread of the parent may have been reading."""
        self._lock = threading.Lock()

    def row(self, variant: str) -> VariantRow:
        """A variant as it is stored."""
        if self._places is None:
            self._places = dict(self._read_places())
        if variant not in self._places:
            raise UnknownNameError.near("variant", variant, sorted(self._places))
        group, within = self._places[variant]
        table = open_parquet(self.path).read_row_group(group).slice(within, 1)
        return msgspec.convert(table.to_pylist()[0], VariantRow)

    def close(self) -> None:
        """Closes every session that is kept."""
        while self._kept:
            self._kept.popitem()[1].session.close()

    def __enter__(self) -> "VariantStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _kept_bytes(self) -> int:
        return sum(one.bytes for one in self._kept.values())

    def _make_room(self) -> None:
        excess = self._kept_bytes() - self.memory_bytes
        while excess > 0 and len(self._kept) > 1:
            excess -= self._kept.popitem(last=False)[1].bytes  # closed with its last use

    def _read_places(self) -> Iterator[tuple[str, tuple[int, int]]]:
        if not self.path.is_file():
            return
        file = open_parquet(self.path)
        for group in range(file.num_row_groups):
            names = file.read_row_group(group, columns=["variant"]).column(0).to_pylist()
            for within, name in enumerate(names):
                yield name, (group, within)


def build_image(row: VariantRow, visible: bytes) -> bytes:
    """The variant as a serialized database: the visible one with the stored rows added.

    Raises CorpusFolderError where `visible` is not the database the rows belong to.
    """
    if hashlib.sha256(visible).hexdigest() != row.database_sha256:
        raise CorpusFolderError(
            f"variant {row.variant} belongs to another file of {row.db_id!r} than the one here: "
            "build the manifest again"
        )
    connection = open_writable_image(visible)
    try:
        connection.execute("BEGIN")
        tables: list[tuple[str, list[str], list[list[Any]]]] = msgspec.msgpack.decode(row.rows)
        for table, columns, rows in tables:
            names = [quote_name(name) for name in columns]
            keyed = bool(rows and rows[0][0])
            listed = ", ".join(["rowid", *names] if keyed else names)
            marks = ", ".join("?" * (len(names) + keyed))
            sql = f"INSERT INTO {quote_name(table)} ({listed}) VALUES ({marks})"
            connection.executemany(sql, [cells if keyed else cells[1:] for cells in rows])
        connection.execute("COMMIT")
        return connection.serialize("main")
    finally:
        connection.close()
