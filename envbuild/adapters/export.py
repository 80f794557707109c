"""A manifest in a trainer's own layout: the schedule's order, prompts rendered, no answers shown.

OUT/train.parquet   in schedule order, to be read unshuffled (train.jsonl for NeMo Gym)
OUT/test.parquet    the manifest's test rows, each once
OUT/export.json     format, counts, digests; written last
"""

import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import polars as pl
import pyarrow as pa
from msgspec.structs import replace

from envbuild.adapters.layouts import hub
from envbuild.adapters.layouts.rows import Asked, Message, Ticket
from envbuild.adapters.rollouts import Rollouts
from envbuild.curriculum.order import FILE as SCHEDULE_FILE
from envbuild.curriculum.order import OrderedSchedule, read_schedule_file
from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.io.files import atomic_path, write_bytes, write_text
from envbuild.io.parquet import open_parquet, write_batches
from envbuild.manifest.layout import GOLD_FILE, ROWS_FILE
from envbuild.manifest.read import Manifest
from envbuild.records.corpus import EVALUATION_SPLITS
from envbuild.records.manifest import ManifestRow
from envbuild.sql.connect import VERSIONS

FORMAT = "envbuild.export/1"
INDEX_FILE = "export.json"
LAYOUTS = {
    "trl": "envbuild.adapters.layouts.trl",
    "verl": "envbuild.adapters.layouts.verl",
    "skyrl": "envbuild.adapters.layouts.skyrl",
    "verifiers": "envbuild.adapters.layouts.verifiers",
    "nemo": "envbuild.adapters.layouts.nemo",
    "datasets": "",
}
"""Where each layout is; `datasets` is the manifest itself."""
CHUNK = 2048
"""Rows laid out at a time."""

SCHEMAS = ("withheld", "full")


