"""A manifest in a trainer's own layout: the schedule's order, prompts rendered, no answers shown.

OUT/train.parquet   in schedule order, to be read unshuffled (train.jsonl for NeMo Gym)
OUT/test.parquet    the manifest's test rows, each once
OUT/export.json     format, counts, digests; written last

A file without rows is not written. Rows that give a test row away are in neither.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.io.files import atomic_path, sha256_file, write_bytes, write_text, writing
from envbuild.io.parquet import open_parquet, write_batches
from envbuild.manifest.read import GOLD_FILE, ROWS_FILE, Manifest, select_rows
from envbuild.records.manifest import ManifestRow
from envbuild.sql.connect import VERSIONS
from envbuild.train import layouts as hub
from envbuild.train.layouts import (
    SKYRL_SCHEMA,
    TRL_SCHEMA,
    VERIFIERS_SCHEMA,
    VERL_SCHEMA,
    EpisodeSpec,
    ExportRow,
    Message,
    nemo_row,
    skyrl_row,
    trl_row,
    verifiers_row,
    verl_row,
)
from envbuild.train.pool import FILE as SCHEDULE_FILE
from envbuild.train.pool import TEST_SPLIT, OrderedSchedule, read_schedule_file
from envbuild.train.trainer_env import TrainerEnv

FORMAT = "envbuild.export/1"
INDEX_FILE = "export.json"


class Layout(NamedTuple):
    """One question as a trainer's row, and the columns; without columns JSON lines are written."""

    row: Callable[[ExportRow], dict[str, Any]]
    schema: pa.Schema | None


LAYOUTS: dict[str, Layout | None] = {
    "trl": Layout(row=trl_row, schema=TRL_SCHEMA),
    "verl": Layout(row=verl_row, schema=VERL_SCHEMA),
    "skyrl": Layout(row=skyrl_row, schema=SKYRL_SCHEMA),
    "verifiers": Layout(row=verifiers_row, schema=VERIFIERS_SCHEMA),
    "nemo": Layout(row=nemo_row, schema=None),
    "datasets": None,
}
"""Each layout by name; `datasets` is the manifest itself."""
CHUNK = 2048
"""Rows laid out at a time."""

SCHEMAS = ("withheld", "full")
_SETTINGS = {
    "to": "layout (--to)",
    "manifest_sha256": "manifest",
    "schedule_sha256": "schedule",
    "where": "--where",
    "preset": "--preset",
    "schema": "--schema",
    "prompts_sha256": "wording (--prompts)",
    "versions": "version of envbuild or SQLite",
}
"""Fields of an export that decide what its files hold, as the operator knows them."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: export.json."""

    format: str = FORMAT
    to: str
    files: dict[str, int]
    """Rows a file."""
    left_out: dict[str, int] = {}
    """Rows that are neither trainable nor of a test split, by reason."""
    where: str = ""
    """Expression that every row satisfies; all do where it is empty."""
    manifest_sha256: str
    scheduled: bool
    """The training rows are those of a schedule, in its order."""
    schedule_sha256: str = ""
    """Of the schedule's file."""
    preset: str
    schema: str
    prompts_sha256: str
    versions: dict[str, str]


