"""Builds a manifest: parts fanned out, resumed and joined; the index file last (CONTRACT 6).

A part is a run of databases in the order of their row ids: what one worker does at a time, and
what a resumed run finds finished. The cut depends on the corpora alone, never on workers.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.fanout import run_shards, shard_of
from envbuild.errors import ConfigurationError, CorpusFolderError, UsageError
from envbuild.io.files import atomic_path, changed_entries, only_writer, write_bytes, writing
from envbuild.io.parquet import columns_of, open_parquet, write_batches
from envbuild.io.sorting import iter_grouped
from envbuild.manifest.buckets import NAMES_OF_TWO_EDGES
from envbuild.manifest.read import (
    FORMAT,
    GOLD_FILE,
    GOLD_SCHEMA,
    LOCK_FILE,
    MANIFEST_FILE,
    PARTS_FOLDER,
    REJECT_SCHEMA,
    REJECTS_FILE,
    ROW_SCHEMA,
    ROWS_FILE,
    VARIANT_SCHEMA,
    VARIANTS_FILE,
    escape_part,
    read_index,
)
from envbuild.manifest.rows import (
    AskedDatabase,
    AskedQuestion,
    QuestionSignal,
    RowBuilder,
    RowSource,
)
from envbuild.manifest.settings import ManifestSettings, check_corpora, configuration_of
from envbuild.records.corpus import Reject
from envbuild.records.leaks import LEAKS_FILE, leak_code
from envbuild.records.manifest import ManifestRow
from envbuild.sql.connect import VERSIONS

BEGUN_FILE = "configuration.json"
"""Beside the parts of a build that has not ended: what they are made with."""
PART_QUESTIONS = 4096
"""A part has about as many questions, and never less than one database's."""
MAX_PARTS = 512
"""A corpus's parts."""


class ManifestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of questions: offered = rows + rejects, over all reasons."""

    offered: int = 0
    rows: int = 0
    golds: int = 0
    rejects: dict[str, int] = {}
    """Reason -> questions (phrasings) left out for it."""
    buckets: dict[str, int] = {}
    sizes: dict[int, int] = {}
    """Tables of a sample -> rows."""
    variants: dict[str, int] = {}
    """`made`, and reason -> golds that a variant cannot judge."""

    @property
    def rejected(self) -> int:
        """Questions (phrasings) left out, whatever the reason."""
        return sum(self.rejects.values())


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


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One run of databases of one corpus."""

    number: int
    """Position among all parts; rows of a lower part have lower row ids."""
    source: RowSource
    questions: dict[str, int]
    """db_id -> its questions, in the order of row ids."""
    folder: Path
    """Where the part's files lie while the manifest is built."""

    def file(self, ending: str) -> Path:
        """A file of this part."""
        return self.folder / f"{self.number:06}.{ending}"

    @property
    def is_done(self) -> bool:
        """True once all its files are there."""
        return self.file("done").exists()


class PartInput(NamedTuple):
    """A part with all that is needed to make it, wherever the worker runs."""

    part: Part
    databases: list[AskedDatabase]


def build_manifest(
    corpora: list[CorpusFolder],
    out: Path,
    *,
    settings: ManifestSettings,
    workers: int | None = None,
    engine: str = "local",
    shard: tuple[int, int] | None = None,
    watch: Callable[[int, int], None] | None = None,
    replace: bool = False,
) -> Built:
    """Writes the question pool of these corpora into `out`; the same bytes for any workers.

    A finished part is never made twice: an interrupted build goes on, and a complete one is only
    read. `shard` (index, count) makes only that share of the parts; a run without it then joins
    them. `watch(done, parts)` hears of progress. Raises ConfigurationError, naming what differs,
    where `out` was begun with other settings or inputs, unless `replace` says that it then goes;
    CorpusFolderError where there is no question.
    """
    settings.check()
    check_corpora(corpora, settings)
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
            _remove_other(out, configuration)
            if (out / MANIFEST_FILE).is_file():
                return _read_complete(out, configuration)
        if (before := _read_begun(folder)) is not None:
            _check_same(before, configuration, f"{out} was begun with")
        else:
            write_bytes(folder / BEGUN_FILE, msgspec.json.encode(configuration))
        parts = plan_parts(corpora, settings, folder=folder, out=out)
        wanted = [part for part in parts if not part.is_done and _is_ours(part, shard)]
        done = sum(part.is_done for part in parts)
        if len(wanted) <= 1:  # done in this process: starting another would only cost time
            workers = 1
        for _ in run_shards(
            make_part,
            read_parts(wanted),
            workers=workers,
            engine=engine,
            shared_file=folder / BEGUN_FILE,
        ):
            done += 1
            if watch:
                watch(done, len(parts))
        finished = [part.file("done").read_bytes() for part in parts if part.is_done]
        counts = add_up(
            [ManifestCounts(), *(msgspec.json.decode(one, type=ManifestCounts) for one in finished)]
        )
        built = Built(out=out, counts=counts, parts=len(parts), parts_done=len(finished))
        if built.complete and shard is None:
            join_parts(out, parts)
            edges = {c.name: list(settings.cutting(c)[0].values) for c in corpora}
            write_index(
                out,
                configuration,
                built.counts,
                edges=edges,
                licences={corpus.name: corpus.licence for corpus in corpora},
                parts=built.parts,
            )
            shutil.rmtree(folder)
        return built


