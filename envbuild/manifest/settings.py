"""What a manifest is built with: recorded in it, compared when a run resumes."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE
from envbuild.errors import ConfigurationError, UnknownNameError, UsageError
from envbuild.io.files import sha256_file, write_bytes, writing
from envbuild.io.sorting import count_values
from envbuild.manifest.buckets import Edges, read_edges
from envbuild.manifest.read import (
    FORMAT,
    GOLD_FILE,
    LOCK_FILE,
    MANIFEST_FILE,
    PARTS_FOLDER,
    READABLE,
    REJECTS_FILE,
    ROWS_FILE,
    VARIANTS_FILE,
)
from envbuild.records.execution import Limits
from envbuild.schema.sampler import DEFAULT_TABLES, DISTRACTORS
from envbuild.sql.connect import SQLITE_VERSION, VERSIONS
from envbuild.sql.mask import MaskMode

INPUT_FILES = (INDEX_FILE, "buckets.parquet", "findings.parquet", "signal.parquet")
"""Files of a corpus that decide a manifest; a database's own digest is in the first."""


class ManifestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every choice that decides the rows."""

    seed: int = 0
    """Run seed: with the row id it gives a row's own seed."""
    smallest: int = DEFAULT_TABLES[0]
    """Fewest tables a sample is drawn to have; gold tables stay even where they are more."""
    largest: int = DEFAULT_TABLES[1]
    distractors: str = "fk"
    """`fk`, `lexical`, `random` or `mixed`."""
    extra: int | None = None
    """Exactly this many tables besides the gold ones, instead of a drawn size."""
    full: bool = False
    """Every table of the database."""
    edges: tuple[int, ...] | None = None
    """None: each corpus's own from its buckets.parquet, else 149,278."""
    mask: str | None = None
    """`literals` or `skeleton`; None: as edges."""
    styles: tuple[str, ...] = ()
    """Phrasings to take; empty: all."""
    leave_out: tuple[str, ...] = ()
    """Codes of findings whose questions are left out."""
    variants: int = 0
    """Hidden variants a row may refer to."""
    limit: int | None = None
    """Only a corpus's first questions."""
    limits: Limits = Limits()
    """Of running a gold query."""

    def check(self) -> None:
        """Raises UsageError or UnknownNameError for what cannot be."""
        if not 1 <= self.smallest <= self.largest <= 30_000:
            raise UsageError(
                "--tables takes SMALLEST:LARGEST with 1 <= SMALLEST <= LARGEST, such as 4:64; "
                f"got {self.smallest}:{self.largest}"
            )
        if self.distractors not in DISTRACTORS:
            raise UnknownNameError("kind of distractors", self.distractors, DISTRACTORS)
        if self.mask is not None and self.mask not in list(MaskMode):
            raise UnknownNameError("mask", self.mask, MaskMode)
        if self.extra is not None and self.extra < 0:
            raise UsageError(f"--extra takes a number of tables, 0 or more; got {self.extra}")
        if self.extra is not None and self.full:
            raise UsageError("--extra and --full ask for different samples: give one of them")

    def cutting(self, corpus: CorpusFolder) -> tuple[Edges, MaskMode]:
        """The edges and the mask for one corpus."""
        stored = read_edges(corpus)
        if self.edges is not None:
            return Edges(self.edges), MaskMode(self.mask or MaskMode.LITERALS)
        if stored is not None and self.mask in (None, stored[1]):
            return stored[0], MaskMode(stored[1])
        return Edges(), MaskMode(self.mask or MaskMode.LITERALS)


def parse_tables(text: str) -> tuple[int, int]:
    """`4:64`, or one number for exactly that many. Raises UsageError otherwise."""
    smallest, colon, largest = text.partition(":")
    if not smallest.isdigit() or (colon and not largest.isdigit()):
        raise UsageError(
            f"--tables takes SMALLEST:LARGEST, such as 4:64, or a number; got {text!r}"
        )
    return int(smallest), int(largest if colon else smallest)


def check_corpora(corpora: list[CorpusFolder], settings: ManifestSettings) -> None:
    """Raises UsageError where two corpora share a name, since their row ids would be the same.

    Raises UnknownNameError for a phrasing that no question of the corpora has.
    """
    names = Counter(corpus.name for corpus in corpora)
    twice = sorted(name for name, times in names.items() if times > 1)
    if twice:
        raise UsageError(
            f"two corpora are called {', '.join(map(repr, twice))}: materialize one of them "
            "again with another --name"
        )
    if settings.styles:
        files = (c.root / "questions.parquet" for c in corpora)
        known = {style for file in files for style in count_values(file, "style")} - {""}
        for style in settings.styles:
            if style not in known:
                raise UnknownNameError("phrasing", style, known)