def export_manifest(
    out: Path,
    *,
    to: str,
    rollouts: TrainerEnv,
    preset: str = "default",
    schema: str = "withheld",
    schedule: Path | None = None,
    where: str = "",
    replace: bool = False,
) -> Exported:
    """Writes the manifest of `rollouts` to `out` in the layout called `to`.

    `preset` and `schema` are the episodes': they decide the prompt and travel with every row.
    Rows are those that `where` selects, see `select_rows`. Training rows follow `schedule`
    (default: the manifest's own schedule.parquet, where there is one); they are rows that may be
    trained on (`untrainable_rows`). Raises UnknownNameError for another layout; ConfigurationError
    where the schedule is of another manifest or draws a row that must not be trained on or is not
    selected, and where `out` holds an export of other settings or inputs, or files of its names,
    unless `replace` says that these then go.
    """
    if to not in LAYOUTS:
        raise UnknownNameError("export layout", to, LAYOUTS)
    if schema not in SCHEMAS:
        raise UnknownNameError("schema mode", schema, SCHEMAS)
    manifest, digest = rollouts.manifest, rollouts.manifest_sha256
    path = None if to == "datasets" else _schedule_path(manifest, schedule)
    ordered = None if path is None else _read_schedule(path, rollouts)
    reasons = Counter(rollouts.untrainable.values())
    del reasons[TEST_SPLIT]
    splits = rollouts.splits
    if where:
        selected = set(select_rows(manifest, where))
        splits = {split: [i for i in ids if i in selected] for split, ids in splits.items()}
        reasons["not_selected"] = sum(map(len, rollouts.splits.values())) - sum(
            map(len, splits.values())
        )
        if ordered is not None:
            _check_selected(ordered, selected, where)
    exported = Exported(
        to=to,
        files={},
        left_out=dict(sorted((+reasons).items())),
        where=where,
        manifest_sha256=digest,
        scheduled=ordered is not None,
        schedule_sha256="" if path is None else sha256_file(path),
        preset=preset,
        schema=schema,
        prompts_sha256=rollouts.prompts_sha256,
        versions=VERSIONS,
    )
    if replace:
        _remove_export(out, to)
    else:
        _check_out(out, exported)
    if to == "datasets":
        files = _write_hub(manifest, splits, out)
    else:
        layout = cast(Layout, LAYOUTS[to])
        blank = EpisodeSpec(row_id="", manifest_sha256=digest, preset=preset, schema=schema)
        files = {}
        for split, rows in _tickets(splits, ordered, blank).items():
            if rows:
                name = f"{split}.{_suffix(to)}"
                files[name] = _write(out / name, layout, _asked(rollouts, rows, split))
    exported = structs.replace(exported, files=files)
    write_bytes(out / INDEX_FILE, msgspec.json.format(msgspec.json.encode(exported)))
    return exported


def read_export(out: Path) -> Exported | None:
    """The export that `out` holds; None where it holds none of ours."""
    try:
        found = msgspec.json.decode((out / INDEX_FILE).read_bytes(), type=Exported)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.to in LAYOUTS else None


def _check_out(out: Path, wanted: Exported) -> None:
    """Raises ConfigurationError where writing would overwrite anything but the same export."""
    earlier = read_export(out)
    if earlier is None:
        there = [name for name in _names(wanted.to) if (out / name).exists()]
        if there:
            raise ConfigurationError(
                f"{out} holds {', '.join(there)}, and no export that lists them: "
                "choose another --out, or write over them with --replace"
            )
        return
    different = [
        said
        for field, said in _SETTINGS.items()
        if getattr(earlier, field) != getattr(wanted, field)
    ]
    if different:
        raise ConfigurationError(
            f"{out} holds an export made with another {', '.join(different)}: "
            "choose another --out, or write it anew with --replace"
        )


def _remove_export(out: Path, to: str) -> None:
    """Removes the export in `out` and what the layout `to` would write over; all else stays."""
    earlier = read_export(out)
    names = {*_names(to), *(_names(earlier.to) if earlier is not None else ())}
    with writing(out):
        (out / INDEX_FILE).unlink(missing_ok=True)  # first: without it no export is complete
        for name in names:
            (out / name).unlink(missing_ok=True)


def _names(to: str) -> list[str]:
    """Every file that a layout may write beside the index."""
    splits = ("train", "test")
    if to == "datasets":
        parts = [f"{part}/{split}.parquet" for part in hub.CONFIGURATIONS for split in splits]
        return [*parts, hub.README]
    return [f"{split}.{_suffix(to)}" for split in splits]


def _suffix(to: str) -> str:
    return "parquet" if cast(Layout, LAYOUTS[to]).schema is not None else "jsonl"


def _schedule_path(manifest: Manifest, named: Path | None) -> Path | None:
    own = manifest.root / SCHEDULE_FILE
    return named or (own if own.exists() else None)


def _read_schedule(path: Path, rollouts: TrainerEnv) -> OrderedSchedule:
    ordered = read_schedule_file(path)
    if ordered.manifest_sha256 != rollouts.manifest_sha256:
        raise ConfigurationError(
            f"{path} was drawn from another manifest; run `envbuild pool --write` again"
        )
    for row in ordered.rows:
        if (reason := rollouts.untrainable.get(row.row_id)) is not None:
            raise ConfigurationError(
                f"{path} draws {row.row_id}, which must not be trained on ({reason}); "
                "run `envbuild pool --write` again"
            )
    return ordered