def _is_ours(part: Part, shard: tuple[int, int] | None) -> bool:
    key = f"{part.source.corpus}/{part.number}"
    return shard is None or shard_of(key, shard[1]) == shard[0]


def _read_complete(out: Path, configuration: dict[str, Any]) -> Built:
    index = read_index(out)
    _check_same(index["configuration"], configuration, f"{out} holds a manifest made with")
    shutil.rmtree(out / PARTS_FOLDER, ignore_errors=True)
    counts = msgspec.convert(index["counts"], ManifestCounts, strict=False)
    return Built(out=out, counts=counts, parts=index["parts"], parts_done=index["parts"])


def _read_begun(folder: Path) -> dict[str, Any] | None:
    """What the parts in this folder are made with; None where none are begun."""
    file = folder / BEGUN_FILE
    return msgspec.json.decode(file.read_bytes()) if file.is_file() else None


def _check_same(before: dict[str, Any], now: dict[str, Any], opening: str) -> None:
    """Raises ConfigurationError, naming the options and files that differ, where any does."""
    if changed := changed_entries(before, now):
        raise ConfigurationError(
            f"{opening} another {', '.join(dict.fromkeys(_typed(key) for key, *_ in changed))}: "
            "choose another --out, or build it anew with --replace"
        )


def _typed(key: str) -> str:
    """An entry of the configuration as the operator knows it: an option, or a corpus's file."""
    section, _, name = key.partition(".")
    if section == "settings":
        option = "tables" if name in ("smallest", "largest") else name.replace("_", "-")
        return f"limit of a gold query ({name})" if "." in name else f"--{option}"
    return name.replace(".", "/", 1) if section == "corpora" else f"{section} version"


def _remove_other(out: Path, configuration: dict[str, Any]) -> None:
    """Removes the manifest in `out`, or a build of one, that was made with another configuration.

    For whoever holds the folder's lock. Anything else in the folder stays.
    """
    folder = out / PARTS_FOLDER
    begun, whole = _read_begun(folder), (out / MANIFEST_FILE).is_file()
    stale: list[Path] = []
    if begun is not None and changed_entries(begun, configuration):
        stale += (file for file in folder.iterdir() if file.name != LOCK_FILE)
    if whole and changed_entries(read_index(out)["configuration"], configuration):
        # the index first: without it the folder is not called complete
        names = (MANIFEST_FILE, ROWS_FILE, GOLD_FILE, REJECTS_FILE, VARIANTS_FILE)
        stale += (out / name for name in names)
    with writing(out):
        for file in stale:
            file.unlink(missing_ok=True)


def write_index(
    out: Path,
    configuration: dict[str, Any],
    counts: Any,
    *,
    edges: dict[str, list[int]],
    licences: dict[str, str],
    parts: int = 1,
    format: str = FORMAT,
) -> None:
    """Writes manifest.json; `edges`: corpus -> the lengths at which its buckets begin.

    `licences`: corpus -> that of its data.
    """
    index = {
        "format": format,
        "configuration": configuration,
        "edges": edges,
        "licences": licences,
        "counts": counts,
        "parts": parts,
        "versions": VERSIONS,
    }
    encoded = msgspec.json.format(msgspec.json.encode(index), indent=2)
    write_bytes(out / MANIFEST_FILE, encoded + b"\n")


# From corpora to parts: questions, signal and findings grouped by database.


def plan_parts(
    corpora: list[CorpusFolder],
    settings: ManifestSettings,
    *,
    folder: Path,
    out: Path,
) -> list[Part]:
    """Every part, in the order of row ids. Raises CorpusFolderError where there is no question."""
    parts: list[Part] = []
    for corpus in sorted(corpora, key=lambda corpus: _order(corpus.name)):
        edges, mask = settings.cutting(corpus)
        source = RowSource(
            corpus=corpus.name,
            revision=str(corpus.index.get("revision") or ""),
            root=corpus.root.absolute(),
            # relative, so that both folders can move together
            sqlite_root=Path(os.path.relpath(corpus.root.absolute(), out.absolute())).as_posix(),
            edges=edges,
            mask=mask,
            settings=settings,
        )
        for questions in _runs(_count_questions(corpus, settings.limit)):
            part = Part(number=len(parts), source=source, questions=questions, folder=folder)
            parts.append(part)
    if not parts:
        names = ", ".join(corpus.name for corpus in corpora)
        raise CorpusFolderError(f"no questions in {names}: nothing to put into a manifest")
    return parts


