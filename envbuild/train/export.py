"""A manifest in a trainer's own layout: the schedule's order, prompts rendered, no answers shown.

OUT/train.parquet   in schedule order, to be read unshuffled (train.jsonl for NeMo Gym)
OUT/test.parquet    the manifest's test rows, each once
OUT/export.json     format, counts, digests; written last

A file without rows is not written. Rows that give a test row away are in neither. A layout is one
function of `LAYOUTS`: a question as the row that its trainer reads.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from envbuild.env.episode import prompt_messages
from envbuild.env.tools import tool_schemas
from envbuild.errors import ConfigurationError, CorpusFolderError, UnknownNameError
from envbuild.io.files import atomic_path, sha256_file, write_bytes, write_text, writing
from envbuild.io.parquet import open_parquet, write_batches
from envbuild.manifest.read import (
    GOLD_FILE,
    GOLD_SCHEMA,
    ROW_SCHEMA,
    ROWS_FILE,
    Manifest,
    select_rows,
)
from envbuild.records.episode import Task
from envbuild.records.manifest import ManifestRow
from envbuild.sql.connect import VERSIONS
from envbuild.train.pool import FILE as SCHEDULE_FILE
from envbuild.train.pool import TEST_SPLIT, read_schedule_file
from envbuild.train.trainer_env import NAME, EpisodeSpec, TrainerEnv

FORMAT = "envbuild.export/1"
INDEX_FILE = "export.json"


class ExportRow(NamedTuple):
    """One exported row, before a trainer's layout."""

    place: int
    """0-based position in its file."""
    split: str
    """`train` or `test`."""
    row: ManifestRow
    prompt: list[dict[str, str]]
    """The system and the user message."""
    spec: EpisodeSpec

    @property
    def schedule(self) -> dict[str, Any]:
        """The columns that every layout ends in."""
        return {
            "schedule_step": self.spec.schedule_step,
            "schedule_slot": self.spec.schedule_slot,
            "env_json": msgspec.json.encode(self.spec).decode(),
        }


def trl_row(asked: ExportRow) -> dict[str, Any]:
    """A row for GRPOTrainer with `shuffle_dataset=False`; all but `prompt` reaches `reset`."""
    return {
        "prompt": asked.prompt,
        "row_id": asked.row.row_id,
        "bucket": asked.row.bucket,
        **asked.schedule,
    }


def verl_row(asked: ExportRow) -> dict[str, Any]:
    """A row for RLHFDataset; the answer is in `reward_model` alone, where only rewards look."""
    return {
        "data_source": f"envbuild/{asked.row.corpus}",
        "prompt": asked.prompt,
        "ability": "text2sql",
        "reward_model": {"style": "rule", "ground_truth": asked.row.gold_sql},
        "extra_info": {
            "index": asked.place,
            "split": asked.split,
            "row_id": asked.row.row_id,
            "env_json": asked.schedule["env_json"],
        },
        "agent_name": NAME,
        **asked.schedule,
    }


def skyrl_row(asked: ExportRow) -> dict[str, Any]:
    """A row for PromptDataset; `db_id` and `data` are what SkyRL's own text2sql asks for."""
    return {
        "data_source": f"envbuild/{asked.row.corpus}",
        "prompt": asked.prompt,
        "env_class": NAME,
        "reward_spec": {"method": "rule", "ground_truth": asked.row.gold_sql},
        "extra_info": {"index": asked.place, "split": asked.split},
        "db_id": asked.row.db_id,
        "data": asked.row.corpus,
        **asked.schedule,
    }


def verifiers_row(asked: ExportRow) -> dict[str, Any]:
    """A task of the verifiers taskset."""
    columns = asked.schedule
    del columns["schedule_slot"]
    return {"idx": asked.place, "name": asked.row.row_id, "prompt": asked.prompt, **columns}


def nemo_row(asked: ExportRow) -> dict[str, Any]:
    """A line for NeMo Gym, whose agents call the tools natively: their schemas travel with it."""
    tools = [
        {"type": "function", "strict": False, **schema["function"]}
        for schema in tool_schemas(most_rows=100)
    ]
    return {
        "responses_create_params": {"input": asked.prompt, "tools": tools},
        # the agent of pipelines/trainers/nemo/envbuild.yaml
        "agent_ref": {"type": "responses_api_agents", "name": "envbuild_agent"},
        "row_id": asked.row.row_id,
        **asked.schedule,
    }


LAYOUTS: dict[str, Callable[[ExportRow], dict[str, Any]] | None] = {
    "trl": trl_row,
    "verl": verl_row,
    "skyrl": skyrl_row,
    "verifiers": verifiers_row,
    "nemo": nemo_row,
    "datasets": None,
}
"""Each layout by name; `datasets` is the manifest itself, its answers apart from its questions."""
JSON_LINES = ("nemo",)
CHUNK = 2048
"""Rows laid out at a time."""

