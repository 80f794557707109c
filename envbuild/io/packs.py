"""Packed corpora: databases in a few immutable Parquet files, staged one by one where read.

`packs/00000.parquet` … hold the databases' bytes, cut into pieces of 16 MiB, a row group a piece,
each compressed by itself (zstd): whoever wants one database reads its row groups and no others.
`packs/index.parquet`, written last, says where each lies and the SHA-256 of its bytes. Parquet,
since every reader of the catalogue reads it already, from any file system that fsspec knows.

A packed corpus may also lie behind a URL (`s3://bucket/corpus`): its catalogue is copied into the
cache, under the same names, and its packs are read there by ranges.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from envbuild.errors import ConfigurationError, CorpusFolderError, SourceError
from envbuild.io.files import atomic_path
from envbuild.io.parquet import arrow_schema, read_records, write_records

PACKS_FOLDER = "packs"
PACK_INDEX = "index.parquet"
PACK_BYTES = 256 * 2**20
"""A pack is closed once it has this many bytes."""
PIECE_BYTES = 16 * 2**20
CACHE_BYTES = 64 * 2**30
"""What staged databases may take, unless $ENVBUILD_CACHE_BYTES says so."""

_PIECE = pa.schema([("file", pa.string()), ("content", pa.binary())])
_URL = re.compile(r"([a-z][a-z0-9+]+):/+(.+)")


class PackedFile(msgspec.Struct, frozen=True, kw_only=True):
    """Where one database of a packed corpus lies."""

    file: str
    """Its name in the corpus folder, as in databases.parquet."""
    pack: str
    first_group: int
    groups: int
    """The row groups of the pack that are its pieces, in order."""
    bytes: int
    sha256: str


def pack_files(root: Path, files: Iterable[str]) -> None:
    """Moves these files of the corpus folder `root` into its packs.

    The same bytes for the same files. Run again after an interruption, it starts anew; the files
    are removed when the index stands.
    """
    folder = root / PACKS_FOLDER
    files = list(files)
    if not (folder / PACK_INDEX).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write_records(folder / PACK_INDEX, _write_packs(root, files), arrow_schema(PackedFile))
    for file in files:
        (root / file).unlink(missing_ok=True)
        with suppress(OSError):  # descriptions stay beside it, and so does their folder
            (root / file).parent.rmdir()
            (root / file).parent.parent.rmdir()
    _index_of.cache_clear()


def _write_packs(root: Path, files: list[str]) -> Iterator[PackedFile]:
    waiting = iter(files)
    for number, first in enumerate(waiting):
        name = f"{number:05}.parquet"
        with atomic_path(root / PACKS_FOLDER / name) as temporary, temporary.open("wb") as stream:
            writer = pq.ParquetWriter(
                stream, _PIECE, compression="zstd", use_dictionary=False, write_statistics=False
            )
            group = 0
            file: str | None = first
            while file is not None:
                digest, size, first_group = hashlib.sha256(), 0, group
                with (root / file).open("rb") as database:
                    while piece := database.read(PIECE_BYTES):
                        writer.write_batch(pa.record_batch([[file], [piece]], schema=_PIECE))
                        digest.update(piece)
                        size += len(piece)
                        group += 1
                yield PackedFile(
                    file=file,
                    pack=name,
                    first_group=first_group,
                    groups=group - first_group,
                    bytes=size,
                    sha256=digest.hexdigest(),
                )
                file = next(waiting, None) if stream.tell() < PACK_BYTES else None
            writer.close()


def unpack_files(root: Path, on_unpacked: Callable[[int], None]) -> int:
    """Gives a packed corpus its files back, then removes the packs; how many there were.

    Raises CorpusFolderError where the folder has no packs, or one does not hold what it should.
    """
    index = _index_of(str(root))
    if index is None:
        raise CorpusFolderError(
            f"{root} is no packed corpus: it has no {PACKS_FOLDER}/{PACK_INDEX}"
        )
    for packed in index.values():
        if not (root / packed.file).is_file():
            _write_whole(root, packed, root / packed.file)
        on_unpacked(1)
    shutil.rmtree(root / PACKS_FOLDER)
    _index_of.cache_clear()
    return len(index)


def local_file(path: Path) -> Path:
    """The file to open for the database at `path`: itself, or the staged copy of a packed one.

    A packed database is written once into the cache of this machine, checked by its SHA-256 and
    shared by every process and corpus that holds the same bytes; the ones not used for longest
    make room. Raises CorpusFolderError where its pack is damaged.
    """
    packed = packed_file(path)
    if packed is None:
        return path
    kept = cache_folder() / "databases" / packed.sha256[:2] / f"{packed.sha256}.sqlite"
    used = kept.with_suffix(".used")
    if not kept.is_file():
        _make_room(packed.bytes)
        _write_whole(_root_of(path) or path, packed, kept)
    try:
        os.utime(used)  # the database's own times stay, since its readers know it by them
    except FileNotFoundError:
        used.touch()
    return kept


def packed_file(path: Path) -> PackedFile | None:
    """What the packs of its corpus say of the database at `path`; None where it is not packed."""
    if (root := _root_of(path)) is None or (index := _index_of(str(root))) is None:
        return None
    return index.get("/".join(Path(path).parts[-3:]))


def _root_of(path: Path) -> Path | None:
    """The corpus of `<root>/databases/<name>/<name>.sqlite`."""
    parts = Path(path).parents
    return Path(os.path.normpath(parts[2].absolute())) if len(parts) > 2 else None


@cache
def _index_of(root: str) -> dict[str, PackedFile] | None:
    file = Path(root, PACKS_FOLDER, PACK_INDEX)
    if (url := _url_of(Path(root))) is not None and not file.is_file():
        _fetch(f"{url}/{PACKS_FOLDER}/{PACK_INDEX}", file)
    if not file.is_file():
        return None
    return {packed.file: packed for packed in read_records(file, PackedFile)}


def _write_whole(root: Path, packed: PackedFile, target: Path) -> None:
    digest = hashlib.sha256()
    with atomic_path(target) as temporary, temporary.open("wb") as stream:
        for piece in _pieces(root, packed):
            digest.update(piece)
            stream.write(piece)
        if digest.hexdigest() != packed.sha256:
            raise CorpusFolderError(
                f"{root / PACKS_FOLDER / packed.pack} is damaged: {packed.file} is not what "
                f"{PACK_INDEX} says; copy the corpus again"
            )


def _pieces(root: Path, packed: PackedFile) -> Iterator[bytes]:
    place = root / PACKS_FOLDER / packed.pack
    url = _url_of(root)
    with _reading(str(place) if url is None else f"{url}/{PACKS_FOLDER}/{packed.pack}"):
        if url is None:
            stream: Any = place.open("rb")
        else:
            system, there = _file_system(f"{url}/{PACKS_FOLDER}/{packed.pack}")
            stream = system.open(there, "rb", cache_type="none")
        with stream, pq.ParquetFile(stream) as pack:
            for group in range(packed.first_group, packed.first_group + packed.groups):
                yield pack.read_row_group(group, columns=["content"]).column(0)[0].as_py()


def _make_room(wanted: int) -> None:
    """Removes staged databases, the one not used for longest first, until `wanted` bytes fit."""
    told = os.environ.get("ENVBUILD_CACHE_BYTES", str(CACHE_BYTES))
    if not told.isdigit():
        raise ConfigurationError(f"ENVBUILD_CACHE_BYTES takes a number of bytes, not {told!r}")
    kept = []
    for used in (cache_folder() / "databases").glob("*/*.used"):
        try:
            file = used.with_suffix(".sqlite")
            kept.append((used.stat().st_mtime_ns, file.stat().st_size, file, used))
        except FileNotFoundError:  # another process makes room too
            continue
    free = int(told) - sum(size for _, size, _, _ in kept)
    for _, size, file, used in sorted(kept):
        if free >= wanted:
            return
        file.unlink(missing_ok=True)
        used.unlink(missing_ok=True)
        free += size


def cache_folder() -> Path:
    """Where envbuild keeps what it can make again: $ENVBUILD_CACHE, else ~/.cache/envbuild."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ENVBUILD_CACHE") or Path(home) / "envbuild")


