"""Stored variants read back: each is built when it is first asked for, and kept."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from envbuild.errors import CorpusFolderError, UnknownNameError
from envbuild.io.parquet import arrow_schema, columns_of, open_parquet, write_batches
from envbuild.records.variant import VariantRow
from envbuild.sql.connect import open_writable_image, quote_name, read_image
from envbuild.sql.executor import Session
from envbuild.sql.forks import KeyedLocks, renew_in_children

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
