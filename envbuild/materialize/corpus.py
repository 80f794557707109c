"""A source as a corpus folder: databases in parallel, then the catalogue, the index last.

A run that was killed is simply run again: finished units are kept, and the folder ends up with
the bytes of an undisturbed run. A run under another configuration is refused.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from envbuild import __version__
from envbuild.corpora.folder_files import INDEX_FILE, INDEX_FORMAT, PARTS_FOLDER
from envbuild.corpora.source import Source
from envbuild.engine.fanout import run_shards
from envbuild.errors import ConfigurationError
from envbuild.io.files import sha256_file, write_bytes, writing
from envbuild.io.locks import only_writer
from envbuild.materialize.assemble import assemble
from envbuild.materialize.names import safe_name
from envbuild.materialize.units import build_unit, build_unit_singly, iter_units, remove_temporary
from envbuild.sql.connect import SQLITE_VERSION

_CONFIGURATION_FILE = "configuration.json"
_UNSHARDED = (0, 1)


class CorpusSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a materialize came to; the counts of corpus.json."""

    name: str
    root: str
    said: str
    """What the reader saw."""
    complete: bool
    """False while other shards are missing: then there is no corpus yet."""
    resumed: bool = False
    """The folder was complete already, and nothing was built."""
    databases: int = 0
    failed: int = 0
    """Databases that could not be built; each is in rejects."""
    tables: int = 0
    rows: int = 0
    rows_offered: int = 0
    rows_stored: int = 0
    rows_refused: int = 0
    ddl_statements: int = 0
    ddl_refused: int = 0
    fk_violations: int = 0
    undecodable_cells: int = 0
    description_files: int = 0
    """CSV files of column descriptions (BIRD's) copied beside their databases."""
    questions: int = 0
    questions_refused: int = 0
    questions_outside: int = 0
    """Questions about databases that `--limit` or `--split` left out: not offered."""
    rejects: dict[str, int] = {}
    """Reason -> how many; `transpiled` and `folded` are notes about what was taken after all."""


def build_corpus(
    source: Source,
    out: Path,
    *,
    name: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    link: bool = False,
    workers: int | None = None,
    engine: str = "local",
    shard: tuple[int, int] = _UNSHARDED,
    on_built: Callable[[int], None] = lambda built: None,
) -> CorpusSummary:
    """Materializes `source` into `out/<name>`; the same bytes for any workers, engine or shards.

    `limit` takes the first databases only. `shard` (I, N) builds that share; whoever completes the
    last share writes the catalogue. `on_built` hears of every few databases. Raises OutputError
    where `out` cannot be written, and ConfigurationError where the folder was begun otherwise.
    """
    name = safe_name(name or source.name)
    root = Path(out) / name
    configuration = _configuration(
        source, name, split=split, limit=limit, link=link, shards=shard[1]
    )
    if (root / INDEX_FILE).is_file():
        return _finished(root, configuration, source)
    parts = root / PARTS_FOLDER
    with writing(root):
        parts.mkdir(parents=True, exist_ok=True)
    _check_configuration(parts / _CONFIGURATION_FILE, configuration)
    own = parts / f"{shard[0]}-of-{shard[1]}"
    with writing(own):
        own.mkdir(exist_ok=True)
    with only_writer(own, of=root):
        remove_temporary(own)
        units = iter_units(
            source.databases(), root, shard=shard, link=link, limit=limit, split=split
        )
        missing = (unit for unit in units if not unit.part_path.is_file())
        for built in run_shards(
            build_unit, missing, workers=workers, engine=engine, on_crash=build_unit_singly
        ):
            on_built(built)
        write_bytes(own / "done", b"")
        if not all((parts / f"{i}-of-{shard[1]}" / "done").is_file() for i in range(shard[1])):
            return CorpusSummary(name=name, root=str(root), said=source.said, complete=False)
        part = limit is not None or split is not None
        return _complete(root, source, configuration, split=split, limited=part)


def _complete(
    root: Path, source: Source, configuration: dict[str, Any], *, split: str | None, limited: bool
) -> CorpusSummary:
    remove_temporary(root)
    counts = assemble(root, source, split=split, limited=limited)
    shown = {key: value for key, value in configuration.items() if key != "shards"}
    index = {"format": INDEX_FORMAT, **shown, "said": source.said, "counts": counts}
    encoded = msgspec.json.format(msgspec.json.encode(index), indent=2)
    write_bytes(root / INDEX_FILE, encoded + b"\n")
    shutil.rmtree(root / PARTS_FOLDER, ignore_errors=True)
    return _summary(root, index, resumed=False)


def _finished(root: Path, configuration: dict[str, Any], source: Source) -> CorpusSummary:
    index = msgspec.json.decode((root / INDEX_FILE).read_bytes())
    _compare(index, configuration, root)
    shutil.rmtree(root / PARTS_FOLDER, ignore_errors=True)
    return _summary(root, index, resumed=True)


def _summary(root: Path, index: dict[str, Any], *, resumed: bool) -> CorpusSummary:
    return CorpusSummary(
        name=index["name"],
        root=str(root),
        said=index["said"],
        complete=True,
        resumed=resumed,
        **index["counts"],
    )


def _configuration(
    source: Source, name: str, *, split: str | None, limit: int | None, link: bool, shards: int
) -> dict[str, Any]:
    """Everything that decides the bytes, and nothing else: no paths, workers or times."""
    return {
        "name": name,
        "reader": source.kind,
        "revision": source.revision,
        "source": {f"{p.parent.name}/{p.name}": sha256_file(p) for p in source.files},
        "options": {"split": split, "limit": limit, "link": link},
        "shards": shards,
        "sqlite": SQLITE_VERSION,
        "envbuild": __version__,
    }


def _check_configuration(file: Path, configuration: dict[str, Any]) -> None:
    """Remembers the configuration, or refuses to go on under another one."""
    if file.is_file():
        _compare(msgspec.json.decode(file.read_bytes()), configuration, file.parent.parent)
    else:
        write_bytes(file, msgspec.json.encode(configuration))


def _compare(before: dict[str, Any], now: dict[str, Any], root: Path) -> None:
    differing = []
    for key, value in now.items():
        old = before.get(key)
        if key == "shards" and "counts" in before:
            continue  # a finished corpus does not show how it was cut
        if isinstance(value, dict) and isinstance(old, dict):
            typed = "--" if key == "options" else f"{key}."
            differing += [
                f"{typed}{inner} ({old.get(inner)!r} then, {value.get(inner)!r} now)"
                for inner in sorted(value.keys() | old.keys())
                if value.get(inner) != old.get(inner)
            ]
        elif value != old:
            differing.append(f"{key} ({old!r} then, {value!r} now)")
    if differing:
        made = "holds a corpus made" if "counts" in before else "was begun"
        raise ConfigurationError(
            f"{root} {made} with another configuration: {'; '.join(differing)}; "
            "choose another --out or --name, or remove that folder"
        )