def _count_questions(corpus: CorpusFolder, limit: int | None) -> dict[str, int]:
    """db_id -> questions, of the corpus's first `limit`, in the order of row ids."""
    file = corpus.root / "questions.parquet"
    db_ids = open_parquet(file).read(columns=["db_id"]).column(0)
    if db_ids.null_count:
        raise CorpusFolderError(f"{file} is damaged or not ours: a db_id is null")
    counts = {one["values"]: one["counts"] for one in db_ids[:limit].value_counts().to_pylist()}
    return {db_id: counts[db_id] for db_id in sorted(counts, key=_order)}


def _runs(counts: dict[str, int]) -> Iterator[dict[str, int]]:
    size = max(PART_QUESTIONS, sum(counts.values()) // MAX_PARTS)
    run: dict[str, int] = {}
    held = 0
    for db_id, questions in counts.items():
        run[db_id] = questions
        held += questions
        if held >= size:
            yield run
            run, held = {}, 0
    if run:
        yield run


def _order(name: str) -> str:
    """Sorts names as row ids sort: `a/…` after `a!/…`."""
    return escape_part(name) + "/"


class _Code(msgspec.Struct, frozen=True, kw_only=True):
    """What a row takes from findings.parquet."""

    question_id: str
    code: str


class _Leak(msgspec.Struct, frozen=True, kw_only=True):
    """What a row takes from leaks.parquet."""

    kind: str
    question_id: str
    """Empty: every question about the database."""


R = TypeVar("R", bound=msgspec.Struct)


def read_parts(parts: Iterable[Part]) -> Iterator[PartInput]:
    """Each part with its databases' questions and what is known of them, read as it is due."""
    for root, group in groupby(parts, key=lambda part: part.source.root):
        own = list(group)
        rows = {row.db_id: row for row in CorpusFolder(root).databases()}
        db_ids = [db_id for part in own for db_id in part.questions]
        asked = _grouped(root / "questions.parquet", AskedQuestion, db_ids)
        signals = _grouped(root / "signal.parquet", QuestionSignal, db_ids)
        codes = _grouped(root / "findings.parquet", _Code, db_ids)
        leaks = _grouped(root / LEAKS_FILE, _Leak, db_ids)
        for part in own:
            yield PartInput(
                part,
                [
                    AskedDatabase(
                        db_id=db_id,
                        row=rows.get(db_id),
                        questions=(questions := tuple(next(asked)[:count])),
                        signals={one.question_id: one for one in reversed(next(signals))},
                        findings=_codes_by_question(questions, next(codes), next(leaks)),
                    )
                    for db_id, count in part.questions.items()
                ],
            )


def _grouped(path: Path, record: type[R], db_ids: list[str]) -> Iterator[list[R]]:
    """Each database's rows of a file of the corpus; nothing of a file that is not there."""
    if path.is_file():
        return (rows for _, rows in iter_grouped(path, record, by="db_id", keys=db_ids))
    return ([] for _ in db_ids)


def _codes_by_question(
    questions: Iterable[AskedQuestion], found: list[_Code], leaks: list[_Leak]
) -> dict[str, tuple[str, ...]]:
    """Question id -> the codes of preflight's findings and of leaks, sorted."""
    codes: dict[str, set[str]] = {}
    for finding in found:
        if finding.question_id:
            codes.setdefault(finding.question_id, set()).add(finding.code)
    ids = {question.question_id for question in questions} if leaks else ()
    for leak in leaks:
        if code := leak_code(leak.kind):
            for question_id in (leak.question_id,) if leak.question_id else ids:
                codes.setdefault(question_id, set()).add(code)
    return {question_id: tuple(sorted(own)) for question_id, own in codes.items()}


# One part, made by a worker.


def make_part(given: PartInput) -> None:
    """Writes the part's rows, golds and rejects, last the counts that mark it as done."""
    part, databases = given
    rows: list[ManifestRow] = []
    rejects: list[Reject] = []
    golds = 0
    variants: Counter[str] = Counter()
    with (
        _open_writer(part.file("golds"), GOLD_SCHEMA) as gold_writer,
        _open_writer(part.file("variants"), VARIANT_SCHEMA) as variant_writer,
    ):
        for asked in databases:
            with RowBuilder(part.source, asked) as builder:
                outcomes = [outcome for _, outcome in builder.outcomes()]
                used, batch = builder.used_golds(), builder.make_variants()
            judged_by = {gold.gold_id: batch.ids_of(gold.gold_id) for gold in used}
            for outcome in outcomes:
                if isinstance(outcome, Reject):
                    rejects.append(outcome)
                else:
                    ids = judged_by[outcome.gold_id]
                    rows.append(msgspec.structs.replace(outcome, variants=ids))
            golds += len(used)
            variants.update(skipped.reason for skipped in batch.skipped)
            variants["made"] += len(batch.variants)
            if used:
                every = sorted((*used, *batch.golds), key=lambda gold: (gold.gold_id, gold.variant))
                gold_writer.write_batch(columns_of(every, GOLD_SCHEMA))
            if batch.variants:
                variant_writer.write_batch(columns_of(batch.variants, VARIANT_SCHEMA))
    rows.sort(key=lambda row: row.row_id)
    with _open_writer(part.file("rows"), ROW_SCHEMA) as writer:
        writer.write_batch(columns_of(rows, ROW_SCHEMA))
    with _open_writer(part.file("rejects"), REJECT_SCHEMA) as writer:
        writer.write_batch(columns_of(rejects, REJECT_SCHEMA))
    counts = ManifestCounts(
        offered=len(rows) + len(rejects),
        rows=len(rows),
        golds=golds,
        rejects=Counter(reject.reason for reject in rejects),
        buckets=Counter(row.bucket for row in rows),
        sizes=Counter(len(row.tables) for row in rows),
        variants=+variants,
    )
    write_bytes(part.file("done"), msgspec.json.encode(counts))


@contextmanager
def _open_writer(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """A writer of record batches; the file is there, whole, once the block ends well."""
    with (
        atomic_path(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        yield writer


# The parts joined.


GROUP_OF_ROWS = 32 * 1024
"""A row names up to 128 tables: twice as many rows a group would take twice the memory."""
GOLD_GROUP_ROWS = 4096
VARIANT_GROUP_ROWS = 32
GROUP_BYTES = 16 * 1024 * 1024
"""Gold results in a row group, so that reading one of them reads little besides."""


def join_parts(out: Path, parts: list[Part]) -> None:
    """Writes manifest.parquet, gold.parquet and rejects.parquet from the parts' own files."""

    def join(file: str, ending: str, schema: pa.Schema, *, rows: int, weight: str = "") -> None:
        batches = (batch for part in parts for batch in _iter_batches(part.file(ending)))
        write_batches(out / file, regroup(batches, rows=rows, weight=weight), schema)

    join(ROWS_FILE, "rows", ROW_SCHEMA, rows=GROUP_OF_ROWS)
    join(GOLD_FILE, "golds", GOLD_SCHEMA, rows=GOLD_GROUP_ROWS, weight="result")
    join(REJECTS_FILE, "rejects", REJECT_SCHEMA, rows=GROUP_OF_ROWS)
    if parts[0].source.settings.variants:
        join(VARIANTS_FILE, "variants", VARIANT_SCHEMA, rows=VARIANT_GROUP_ROWS, weight="rows")
    else:  # an earlier manifest's, left by a kill
        (out / VARIANTS_FILE).unlink(missing_ok=True)


def _iter_batches(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path)) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def regroup(
    batches: Iterable[pa.RecordBatch], *, rows: int, weight: str = ""
) -> Iterator[pa.Table]:
    """The same rows in tables of `rows`, the last of which may have fewer.

    A table ends sooner where its column `weight` has come to GROUP_BYTES.
    """
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        sizes = pc.binary_length(batch.column(weight)).to_pylist() if weight else None
        start = 0
        for place in range(batch.num_rows):
            held_rows += 1
            held_bytes += sizes[place] if sizes else 0
            if held_rows == rows or held_bytes >= GROUP_BYTES:
                yield pa.Table.from_batches([*held, batch.slice(start, place + 1 - start)])
                held, held_rows, held_bytes, start = [], 0, 0, place + 1
        held.append(batch.slice(start))
    if held_rows:
        yield pa.Table.from_batches(held)


def add_up(counts: Sequence[R]) -> R:
    """The parts' counts taken together: what counts by key is added by key, sorted; text is one."""
    total: dict[str, Any] = {}
    for name in counts[0].__struct_fields__:
        first, *others = (getattr(one, name) for one in counts)
        if isinstance(first, dict):
            added = sum(map(Counter, others), Counter(first))
            order = _bucket_order if name == "buckets" else None
            total[name] = {key: added[key] for key in sorted(added, key=order)}
        else:
            total[name] = first if isinstance(first, str) else sum(others, first)
    return type(counts[0])(**total)


def _bucket_order(name: str) -> tuple[int, str]:
    """Shortest first: short, medium, long; b0, b1, …, b10."""
    if name in NAMES_OF_TWO_EDGES:
        return (NAMES_OF_TWO_EDGES.index(name), "")
    return (int(name[1:]), name)
