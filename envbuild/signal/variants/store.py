"""Stored variants read back: each is built when it is first asked for, and kept."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from envbuild.errors import CorpusFolderError, UnknownNameError
from envbuild.io.parquet import arrow_schema, columns_of, open_parquet, write_batches
from envbuild.records.variant import VariantRow
from envbuild.sql.connect import open_writable_image, quote_name, read_image
from envbuild.sql.executor import Session

VARIANTS_FILE = "variants.parquet"
"""Beside manifest.parquet; absent where a manifest has no variants."""
GROUP_VARIANTS = 32
"""Variants of a row group: reading one of them decodes the group."""
KEPT_SESSIONS = 64
"""Built variants kept open."""


def write_variants(path: Path, variants: Iterable[VariantRow]) -> int:
    """Writes variants.parquet in the order given; returns how many."""
    schema, waiting = arrow_schema(VariantRow), iter(variants)
    groups = iter(lambda: list(islice(waiting, GROUP_VARIANTS)), [])
    return write_batches(path, (columns_of(group, schema) for group in groups), schema)


class VariantStore:
    """The variants of one manifest folder."""

    def __init__(self, root: Path, *, kept: int = KEPT_SESSIONS) -> None:
        """Reads ids only. A folder without variants.parquet has no variant."""
        self.path = Path(root) / VARIANTS_FILE
        self.kept = kept
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._places: dict[str, tuple[int, int]] | None = None

    def session(self, variant: str, visible: Path) -> Session:
        """A session over the variant of the visible database; the store closes it.

        Raises UnknownNameError for a variant that is not stored, CorpusFolderError where the
        visible file is not the one it belongs to.
        """
        found = self._sessions.get(variant)
        if found is None:
            image = build_image(self.row(variant), read_image(visible))
            found = self._sessions[variant] = Session.open_image(image)
            if len(self._sessions) > self.kept:
                self._sessions.popitem(last=False)[1].close()
        self._sessions.move_to_end(variant)
        return found

    def row(self, variant: str) -> VariantRow:
        """A variant as it is stored."""
        if self._places is None:
            self._places = dict(self._read_places())
        if variant not in self._places:
            raise UnknownNameError("variant", variant, ())
        group, within = self._places[variant]
        table = open_parquet(self.path).read_row_group(group).slice(within, 1)
        return msgspec.convert(table.to_pylist()[0], VariantRow)

    def close(self) -> None:
        """Closes every session."""
        while self._sessions:
            self._sessions.popitem()[1].close()

    def __enter__(self) -> "VariantStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
