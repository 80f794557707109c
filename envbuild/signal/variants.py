"""Hidden variants: made beside the manifest, stored as rows, built when the reward first asks."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from envbuild.engine.fanout import chunked
from envbuild.engine.seeds import derive_seed
from envbuild.errors import CorpusError, CorpusFolderError, UnknownNameError
from envbuild.generate.database import Amplified, amplify_database
from envbuild.io.parquet import open_parquet
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
    groups = enumerate(chunked(sorted(golds), GOLDS_A_VARIANT))
    for (number, group), turn in product(groups, range(count)):
        name = f"{corpus}/{db_id}/{turn}.{number}"
        own = derive_seed(seed, name, "variant")
        asked = [Gold(question_id=gold_id, sql=sql) for gold_id, sql in group]
        seeded = msgspec.structs.replace(settings, seed=own)
        try:
            grown = amplify_database(image, asked, settings=seeded, db_id=db_id)
        except (SQLiteError, CorpusError):
            skipped += [_skipped(gold_id, name, "not_amplified") for gold_id, _ in group]
            continue
        rows = grown.growth.rows
        variants.append(
            VariantRow(
                variant=name,
                corpus=corpus,
                db_id=db_id,
                seed=own,
                database_sha256=digest,
                rows_added=len(rows),
                rows=_packed(rows),
            )
        )
        for found in _results(grown, group, name):
            if isinstance(found, SkippedGold):
                skipped.append(found)
            else:
                results.append(found)
    results.sort(key=lambda gold: (gold.gold_id, gold.variant))
    return VariantBatch(variants=tuple(variants), golds=tuple(results), skipped=tuple(skipped))


def _results(
    grown: Amplified, group: Sequence[tuple[str, str]], variant: str
) -> Iterator[GoldResult | SkippedGold]:
    """Each gold's result on a variant, or why the variant cannot judge it."""
    ties = {state.question_id for state in grown.growth.golds if state.tie_sensitive}
    with Session.open_image(grown.image, limits=SIGNAL_LIMITS) as session:
        for gold_id, sql in group:
            result = session.run(sql)
            if not result.ok:
                yield _skipped(gold_id, variant, "gold_failed")
            elif not result.rows:
                yield _skipped(gold_id, variant, "gold_empty")
            elif gold_id in ties:
                yield _skipped(gold_id, variant, "tie_sensitive")
            else:
                ordered = order_matters(sql)
                yield GoldResult(
                    gold_id=gold_id,
                    variant=variant,
                    outcome=result.outcome.value,
                    columns=result.columns,
                    ordered=ordered,
                    digest=digest_rows(result.rows, ordered=ordered),
                    result=encode_rows(result.rows),
                )


def _skipped(gold_id: str, variant: str, reason: str) -> SkippedGold:
    return SkippedGold(gold_id=gold_id, variant=variant, reason=reason)


def _packed(rows: Sequence[AddedRow]) -> bytes:
    """The rows by table, in the order they were added."""
    tables: dict[str, tuple[str, tuple[str, ...], list[list[object]]]] = {}
    for row in rows:
        _, _, listed = tables.setdefault(row.table, (row.table, row.columns, []))
        listed.append([row.rowid, *decode_rows(row.cells)[0]])
    return msgspec.msgpack.encode(list(tables.values()))


VARIANTS_FILE = "variants.parquet"
"""Beside manifest.parquet; absent where a manifest has no variants."""
MEMORY_BYTES = 256 * 1024 * 1024
"""What built variants may take together."""
COPIES = 2
"""A session holds its image, and SQLite's own copy of it."""


class VariantStore:
    """The variants of one manifest folder; safe to share among threads, and after a fork.

    Variants are built side by side, each once, and kept within `memory_bytes`: the least recently
    used go first, but never the one just asked for, however large.
    """

    def __init__(self, root: Path, *, memory_bytes: int = MEMORY_BYTES) -> None:
        """Reads nothing yet. A folder without variants.parquet has no variant."""
        self.path = Path(root) / VARIANTS_FILE
        self.memory_bytes = memory_bytes
        self._kept: OrderedDict[str, tuple[Session, int]] = OrderedDict()
        """Variant -> its session and the bytes it takes, the latest used last."""
        self._places: dict[str, tuple[int, int]] | None = None
        self._building = KeyedLocks()
        self.renew_locks()
        renew_in_children(self)

    def session(self, variant: str, visible: Path) -> Session:
        """A session over the variant of the visible database; do not close it.

        A variant that goes to make room stays open for whoever still holds its session. Raises
        UnknownNameError for a variant that is not stored, CorpusFolderError where the visible file
        is not the one it belongs to.
        """
        with self._building.of(variant):  # the group's first answer builds, the others wait for it
            with self._lock:
                if variant in self._kept:
                    self._kept.move_to_end(variant)
                    return self._kept[variant][0]
            image = build_image(self.row(variant), read_image(visible))
            built = Session.open_image(image)
            with self._lock:
                self._kept[variant] = built, COPIES * len(image)
                while self.kept_bytes() > self.memory_bytes and len(self._kept) > 1:
                    self._kept.popitem(last=False)  # closed with its last use
        return built

    def row(self, variant: str) -> VariantRow:
        """A variant as it is stored: its row group alone is read."""
        if self._places is None:
            self._places = dict(self._read_places())
        if variant not in self._places:
            raise UnknownNameError.near("variant", variant, sorted(self._places))
        group, within = self._places[variant]
        table = open_parquet(self.path).read_row_group(group).slice(within, 1)
        return msgspec.convert(table.to_pylist()[0], VariantRow)

    def _read_places(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Each variant, its row group and the row within."""
        if not self.path.is_file():
            return
        file = open_parquet(self.path)
        for group in range(file.num_row_groups):
            names = file.read_row_group(group, columns=["variant"]).column(0).to_pylist()
            yield from ((name, (group, within)) for within, name in enumerate(names))

    def kept_bytes(self) -> int:
        """What the built variants take."""
        return sum(size for _, size in self._kept.values())

    def renew_locks(self) -> None:
        """For a forked child: another thread of the parent may have been reading."""
        self._lock = threading.Lock()

    def close(self) -> None:
        """Closes every session that is kept."""
        while self._kept:
            self._kept.popitem()[1][0].close()

    def __enter__(self) -> "VariantStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def build_image(row: VariantRow, visible: bytes) -> bytes:
    """The variant as a serialized database: the visible one with the stored rows added.

    Raises CorpusFolderError where `visible` is not the database the rows belong to.
    """
    if hashlib.sha256(visible).hexdigest() != row.database_sha256:
        raise CorpusFolderError(
            f"variant {row.variant} belongs to another file of {row.db_id!r} than the one here: "
            "build the manifest again"
        )
    with closing(open_writable_image(visible)) as connection:
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
