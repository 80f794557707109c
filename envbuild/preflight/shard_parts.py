"""What each shard of a preflight found, kept until all of them are there (`--shard I/N`).

Shards run on machines that share a folder and need not know of each other: whoever ends last finds
all parts and writes the report. Two that end at once write the same bytes.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE
from envbuild.io.files import sha256_file, write_bytes
from envbuild.preflight.check_database import CheckedDatabase
from envbuild.records.execution import Limits

PARTS_FOLDER = ".preflight"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One shard's databases."""

    configuration: str
    """Digest of the corpus and the limits; parts of another one are no parts."""
    databases: tuple[CheckedDatabase, ...]


_PART = msgspec.msgpack.Decoder(type=Part)


def configuration_of(folder: CorpusFolder, limits: Limits) -> str:
    """What all parts of one preflight have in common, as a digest."""
    if folder.catalogued:
        corpus = sha256_file(folder.root / INDEX_FILE)
    else:
        corpus = repr([(row.db_id, row.bytes) for row in folder.databases()])
    return hashlib.sha256(f"{corpus}/{limits}".encode()).hexdigest()


def write_part(
    out: Path, shard: tuple[int, int], checked: Sequence[CheckedDatabase], configuration: str
) -> None:
    """Keeps one shard's databases, whole or not at all."""
    part = Part(configuration=configuration, databases=tuple(checked))
    write_bytes(_part_file(out, *shard), msgspec.msgpack.encode(part))


def read_parts(
    out: Path, shards: int, configuration: str
) -> dict[int, tuple[CheckedDatabase, ...]]:
    """The databases of each shard that is there, by its number."""
    found = {}
    for index in range(shards):
        try:
            part = _PART.decode(_part_file(out, index, shards).read_bytes())
        except (OSError, msgspec.MsgspecError):
            continue
        if part.configuration == configuration:
            found[index] = part.databases
    return found


def remove_parts(out: Path, shards: int) -> None:
    """Removes the parts once the report is written."""
    for index in range(shards):
        _part_file(out, index, shards).unlink(missing_ok=True)
    folder = out / PARTS_FOLDER
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _part_file(out: Path, index: int, shards: int) -> Path:
    return out / PARTS_FOLDER / f"{index}-of-{shards}.msgpack"