def configuration_of(settings: ManifestSettings, corpora: list[CorpusFolder]) -> dict[str, Any]:
    """What decides a manifest's bytes: the settings, the inputs' digests, the engine's version."""
    return {
        "settings": msgspec.to_builtins(settings),
        "corpora": {
            corpus.name: {
                file: sha256_file(corpus.root / file)
                for file in INPUT_FILES
                if (corpus.root / file).is_file()
            }
            for corpus in corpora
        },
        "sqlite": SQLITE_VERSION,
    }


BEGUN_FILE = "configuration.json"
"""Beside the parts of a build that has not ended: what they are made with."""


def check_same(before: dict[str, Any], now: dict[str, Any], opening: str) -> None:
    """Raises ConfigurationError, naming the options and files that differ, where any does.

    `opening`: the sentence's beginning, such as "manifest was begun with".
    """
    different = dict.fromkeys(map(_typed, _differences(before, now)))
    if different:
        raise ConfigurationError(
            f"{opening} another {', '.join(different)}: "
            "choose another --out, or build it anew with --replace"
        )


def read_index(out: Path) -> dict[str, Any]:
    """manifest.json of a folder that has one. Raises ConfigurationError for another file."""
    try:
        index = msgspec.json.decode((out / MANIFEST_FILE).read_bytes(), type=dict[str, Any])
    except msgspec.MsgspecError:
        index = {}
    parts = (index.get("configuration"), index.get("counts"))
    if index.get("format") not in READABLE or not all(isinstance(part, dict) for part in parts):
        raise ConfigurationError(
            f"{out / MANIFEST_FILE} is no manifest's ({FORMAT}): choose another --out"
        )
    return index


def write_index(
    out: Path,
    configuration: dict[str, Any],
    counts: Any,
    *,
    edges: dict[str, list[int]],
    parts: int = 1,
    format: str = FORMAT,
) -> None:
    """Writes manifest.json; `edges`: corpus -> the lengths at which its buckets begin."""
    index = {
        "format": format,
        "configuration": configuration,
        "edges": edges,
        "counts": counts,
        "parts": parts,
        "versions": VERSIONS,
    }
    encoded = msgspec.json.format(msgspec.json.encode(index), indent=2)
    write_bytes(out / MANIFEST_FILE, encoded + b"\n")


def read_begun(folder: Path) -> dict[str, Any] | None:
    """What the parts in this folder are made with; None where none are begun."""
    file = folder / BEGUN_FILE
    if not file.is_file():
        return None
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])


def remove_other(out: Path, configuration: dict[str, Any]) -> None:
    """Removes the manifest in `out`, or a build of one, that was made with another configuration.

    For whoever holds the folder's lock. Anything else in the folder stays. Raises
    ConfigurationError where manifest.json is no manifest's.
    """
    folder = out / PARTS_FOLDER
    begun = read_begun(folder)
    with writing(out):
        if begun is not None and _differences(begun, configuration):
            for part in folder.iterdir():
                if part.is_dir():
                    shutil.rmtree(part)
                elif part.name != LOCK_FILE:
                    part.unlink()
        if (out / MANIFEST_FILE).is_file() and _differences(
            read_index(out)["configuration"], configuration
        ):
            (out / MANIFEST_FILE).unlink()  # first: without it the folder is not called complete
            for file in (ROWS_FILE, GOLD_FILE, REJECTS_FILE, VARIANTS_FILE):
                (out / file).unlink(missing_ok=True)


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Which entries of two configurations are not the same, sorted."""
    now = msgspec.json.decode(msgspec.json.encode(now))
    flat_before, flat_now = dict(_flatten(before)), dict(_flatten(now))
    keys = sorted(flat_before.keys() | flat_now.keys())
    return [key for key in keys if flat_before.get(key) != flat_now.get(key)]


def _flatten(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(values, dict):
        yield prefix.removeprefix("."), values
        return
    for key, value in values.items():
        yield from _flatten(value, f"{prefix}.{key}")


def _typed(key: str) -> str:
    """An entry of the configuration as the operator knows it: an option, or a corpus's file."""
    section, _, name = key.partition(".")
    if section == "settings":
        option = "tables" if name in ("smallest", "largest") else name.replace("_", "-")
        return f"limit of a gold query ({name})" if "." in name else f"--{option}"
    return name.replace(".", "/", 1) if section == "corpora" else f"{section} version"