class Layout(Protocol):
    """What a layout module offers; one without SCHEMA is written as JSON lines."""

    SCHEMA: pa.Schema

    def lay_out(self, asked: Asked) -> dict[str, Any]: ...


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: export.json."""

    format: str = FORMAT
    to: str
    files: dict[str, int]
    """Rows a file."""
    manifest_sha256: str
    scheduled: bool
    """The training rows are those of a schedule, in its order."""
    preset: str
    schema: str
    prompts_sha256: str
    versions: dict[str, str]


def export_manifest(
    out: Path,
    *,
    to: str,
    rollouts: Rollouts,
    preset: str = "default",
    schema: str = "withheld",
    schedule: Path | None = None,
) -> Exported:
    """Writes the manifest of `rollouts` to `out` in the layout called `to`.

    `preset` and `schema` are the episodes': they decide the prompt and travel with every row.
    Training rows follow `schedule` (default: the manifest's own schedule.parquet, where there is
    one). An export of the same layout is replaced. Raises UnknownNameError for another layout,
    ConfigurationError where `out` holds an export in another layout, or where the schedule was
    drawn from another manifest.
    """
    if to not in LAYOUTS:
        raise UnknownNameError("export layout", to, LAYOUTS)
    if schema not in SCHEMAS:
        raise UnknownNameError("schema mode", schema, SCHEMAS)
    manifest, digest = rollouts.manifest, rollouts.manifest_sha256
    ordered = _read_schedule(manifest, schedule, digest)
    earlier = read_export(out)
    if earlier is not None and earlier.to != to:
        raise ConfigurationError(
            f"{out} holds an export in the layout {earlier.to}, not {to}: choose another --out"
        )
    if to == "datasets":
        files = _write_hub(manifest, out)
    else:
        layout = cast(Layout, importlib.import_module(LAYOUTS[to]))
        blank = Ticket(row_id="", manifest_sha256=digest, preset=preset, schema=schema)
        tickets = _tickets(manifest, ordered, blank)
        files = {}
        for split, rows in tickets.items():
            if rows or split == "train":
                asked = _asked(rollouts, rows, split)
                path = out / (f"{split}.parquet" if hasattr(layout, "SCHEMA") else f"{split}.jsonl")
                files[path.name] = _write(path, layout, asked)
    exported = Exported(
        to=to,
        files=files,
        manifest_sha256=digest,
        scheduled=ordered is not None and to != "datasets",
        preset=preset,
        schema=schema,
        prompts_sha256=rollouts.prompts_sha256,
        versions=VERSIONS,
    )
    write_bytes(out / INDEX_FILE, msgspec.json.format(msgspec.json.encode(exported)))
    for name in earlier.files if earlier is not None else ():
        if name not in files:  # no split of this export, and its index no longer lists it
            (out / name).unlink(missing_ok=True)
    return exported


def read_export(out: Path) -> Exported | None:
    """The export that `out` holds; None where it holds none of ours."""
    try:
        return msgspec.json.decode((out / INDEX_FILE).read_bytes(), type=Exported)
    except (OSError, msgspec.MsgspecError):
        return None


def _read_schedule(manifest: Manifest, named: Path | None, digest: str) -> OrderedSchedule | None:
    path = named or manifest.root / SCHEDULE_FILE
    if named is None and not path.exists():
        return None
    ordered = read_schedule_file(path)
    if ordered.manifest_sha256 != digest:
        raise ConfigurationError(
            f"{path} was drawn from another manifest; run `envbuild pool --write` again"
        )
    return ordered


def _tickets(
    manifest: Manifest, ordered: OrderedSchedule | None, blank: Ticket
) -> dict[str, list[Ticket]]:
    columns = manifest.columns("row_id", "split")
    splits = dict(zip(columns.column(0).to_pylist(), columns.column(1).to_pylist(), strict=True))
    test = [row_id for row_id, split in splits.items() if split.lower() in EVALUATION_SPLITS]
    train = [row_id for row_id, split in splits.items() if split.lower() not in EVALUATION_SPLITS]
    if not train:  # as in the pool: a manifest of test rows alone is meant to be used
        train, test = test, []
    if ordered is not None:
        used = [
            replace(
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
        used = [replace(blank, row_id=row_id) for row_id in train]
    held_out = [replace(blank, row_id=row_id) for row_id in test]
    return {"train": used, "test": held_out}


def _asked(rollouts: Rollouts, tickets: Sequence[Ticket], split: str) -> Iterator[Asked]:
    rows = _rows_by_id(rollouts.manifest, {ticket.row_id for ticket in tickets})
    messages: dict[str, tuple[Message, ...]] = {}
    for index, ticket in enumerate(tickets):
        if ticket.row_id not in messages:
            messages[ticket.row_id] = rollouts.messages(
                rows[ticket.row_id], preset=ticket.preset, schema=ticket.schema
            )
        yield Asked(
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


def _write(path: Path, layout: Layout, asked: Iterable[Asked]) -> int:
    if not hasattr(layout, "SCHEMA"):
        count = 0
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            for one in asked:
                stream.write(msgspec.json.encode(layout.lay_out(one)) + b"\n")
                count += 1
        return count
    return write_batches(path, _batches(layout, asked), layout.SCHEMA)


def _batches(layout: Layout, asked: Iterable[Asked]) -> Iterator[pa.RecordBatch]:
    chunk: list[dict[str, Any]] = []
    for one in asked:
        chunk.append(layout.lay_out(one))
        if len(chunk) == CHUNK:
            yield pa.RecordBatch.from_pylist(chunk, schema=layout.SCHEMA)
            chunk = []
    if chunk:
        yield pa.RecordBatch.from_pylist(chunk, schema=layout.SCHEMA)


def _write_hub(manifest: Manifest, out: Path) -> dict[str, int]:
    """Questions and answers a split, and the gold results, as three configurations."""
    columns = manifest.columns("split")
    is_test = [split.lower() in EVALUATION_SPLITS for split in columns.column(0).to_pylist()]
    halves = {"train": [not t for t in is_test], "test": is_test}
    if all(is_test):
        halves = {"train": is_test, "test": []}
    table = open_parquet(manifest.root / ROWS_FILE).read()
    files, counts = {}, {}
    for split, keep in halves.items():
        if not any(keep) and (split == "test" or table.num_rows):
            continue
        questions, answers = hub.split_columns(table.filter(pa.array(keep, pa.bool_())))
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
    write_text(out / "README.md", "\n".join(hub.front_matter(counts)) + "\n")
    return files
