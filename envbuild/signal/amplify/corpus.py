"""A corpus amplified into a new corpus folder: databases in parallel, the index last.

The originals are only read. A run that was killed is run again: finished units are kept. A run
under another configuration is refused.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from envbuild import __version__
from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE, INDEX_FORMAT, PARTS_FOLDER
from envbuild.engine.fanout import chunked, run_shards, shard_of
from envbuild.errors import ConfigurationError, UsageError
from envbuild.io.files import sha256_file, write_bytes, writing
from envbuild.io.sorting import iter_grouped
from envbuild.records.amplified import AmplifySettings, CorpusGrowth, Gold
from envbuild.records.corpus import DatabaseRow, TableRow
from envbuild.signal.amplify.assemble import assemble
from envbuild.signal.amplify.units import (
    DATABASES_A_UNIT,
    Entry,
    Unit,
    amplify_unit,
    copy_unit,
)
from envbuild.signal.sample import AskedGold
from envbuild.sql.connect import SQLITE_VERSION

_CONFIGURATION_FILE = "configuration.json"


def amplify_corpus(
    folder: CorpusFolder,
    out: Path,
    *,
    settings: AmplifySettings,
    limit: int | None = None,
    workers: int | None = None,
    engine: str = "local",
    shard: tuple[int, int] = (0, 1),
    on_done: Callable[[int], None] = lambda done: None,
) -> CorpusGrowth:
    """Amplifies a corpus into `out/<name>`; the same bytes for any workers, engine or shards.

    `limit` takes the first databases only. `shard` (I, N) amplifies that share; whoever completes
    the last share writes the catalogue. Raises UsageError where the new folder would be the old
    one, ConfigurationError where it was begun otherwise.
    """
    root = Path(out) / folder.name
    if root.resolve() == folder.root.resolve():
        raise UsageError(f"--out {out} is where the corpus lies: choose another folder")
    configuration = _configuration(folder, settings, limit=limit)
    if (root / INDEX_FILE).is_file():
        return _finished(root, configuration)
    own = root / PARTS_FOLDER / f"{shard[0]}-of-{shard[1]}"
    with writing(root):
        own.mkdir(parents=True, exist_ok=True)
    _check_configuration(root, {**configuration, "shards": shard[1]})
    units = _units(folder, root, own.name, settings, limit=limit, shard=shard)
    missing = (unit for unit in units if not (root / unit.part).is_file())
    for done in run_shards(
        amplify_unit, missing, workers=workers, engine=engine, on_crash=copy_unit
    ):
        on_done(done)
    write_bytes(own / "done", b"")
    shards = [root / PARTS_FOLDER / f"{i}-of-{shard[1]}" for i in range(shard[1])]
    if not all((other / "done").is_file() for other in shards):
        return CorpusGrowth(name=folder.name, root=str(root), complete=False)
    growth = assemble(root, folder, shards)
    index = {
        **folder.index,
        "format": INDEX_FORMAT,
        **configuration,
        "counts": _counts(growth, folder.index.get("counts", {})),
    }
    write_bytes(root / INDEX_FILE, msgspec.json.format(msgspec.json.encode(index), indent=2))
    shutil.rmtree(root / PARTS_FOLDER, ignore_errors=True)
    return growth


def parse_rows(text: str) -> tuple[int, int]:
    """`LOW:HIGH` as two numbers, 1 <= LOW <= HIGH. Raises UsageError otherwise."""
    low, _, high = text.partition(":")
    if low.isdigit() and high.isdigit() and 1 <= int(low) <= int(high):
        return int(low), int(high)
    raise UsageError(f"--rows takes LOW:HIGH with 1 <= LOW <= HIGH, such as 30:70; got {text!r}")


def _units(
    folder: CorpusFolder,
    root: Path,
    part_folder: str,
    settings: AmplifySettings,
    *,
    limit: int | None,
    shard: tuple[int, int],
) -> Iterator[Unit]:
    tables: dict[str, list[TableRow]] = {}
    for table in folder.tables():
        tables.setdefault(table.db_id, []).append(table)
    own = [row for row in folder.databases()[:limit] if shard_of(row.db_id, shard[1]) == shard[0]]
    golds = _golds(folder, [row.db_id for row in own])
    for number, rows in enumerate(chunked(own, DATABASES_A_UNIT)):
        entries = tuple(
            Entry(
                database=_placed(row, folder),
                tables=tuple(tables.get(row.db_id, ())),
                source=str(folder.database_path(row.db_id)),
                golds=next(golds),
            )
            for row in rows
        )
        part = f"{PARTS_FOLDER}/{part_folder}/{number:06}.msgpack"
        yield Unit(root=str(root), part=part, entries=entries, settings=settings)


def _golds(folder: CorpusFolder, db_ids: Sequence[str]) -> Iterator[tuple[Gold, ...]]:
    """The distinct golds of each database in turn; the first question of a gold names it."""
    if not folder.catalogued:
        yield from (() for _ in db_ids)
        return
    questions = folder.root / "questions.parquet"
    for _, asked in iter_grouped(questions, AskedGold, by="db_id", keys=db_ids):
        golds: dict[str, Gold] = {}
        for question in asked:
            gold = Gold(question_id=question.question_id, sql=question.gold_sql)
            golds.setdefault(question.gold_sql, gold)
        yield tuple(golds.values())


def _placed(row: DatabaseRow, folder: CorpusFolder) -> DatabaseRow:
    """The row with its file where the new corpus has it; a plain folder's moves in `databases`."""
    if folder.catalogued:
        return row
    return msgspec.structs.replace(row, sqlite_file=f"databases/{row.sqlite_file}")


def _configuration(
    folder: CorpusFolder, settings: AmplifySettings, *, limit: int | None
) -> dict[str, Any]:
    """Everything that decides the bytes: the source's index stands for its files."""
    index = folder.root / INDEX_FILE
    return {
        "name": folder.name,
        "amplified": {
            "settings": msgspec.to_builtins(settings),
            "limit": limit,
            "corpus_sha256": sha256_file(index) if index.is_file() else "",
        },
        "sqlite": SQLITE_VERSION,
        "envbuild": __version__,
    }


def _check_configuration(root: Path, configuration: dict[str, Any]) -> None:
    file = root / PARTS_FOLDER / _CONFIGURATION_FILE
    if file.is_file():
        _compare(msgspec.json.decode(file.read_bytes()), configuration, root)
    else:
        write_bytes(file, msgspec.json.encode(configuration))


def _finished(root: Path, configuration: dict[str, Any]) -> CorpusGrowth:
    index = msgspec.json.decode((root / INDEX_FILE).read_bytes())
    _compare(index, configuration, root)
    counts = index["counts"]["amplified"]
    return CorpusGrowth(name=index["name"], root=str(root), complete=True, resumed=True, **counts)


def _counts(growth: CorpusGrowth, before: dict[str, Any]) -> dict[str, Any]:
    plain = msgspec.to_builtins(growth)
    for key in ("name", "root", "complete", "resumed"):
        del plain[key]
    rows = ("rows", "rows_offered", "rows_stored")
    counted = {key: before[key] + growth.rows_added for key in rows if key in before}
    return {**before, **counted, "databases": growth.databases, "amplified": plain}


def _compare(before: dict[str, Any], now: dict[str, Any], root: Path) -> None:
    differing = [
        f"{key} ({before.get(key)!r} then, {value!r} now)"
        for key, value in now.items()
        if before.get(key) != value
    ]
    if differing:
        raise ConfigurationError(
            f"{root} was begun under another configuration: {'; '.join(differing)}; "
            "choose another --out, or remove that folder"
        )
