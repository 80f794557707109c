"""Builds a manifest: parts fanned out, resumed and joined; the index file last (CONTRACT 6)."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.fanout import run_shards, shard_of
from envbuild.errors import CorpusFolderError, UsageError
from envbuild.io.files import write_bytes, writing
from envbuild.io.locks import only_writer
from envbuild.manifest.configuration import (
    BEGUN_FILE,
    check_same,
    read_begun,
    read_index,
    remove_other,
)
from envbuild.manifest.hand_out import hand_out_questions, remove_questions
from envbuild.manifest.layout import FORMAT, LOCK_FILE, MANIFEST_FILE, PARTS_FOLDER
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
    if replace and shard is not None:
        raise UsageError("--replace goes without --shard: other shards may be building there")
    configuration = configuration_of(settings, corpora)
    if not replace and (out / MANIFEST_FILE).is_file():
        return _read_complete(out, configuration)
    folder = out / PARTS_FOLDER
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # shards build side by side; two whole runs would remove each other's parts
    with only_writer(folder, file=LOCK_FILE, of=out, shared=shard is not None):
        if replace:
            remove_other(out, configuration)
            if (out / MANIFEST_FILE).is_file():
                return _read_complete(out, configuration)
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
    if (before := read_begun(folder)) is not None:
        check_same(before, configuration, f"{folder.parent} was begun with")
    else:
        write_bytes(folder / BEGUN_FILE, msgspec.json.encode(configuration))


def _read_counts(part: Part) -> PartCounts:
    return msgspec.json.decode(part.file("done").read_bytes(), type=PartCounts)


def _read_complete(out: Path, configuration: dict[str, Any]) -> Built:
    index = read_index(out)
    check_same(index["configuration"], configuration, f"{out} holds a manifest made with")
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
    write_bytes(out / MANIFEST_FILE, encoded + b"\n")