_DECIDE = {
    "to": "--to",
    "manifest_sha256": "manifest",
    "schedule_sha256": "schedule",
    "where": "--where",
    "preset": "--preset",
    "schema": "--schema",
    "prompts_sha256": "--prompts",
    "versions": "version of envbuild or SQLite",
}
"""Fields of an export that decide what its files hold, as the operator knows them."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: export.json."""

    format: str = FORMAT
    to: str
    files: dict[str, int] = {}
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
    licences: dict[str, str] = {}
    """Corpus -> the licence of its data."""
    versions: dict[str, str]


def export_manifest(
    out: Path,
    *,
    to: str,
    env: TrainerEnv,
    preset: str = "default",
    schema: str = "withheld",
    schedule: Path | None = None,
    where: str = "",
    replace: bool = False,
) -> Exported:
    """Writes the manifest of `env` to `out` in the layout called `to`.

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
    layout, path = LAYOUTS[to], None
    if layout is not None:
        own = env.manifest.root / SCHEDULE_FILE
        path = schedule or (own if own.exists() else None)
    selected = set(select_rows(env.manifest, where))
    splits = {split: [i for i in ids if i in selected] for split, ids in env.splits.items()}
    reasons = Counter(env.untrainable.values())
    del reasons[TEST_SPLIT]
    reasons["not_selected"] = sum(map(len, env.splits.values())) - sum(map(len, splits.values()))
    exported = Exported(
        to=to,
        left_out=dict(sorted((+reasons).items())),
        where=where,
        manifest_sha256=env.manifest_sha256,
        scheduled=path is not None,
        schedule_sha256="" if path is None else sha256_file(path),
        preset=preset,
        schema=schema,
        prompts_sha256=env.prompts.sha256,
        licences=env.manifest.licences,
        versions=VERSIONS,
    )
    any_row = EpisodeSpec(
        row_id="", manifest_sha256=env.manifest_sha256, preset=preset, schema=schema
    )
    env.settings_of(any_row)  # an unknown preset or schema is said before anything is read
    specs = {s: [structs.replace(any_row, row_id=i) for i in ids] for s, ids in splits.items()}
    if path is not None:
        specs["train"] = _scheduled(path, any_row, env, selected, where)
    _make_room(out, exported, replace=replace)
    if layout is None:
        files = _write_hub(env.manifest, splits, out)
    else:
        names = dict(zip(("train", "test"), _names(to), strict=True))
        files = {
            names[split]: _write_rows(
                out / names[split], map(layout, _export_rows(env, own, split))
            )
            for split, own in specs.items()
            if own
        }
    exported = structs.replace(exported, files=files)
    write_bytes(out / INDEX_FILE, msgspec.json.format(msgspec.json.encode(exported)))
    return exported


def _make_room(out: Path, wanted: Exported, *, replace: bool) -> None:
    """Removes what is to be replaced, and no other file.

    Raises ConfigurationError where writing would overwrite anything but the same export.
    """
    try:
        earlier = msgspec.json.decode((out / INDEX_FILE).read_bytes(), type=Exported)
    except (OSError, msgspec.MsgspecError):
        earlier = None
    names = _names(wanted.to)
    if replace:
        with writing(out):
            # the index first: without it no export is complete
            for name in (INDEX_FILE, *names, *(_names(earlier.to) if earlier else ())):
                (out / name).unlink(missing_ok=True)
    elif earlier is None:
        if there := [name for name in names if (out / name).exists()]:
            raise ConfigurationError(
                f"{out} holds {', '.join(there)}, and no export that lists them: "
                "choose another --out, or write over them with --replace"
            )
    elif different := [m for f, m in _DECIDE.items() if getattr(earlier, f) != getattr(wanted, f)]:
        raise ConfigurationError(
            f"{out} holds an export made with another {', '.join(different)}: "
            "choose another --out, or write it anew with --replace"
        )


def _names(to: str) -> list[str]:
    """Every file that a layout may write beside the index."""
    if to == "datasets":
        parts = [f"{part}/{split}.parquet" for part in HUB_PARTS for split in ("train", "test")]
        return [*parts, HUB_README]
    suffix = "jsonl" if to in JSON_LINES else "parquet"
    return [f"train.{suffix}", f"test.{suffix}"]


def _scheduled(
    path: Path, any_row: EpisodeSpec, env: TrainerEnv, selected: set[str], where: str
) -> list[EpisodeSpec]:
    """The schedule's rows in its order; each may be trained on and is selected."""
    ordered = read_schedule_file(path)
    if ordered.manifest_sha256 != env.manifest_sha256:
        raise ConfigurationError(
            f"{path} was drawn from another manifest; run `envbuild pool --write` again"
        )
    specs = []
    for row in ordered.rows:
        if (reason := env.untrainable.get(row.row_id)) is not None:
            raise ConfigurationError(
                f"{path} draws {row.row_id}, which must not be trained on ({reason}); "
                "run `envbuild pool --write` again"
            )
        if row.row_id not in selected:
            raise ConfigurationError(
                f"the schedule draws {row.row_id}, which --where {where!r} does not select; run "
                "`envbuild pool --write` again with this --where"
            )
        spec = structs.replace(
            any_row,
            row_id=row.row_id,
            scheduled=True,
            schedule_step=row.schedule_step,
            schedule_slot=row.schedule_slot,
            gate_probability=row.gate_probability,
            gate_steps=ordered.schedule.gate_steps,
        )
        specs.append(spec)
    return specs