def _check_selected(ordered: OrderedSchedule, selected: set[str], where: str) -> None:
    for row in ordered.rows:
        if row.row_id not in selected:
            raise ConfigurationError(
                f"the schedule draws {row.row_id}, which --where {where!r} does not select; run "
                "`envbuild pool --write` again with this --where"
            )


def _tickets(
    splits: Mapping[str, Sequence[str]], ordered: OrderedSchedule | None, blank: EpisodeSpec
) -> dict[str, list[EpisodeSpec]]:
    if ordered is not None:
        used = [
            structs.replace(
                blank,
                row_id=row.row_id,
                scheduled=True,
                schedule_step=row.schedule_step,
                schedule_slot=row.schedule_slot,
                gate_probability=row.gate_probability,
                gate_steps=ordered.schedule.gate_steps,
            )
            for row in ordered.rows
        ]
    else:
        used = [structs.replace(blank, row_id=row_id) for row_id in splits["train"]]
    held_out = [structs.replace(blank, row_id=row_id) for row_id in splits["test"]]
    return {"train": used, "test": held_out}


def _asked(rollouts: TrainerEnv, tickets: Sequence[EpisodeSpec], split: str) -> Iterator[ExportRow]:
    rows = _rows_by_id(rollouts.manifest, {ticket.row_id for ticket in tickets})
    messages: dict[str, tuple[Message, ...]] = {}
    for index, ticket in enumerate(tickets):
        if ticket.row_id not in messages:
            messages[ticket.row_id] = rollouts.messages(
                rows[ticket.row_id], preset=ticket.preset, schema=ticket.schema
            )
        yield ExportRow(
            index=index,
            split=split,
            row=rows[ticket.row_id],
            messages=messages[ticket.row_id],
            ticket=ticket,
        )


def _rows_by_id(manifest: Manifest, wanted: set[str]) -> dict[str, ManifestRow]:
    """Many rows at once: one pass over the file, however large it is."""
    frame = (
        pl.scan_parquet(manifest.root / ROWS_FILE)
        .filter(pl.col("row_id").is_in(sorted(wanted)))
        .collect()
    )
    rows = msgspec.convert(frame.to_dicts(), list[ManifestRow])
    return {row.row_id: row for row in rows}


def _write(path: Path, layout: Layout, asked: Iterable[ExportRow]) -> int:
    if layout.schema is None:
        count = 0
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            for one in asked:
                stream.write(msgspec.json.encode(layout.row(one)) + b"\n")
                count += 1
        return count
    return write_batches(path, _batches(layout, asked), layout.schema)


def _batches(layout: Layout, asked: Iterable[ExportRow]) -> Iterator[pa.RecordBatch]:
    chunk: list[dict[str, Any]] = []
    for one in asked:
        chunk.append(layout.row(one))
        if len(chunk) == CHUNK:
            yield pa.RecordBatch.from_pylist(chunk, schema=layout.schema)
            chunk = []
    if chunk:
        yield pa.RecordBatch.from_pylist(chunk, schema=layout.schema)


def _write_hub(
    manifest: Manifest, splits: Mapping[str, Sequence[str]], out: Path
) -> dict[str, int]:
    """Questions and answers a split, and the gold results, as three configurations."""
    table = open_parquet(manifest.root / ROWS_FILE).read()
    files, counts = {}, {}
    for split, ids in splits.items():
        if not ids:
            continue
        questions, answers = hub.split_columns(table.filter(pc.field("row_id").isin(ids)))
        counts[split] = questions.num_rows
        for name, part, schema in (
            ("questions", questions, hub.QUESTION_SCHEMA),
            ("answers", answers, hub.ANSWER_SCHEMA),
        ):
            files[f"{name}/{split}.parquet"] = write_batches(
                out / name / f"{split}.parquet", [part], schema
            )
    golds = open_parquet(manifest.root / GOLD_FILE)
    files["results/train.parquet"] = write_batches(
        out / "results" / "train.parquet", golds.iter_batches(), hub.RESULT_SCHEMA
    )
    write_text(out / hub.README, "\n".join(hub.front_matter(counts)) + "\n")
    return files
