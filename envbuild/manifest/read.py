"""A manifest folder (CONTRACT 6): its files, columns and row ids, and reading it."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec
import pyarrow as pa

from envbuild.errors import CorpusFolderError, UnknownNameError, UsageError
from envbuild.io.packs import mirrored
from envbuild.io.parquet import arrow_schema, iter_records, open_parquet
from envbuild.records.corpus import Reject
from envbuild.records.execution import Limits
from envbuild.records.manifest import GoldResult, ManifestRow, VariantRow
from envbuild.sql.forks import renew_in_children

FORMAT = "envbuild.manifest/2"
READABLE = (FORMAT, "envbuild.manifest/1")
"""In format 1 gold results held U+FFFD for text that is not valid; since 2 they keep its bytes."""
ROWS_FILE = "manifest.parquet"
GOLD_FILE = "gold.parquet"
REJECTS_FILE = "rejects.parquet"
VARIANTS_FILE = "variants.parquet"
"""Hidden variants as added rows; absent where a manifest has none."""
MANIFEST_FILE = "manifest.json"
"""Written last: its presence means that the folder is complete."""
PARTS_FOLDER = ".parts"
"""What a build that has not ended keeps in the folder."""
LOCK_FILE = "lock"
"""In it: held by the processes that build."""

ROW_SCHEMA: pa.Schema = arrow_schema(
    ManifestRow,
    masked_length=pa.int32(),
    signal=pa.float32(),
    signal_mutants=pa.int16(),
    target_size=pa.int16(),
    gold_rows=pa.int32(),
    gold_columns=pa.int32(),
)
GOLD_SCHEMA: pa.Schema = arrow_schema(GoldResult)
REJECT_SCHEMA: pa.Schema = arrow_schema(Reject)
VARIANT_SCHEMA: pa.Schema = arrow_schema(VariantRow)

_UNSAFE = re.compile(r"[%/\x00-\x1f\x7f\ud800-\udfff]")


def row_id_of(corpus: str, db_id: str, question_id: str, style: str = "") -> str:
    """`corpus/db_id/question_id`, and `/style` where a question has several phrasings.

    Slashes, percent signs and control characters inside a part are written `%2F`, so that no two
    rows share an id and a database's rows are neighbours when sorted.
    """
    parts = [corpus, db_id, question_id] + ([style] if style else [])
    return "/".join(escape_part(part) for part in parts)


def escape_part(text: str) -> str:
    """`text` without slash, percent sign, control character or lone surrogate."""
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)


R = TypeVar("R", bound=msgspec.Struct)

KEPT_GROUPS = 4
"""Decoded row groups kept in memory, for rows as for gold results."""


def open_manifest(path: Path) -> Manifest:
    """The manifest in folder `path` (or of the `manifest.parquet` at `path`), or at a URL.

    Raises CorpusFolderError where there is none, it is unfinished, or of another format.
    """
    files = (MANIFEST_FILE, ROWS_FILE, GOLD_FILE, REJECTS_FILE, VARIANTS_FILE)
    root = mirrored(Path(path), files)
    if root.name == ROWS_FILE and root.is_file():
        root = root.parent
    return Manifest(root, read_index(root))


def read_index(root: Path) -> dict[str, Any]:
    """manifest.json of the folder `root`; raises CorpusFolderError as `open_manifest` does."""
    file = root / MANIFEST_FILE
    if not file.is_file():
        if not root.is_dir():
            raise CorpusFolderError(f"no manifest at {root}: there is no such folder")
        if (root / PARTS_FOLDER).is_dir():
            raise CorpusFolderError(f"{root} is unfinished: run `envbuild manifest` again")
        raise CorpusFolderError(f"{root} holds no manifest: {MANIFEST_FILE} is missing")
    try:
        index = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as e:
        raise CorpusFolderError(f"{file} is no manifest's: {e}") from e
    if index.get("format") not in READABLE:
        raise CorpusFolderError(
            f"{file} is no manifest's: its format is {index.get('format')!r}; "
            f"this version reads {' and '.join(READABLE)}"
        )
    return index


def select_rows(manifest: Manifest, where: str) -> list[str]:
    """Sorted ids of the rows for which `where` is true, a DuckDB expression over the columns.

    Every row where it is empty. A row for which it is NULL is not selected, as one that was not
    measured is not by `signal >= 0.3`: `coalesce(signal, 1) >= 0.3` selects it. The expression
    reads no file. Raises UsageError where it is none, or selects nothing.
    """
    if not where:
        return list(manifest.row_ids)
    import duckdb
    from pyarrow.dataset import dataset

    closed = {"enable_external_access": "false", "python_enable_replacements": "false"}
    file = manifest.root / ROWS_FILE
    with duckdb.connect(config={**closed, "lock_configuration": "true"}) as database:
        try:
            rows = database.from_arrow(dataset(file)).filter(where)
            found = sorted(row_id for (row_id,) in rows.project("row_id").fetchall())
        except duckdb.Error as e:
            reason = str(e).strip().splitlines()[0]
            raise UsageError(
                f"--where takes one DuckDB expression over the columns "
                f"{', '.join(open_parquet(file).schema_arrow.names)}; {where!r} is none: {reason}"
            ) from e
    if not found:
        raise UsageError(f"--where {where!r} selects none of the {len(manifest.rows):,} rows")
    return found


class Manifest:
    """An open manifest; rows and gold results are decoded when they are asked for.

    Usable from any thread, and after pickling: it is then opened again where it lies.
    """

    def __init__(self, root: Path, index: dict[str, Any]) -> None:
        self.root = root.absolute()
        """Its folder, wherever the process goes from here."""
        self.index = index
        """manifest.json as written: configuration, counts, versions."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open_manifest, (self.root,)

    @property
    def edges(self) -> dict[str, list[int]]:
        """Corpus -> the lengths at which its buckets begin; {} from older versions."""
        return dict(self.index.get("edges", {}))

    @property
    def licences(self) -> dict[str, str]:
        """Corpus -> the licence of its data; {} from older versions."""
        return dict(self.index.get("licences", {}))

    @property
    def sqlite_versions(self) -> frozenset[str]:
        """Versions of the engine that made the gold results; empty where none is recorded.

        A manifest written over another's golds records both.
        """
        said = [self.index.get("versions", {}), *self._configurations()]
        return frozenset(one["sqlite"] for one in said if "sqlite" in one)

    @property
    def limits(self) -> Limits:
        """What a gold query could use when the manifest was built."""
        settings = [one["settings"] for one in self._configurations() if "settings" in one]
        return msgspec.convert(settings[-1].get("limits", {}) if settings else {}, Limits)

    @cached_property
    def rows(self) -> RecordFile[ManifestRow]:
        """Every row, sorted by row_id: a sequence that decodes one row group at a time."""
        return RecordFile(self.root / ROWS_FILE, ManifestRow)

    def row(self, row_id: str) -> ManifestRow:
        """The row of that id. Raises UnknownNameError, naming near ids, where there is none."""
        ids = self.row_ids
        place = bisect_left(ids, row_id)
        if place == len(ids) or ids[place] != row_id:
            listed_in = f"column row_id of {self.root / ROWS_FILE}"
            raise UnknownNameError.near("row", row_id, ids, listed_in=listed_in)
        return self.rows[place]

    @cached_property
    def row_ids(self) -> Sequence[str]:
        """Every row_id, sorted."""
        ids: list[str] = self.columns("row_id").column(0).to_pylist()
        return ids

    def columns(self, *names: str) -> pa.Table:
        """Some columns of every row as one Arrow table."""
        return open_parquet(self.root / ROWS_FILE).read(columns=list(names))

    def gold(self, gold_id: str, variant: str = "") -> GoldResult:
        """The stored gold result. Raises UnknownNameError where the manifest has none."""
        place = self._gold_places.get((gold_id, variant))
        if place is None:
            raise self._unknown_gold(gold_id, variant)
        return self._gold[place]

    def database_path(self, row: ManifestRow) -> Path:
        """The row's SQLite file."""
        return Path(self.root, row.sqlite_file)

    def iter_gold(self) -> Iterator[GoldResult]:
        """Every gold result, variants included, sorted by id."""
        return iter_records(self.root / GOLD_FILE, GoldResult)

    def _configurations(self) -> Iterator[dict[str, Any]]:
        """Its own, and those of the manifests that its golds come from."""
        one = self.index.get("configuration")
        while isinstance(one, dict):
            yield one
            one = one.get("of")

    @cached_property
    def _gold_places(self) -> dict[tuple[str, str], int]:
        keys = open_parquet(self.root / GOLD_FILE).read(columns=["gold_id", "variant"])
        pairs = zip(keys.column(0).to_pylist(), keys.column(1).to_pylist(), strict=True)
        return {pair: place for place, pair in enumerate(pairs)}

    def _unknown_gold(self, gold_id: str, variant: str) -> UnknownNameError:
        own = sorted(name for gold, name in self._gold_places if gold == gold_id and name)
        if (gold_id, "") in self._gold_places:
            return UnknownNameError.near(f"result of gold {gold_id!r} on variant", variant, own)
        ids = sorted(gold for gold, name in self._gold_places if not name)
        return UnknownNameError.near("gold result", gold_id, ids)

    @cached_property
    def _gold(self) -> RecordFile[GoldResult]:
        return RecordFile(self.root / GOLD_FILE, GoldResult)


