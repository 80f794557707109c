"""Builds a manifest: parts fanned out, resumed and joined; the index file last (CONTRACT 6)."""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.fanout import run_shards
from envbuild.engine.shards import shard_of
from envbuild.errors import ConfigurationError, CorpusFolderError, UsageError
from envbuild.io.files import write_bytes, writing
from envbuild.io.locks import only_writer
from envbuild.manifest.hand_out import hand_out_questions, remove_questions
from envbuild.manifest.layout import (
    FORMAT,
    GOLD_FILE,
    INDEX_FILE,
    PARTS_FOLDER,
    REJECTS_FILE,
    ROWS_FILE,
    VARIANTS_FILE,
)
from envbuild.manifest.make_part import PartCounts, make_part
from envbuild.manifest.merge import ManifestCounts, add_up, write_manifest
from envbuild.manifest.parts import Part, VariantMaker, plan_parts
from envbuild.manifest.settings import (
    ManifestSettings,
    check_names,
    check_styles,
    configuration_of,
)
from envbuild.sql.connect import VERSIONS

_CONFIGURATION = "configuration.json"


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What a build came to."""

    out: Path
    counts: ManifestCounts
    """Of the finished parts."""
    parts: int
    parts_done: int
    """Fewer than `parts` where other shards are still to be built."""

    @property
    def complete(self) -> bool:
        """True where the manifest is there, False where more shards are wanted."""
        return self.parts == self.parts_done


def build_manifest(
    corpora: list[CorpusFolder],
    out: Path,
    *,
    settings: ManifestSettings,
    workers: int | None = None,
    engine: str = "local",
    shard: tuple[int, int] | None = None,
    watch: Callable[[int, int], None] | None = None,
    maker: VariantMaker | None = None,
    replace: bool = False,
) -> Built:
    """Writes the question pool of these corpora into `out`; the same bytes for any workers.

    A finished part is never made twice: an interrupted build goes on, and a complete one is only
    read. `shard` (index, count) makes only that share of the parts; a run without it then joins
    them. `watch(done, parts)` hears of progress; `maker` makes the hidden variants that the
    settings ask for. Raises ConfigurationError, naming what differs, where `out` was begun with
    other settings or inputs, unless `replace` says that it then goes; CorpusFolderError where there
    is no question.
    """
    settings.check()
    if settings.variants and maker is None:
        raise UsageError("a manifest with hidden variants needs a function that makes them")
    check_names(corpora)
    check_styles(settings, corpora)
    configuration = configuration_of(settings, corpora)
    if replace:
        remove_other(out, configuration)
    if (out / INDEX_FILE).is_file():
        return _read_complete(out, configuration)
    folder = out / PARTS_FOLDER
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # shards build side by side; two whole runs would remove each other's parts
    with only_writer(folder, of=out) if shard is None else nullcontext():
        _begin(folder, configuration)
        parts = plan_parts(corpora, settings, folder=folder, out=out, maker=maker)
        if not parts:
            names = ", ".join(corpus.name for corpus in corpora)
            raise CorpusFolderError(f"no questions in {names}: nothing to put into a manifest")
        wanted = [
            part for part in parts if not part.file("done").exists() and _is_ours(part, shard)
        ]
        for corpus in corpora:
            own = [part for part in wanted if part.corpus == corpus.name]
            with writing(folder):
                hand_out_questions(corpus, own, settings.limit)
        before = sum(part.file("done").exists() for part in parts)
        for done, counts in enumerate(
            run_shards(make_part, wanted, workers=_workers(workers, wanted), engine=engine), start=1
        ):
            remove_questions(parts[counts.number])
            if watch:
                watch(before + done, len(parts))
        finished = [_read_counts(part) for part in parts if part.file("done").exists()]
        built = Built(out=out, counts=add_up(finished), parts=len(parts), parts_done=len(finished))
        if built.complete and shard is None:
            write_manifest(out, parts)
            edges = {c.name: list(settings.cutting(c)[0].values) for c in corpora}
            _write_index(out, configuration, built, edges)
            shutil.rmtree(folder)
        return built


def _is_ours(part: Part, shard: tuple[int, int] | None) -> bool:
    return shard is None or shard_of(f"{part.corpus}/{part.number}", shard[1]) == shard[0]


def _workers(workers: int | None, wanted: list[Part]) -> int | None:
    """A single part is done in this process: starting another would only cost time."""
    return 1 if len(wanted) <= 1 else workers


def _begin(folder: Path, configuration: dict[str, Any]) -> None:
    """Writes down what the parts are made with, or compares it with what they were made with."""
    file = folder / _CONFIGURATION
    if file.is_file():
        before = msgspec.json.decode(file.read_bytes())
        _compare(before, configuration, f"{folder.parent} was begun with")
    else:
        write_bytes(file, msgspec.json.encode(configuration))


def remove_other(out: Path, configuration: dict[str, Any]) -> None:
    """Removes the manifest in `out`, or a build of one, that was made with another configuration.

    Anything else in the folder stays.
    """
    index, begun = out / INDEX_FILE, out / PARTS_FOLDER / _CONFIGURATION
    with writing(out):
        if begun.is_file() and _differences(msgspec.json.decode(begun.read_bytes()), configuration):
            shutil.rmtree(out / PARTS_FOLDER)
        if index.is_file():
            found = msgspec.json.decode(index.read_bytes(), type=dict[str, Any])
            if found.get("format") == FORMAT and _differences(
                found["configuration"], configuration
            ):
                index.unlink()  # first: without it the folder does not claim to be complete
                for file in (ROWS_FILE, GOLD_FILE, REJECTS_FILE, VARIANTS_FILE):
                    (out / file).unlink(missing_ok=True)


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Which entries of two configurations are not the same, sorted."""
    now = msgspec.json.decode(msgspec.json.encode(now))
    flat_before, flat_now = dict(_flatten(before)), dict(_flatten(now))
    return sorted(
        key
        for key in flat_before.keys() | flat_now.keys()
        if flat_before.get(key) != flat_now.get(key)
    )