def _export_rows(env: TrainerEnv, specs: Sequence[EpisodeSpec], split: str) -> Iterator[ExportRow]:
    # one pass over the file, however large it is
    wanted = pl.col("row_id").is_in(sorted({spec.row_id for spec in specs}))
    frame = pl.scan_parquet(env.manifest.root / ROWS_FILE).filter(wanted).collect()
    rows = {row.row_id: row for row in msgspec.convert(frame.to_dicts(), list[ManifestRow])}
    asked = {spec.row_id: spec for spec in specs}
    prompts = {row_id: _prompt(env, spec, rows[row_id]) for row_id, spec in asked.items()}
    for place, spec in enumerate(specs):
        yield ExportRow(place, split, rows[spec.row_id], prompts[spec.row_id], spec)


def _prompt(env: TrainerEnv, spec: EpisodeSpec, row: ManifestRow) -> list[dict[str, str]]:
    """The messages that open a row's episode; its database is opened only to show its schema."""
    settings = env.settings_of(spec)
    if spec.schema == "full":
        with closing(env.environment.new_episode(row, settings=settings)) as episode:
            return episode.messages
    task = Task(question=row.question, evidence=row.evidence, row_id=row.row_id)
    return prompt_messages(task, None, settings=settings, prompts=env.prompts)


def _write_rows(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    """Writes rows of one form, at least one, and returns how many."""
    if path.suffix == ".jsonl":
        written = 0
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            for row in rows:
                stream.write(msgspec.json.encode(row) + b"\n")
                written += 1
        return written
    chunks = iter(lambda: list(islice(rows, CHUNK)), [])
    first = pa.RecordBatch.from_pylist(next(chunks))
    rest = (pa.RecordBatch.from_pylist(chunk, schema=first.schema) for chunk in chunks)
    return write_batches(path, chain([first], rest), first.schema)


# The manifest as a data set for a hub: questions in one configuration, answers in another, since
# what an agent may be shown and what decides its reward never lie in the same table.


ANSWER_COLUMNS = ("gold_sql", "literals", "gold_tables", "distractors", "gold_digest")
"""Columns of the manifest that say something about the answer."""
HUB_COLUMNS = {
    "questions": [name for name in ROW_SCHEMA.names if name not in ANSWER_COLUMNS],
    "answers": ["row_id", *ANSWER_COLUMNS],
}
HUB_PARTS = (*HUB_COLUMNS, "results")
HUB_README = "README.md"


def _write_hub(
    manifest: Manifest, splits: Mapping[str, Sequence[str]], out: Path
) -> dict[str, int]:
    """Questions and answers a split, and the gold results, as three configurations."""
    table = open_parquet(manifest.root / ROWS_FILE).read()
    if missing := [name for name in ROW_SCHEMA.names if name not in table.column_names]:
        raise CorpusFolderError(f"the manifest lacks the columns {', '.join(missing)}")
    counts, files = {split: len(ids) for split, ids in splits.items() if ids}, {}
    for split in counts:
        rows = table.filter(pc.field("row_id").isin(splits[split]))
        for part, columns in HUB_COLUMNS.items():
            name = f"{part}/{split}.parquet"
            schema = pa.schema([ROW_SCHEMA.field(column) for column in columns])
            files[name] = write_batches(out / name, [rows.select(columns)], schema)
    golds = open_parquet(manifest.root / GOLD_FILE).iter_batches()
    name = "results/train.parquet"
    files[name] = write_batches(out / name, golds, GOLD_SCHEMA)
    # a README that tells `datasets` which file is which configuration and split
    lines = ["---", "configs:"]
    for part in HUB_PARTS:
        lines += [f"- config_name: {part}", f"  default: {str(part == 'questions').lower()}"]
        lines.append("  data_files:")
        for split in ("train",) if part == "results" else counts:
            lines += [f"  - split: {split}", f"    path: {part}/{split}.parquet"]
    lines += ["---", "", "# Question pool", ""]
    lines += [f"- {split}: {count:,} questions" for split, count in counts.items()]
    joined = "`answers` joins `questions` by `row_id`; `results` holds gold results by `gold_id`."
    lines += ["", joined, ""]
    lines += [f"Data of {name}: licence {said}." for name, said in manifest.licences.items()]
    write_text(out / HUB_README, "\n".join([*lines, ""]))
    return files