class RecordFile(Sequence[R]):
    """The records of a Parquet file by position; iterating streams them.

    A few decoded row groups are kept. Usable from any thread, and after pickling.
    """

    def __init__(self, path: Path, record: type[R]) -> None:
        self.path, self.record = path, record
        self._file = open_parquet(path)
        groups = range(self._file.num_row_groups)
        sizes = (self._file.metadata.row_group(group).num_rows for group in groups)
        self._starts = list(accumulate(sizes, initial=0))
        self._kept: OrderedDict[int, pa.Table] = OrderedDict()
        self.renew_locks()
        renew_in_children(self)

    def renew_locks(self) -> None:
        """For a forked child: another thread of the parent may have been reading."""
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordFile, (self.path, self.record)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __iter__(self) -> Iterator[R]:
        return iter_records(self.path, self.record)

    @overload
    def __getitem__(self, index: int) -> R: ...

    @overload
    def __getitem__(self, index: slice) -> list[R]: ...

    def __getitem__(self, index: int | slice) -> R | list[R]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        group = bisect_right(self._starts, place) - 1
        with self._lock:
            table = self._group(group)
        (row,) = table.slice(place - self._starts[group], 1).to_pylist()
        return msgspec.convert(row, self.record)

    def _group(self, group: int) -> pa.Table:
        if group not in self._kept:
            self._kept[group] = self._file.read_row_group(group).combine_chunks()
            if len(self._kept) > KEPT_GROUPS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(group)
        return self._kept[group]