def _compare(before: dict[str, Any], now: dict[str, Any], opening: str) -> None:
    different = dict.fromkeys(map(_typed, _differences(before, now)))
    if different:
        raise ConfigurationError(
            f"{opening} another {', '.join(different)}: "
            "choose another --out, or build it anew with --replace"
        )


def _typed(key: str) -> str:
    """An entry of the configuration as the operator knows it: an option, or a corpus's file."""
    section, _, name = key.partition(".")
    if section == "settings":
        option = "tables" if name in ("smallest", "largest") else name.replace("_", "-")
        return f"limit of a gold query ({name})" if "." in name else f"--{option}"
    return f"{name.replace('.', '/', 1)}" if section == "corpora" else f"{section} version"


def _flatten(values: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(values, dict):
        return [(prefix, values)]
    return [
        pair
        for key, value in sorted(values.items())
        for pair in _flatten(value, f"{prefix}.{key}" if prefix else str(key))
    ]


def _read_counts(part: Part) -> PartCounts:
    return msgspec.json.decode(part.file("done").read_bytes(), type=PartCounts)


def _read_complete(out: Path, configuration: dict[str, Any]) -> Built:
    index = msgspec.json.decode((out / INDEX_FILE).read_bytes(), type=dict[str, Any])
    if index.get("format") != FORMAT:
        raise ConfigurationError(
            f"{out / INDEX_FILE} has format {index.get('format')!r}, not {FORMAT}: "
            "choose another --out"
        )
    _compare(index["configuration"], configuration, f"{out} holds a manifest made with")
    shutil.rmtree(out / PARTS_FOLDER, ignore_errors=True)
    counts = msgspec.convert(index["counts"], ManifestCounts, strict=False)
    return Built(out=out, counts=counts, parts=index["parts"], parts_done=index["parts"])


def _write_index(
    out: Path, configuration: dict[str, Any], built: Built, edges: dict[str, list[int]]
) -> None:
    """`edges`: corpus -> the lengths at which its buckets begin, wherever they came from."""
    index = {
        "format": FORMAT,
        "configuration": configuration,
        "edges": edges,
        "counts": built.counts,
        "parts": built.parts,
        "versions": VERSIONS,
    }
    encoded = msgspec.json.format(msgspec.json.encode(index), indent=2)
    write_bytes(out / INDEX_FILE, encoded + b"\n")