# What lies behind a URL.


def mirrored(path: Path, files: Iterable[str]) -> Path:
    """`path` itself, or where the cache holds these files of the folder that it is a URL of.

    The first of `files` must be there, the others may. They are fetched again when the first has
    changed. Raises SourceError where the URL cannot be read.
    """
    found = _URL.fullmatch(str(path))
    if found is None:
        return path
    url = f"{found[1]}://{found[2].rstrip('/')}"
    folder = cache_folder() / "remote" / found[1] / found[2]
    first, *others = files
    stamp = folder / ".stamp"
    now = _stamp(f"{url}/{first}")
    if not stamp.is_file() or stamp.read_text() != now:
        for file in others:
            _fetch(f"{url}/{file}", folder / file)
        if not _fetch(f"{url}/{first}", folder / first):
            raise SourceError(f"{url} has no {first}: it is no corpus or manifest of ours")
        (folder / PACKS_FOLDER / PACK_INDEX).unlink(missing_ok=True)
        stamp.write_text(now)
    return folder


def _url_of(root: Path) -> str | None:
    remote = cache_folder().absolute() / "remote"
    if not root.is_relative_to(remote):
        return None
    scheme, *rest = root.relative_to(remote).parts
    return f"{scheme}://{'/'.join(rest)}"


@contextmanager
def _reading(url: str) -> Iterator[None]:
    """What a store's own library says, of which each has exceptions of its own, in a sentence."""
    try:
        yield
    except CorpusFolderError:
        raise
    except Exception as e:
        reason = str(e) or "it is not there"
        raise SourceError(f"cannot read {url}: {reason} ({type(e).__name__})") from e


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec

    found: tuple[Any, str] = fsspec.core.url_to_fs(url)
    return found


def _stamp(url: str) -> str:
    with _reading(url):
        system, place = _file_system(url)
        return str(system.ukey(place))


def _fetch(url: str, target: Path) -> bool:
    with _reading(url):
        system, place = _file_system(url)
        if not system.exists(place):
            target.unlink(missing_ok=True)
            return False
    with atomic_path(target) as temporary, _reading(url):
        system.get_file(place, str(temporary))
    return True
