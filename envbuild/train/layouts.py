"""The data layouts of trainers: one function each, no trainer imported."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from envbuild.env.tools import tool_schemas
from envbuild.errors import CorpusFolderError
from envbuild.manifest.read import GOLD_SCHEMA, ROW_SCHEMA
from envbuild.records.manifest import ManifestRow

# What every layout is made of: one question of one step, and the column types they share.


class EpisodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter needs to start an episode: the JSON text of every layout's `env_json`.

    It points at the manifest and never holds an answer.
    """

    row_id: str
    manifest_sha256: str
    """Of manifest.parquet: an adapter refuses another manifest."""
    scheduled: bool = False
    """It stands in a schedule; False leaves the submit gate open."""
    schedule_step: int = 0
    schedule_slot: int = 0
    gate_probability: float = 0.0
    """The submit gate's at that step."""
    gate_steps: int = 80
    """Steps over which the schedule closes the gate's probability to 0."""
    preset: str = "default"
    """Preset of the episode's rules."""
    schema: str = "withheld"
    """`withheld`, or `full`: the DDL is in the prompt."""

    @property
    def step(self) -> int | None:
        """The training step it belongs to; None outside a schedule."""
        return self.schedule_step if self.scheduled else None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the prompt."""

    role: str
    content: str


class ExportRow(msgspec.Struct, frozen=True, kw_only=True):
    """One exported row, before a trainer's layout."""

    index: int
    """0-based position in its file."""
    split: str
    """`train` or `test`."""
    row: ManifestRow
    messages: tuple[Message, ...]
    ticket: EpisodeSpec

    @property
    def env_json(self) -> str:
        """The ticket as JSON text."""
        return msgspec.json.encode(self.ticket).decode()

    @property
    def prompt(self) -> list[dict[str, str]]:
        """The messages as plain dictionaries."""
        return [{"role": m.role, "content": m.content} for m in self.messages]


PROMPT = pa.list_(pa.struct([pa.field("role", pa.string()), pa.field("content", pa.string())]))


# The manifest as a data set for a hub: questions in one configuration, answers in another.
#
# What an agent may be shown and what decides its reward never lie in the same table.


ANSWER_COLUMNS = ("gold_sql", "literals", "gold_tables", "distractors", "gold_digest")
"""Columns of the manifest that say something about the answer."""
QUESTION_SCHEMA = pa.schema([field for field in ROW_SCHEMA if field.name not in ANSWER_COLUMNS])
ANSWER_SCHEMA = pa.schema(
    [ROW_SCHEMA.field("row_id"), *(ROW_SCHEMA.field(name) for name in ANSWER_COLUMNS)]
)
RESULT_SCHEMA = GOLD_SCHEMA
CONFIGURATIONS = ("questions", "answers", "results")
README = "README.md"


def split_columns(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """A manifest's rows as (questions, answers), joined by `row_id`."""
    missing = [name for name in ROW_SCHEMA.names if name not in table.column_names]
    if missing:
        raise CorpusFolderError(f"the manifest lacks the columns {', '.join(missing)}")
    return table.select(QUESTION_SCHEMA.names), table.select(ANSWER_SCHEMA.names)


def front_matter(counts: dict[str, int]) -> Iterator[str]:
    """Lines of a README that tell `datasets` which file is which configuration and split."""
    yield "---"
    yield "configs:"
    for config in CONFIGURATIONS:
        yield f"- config_name: {config}"
        if config == "questions":
            yield "  default: true"
        yield "  data_files:"
        for split in ("train",) if config == "results" else counts:
            yield f"  - split: {split}"
            yield f"    path: {config}/{split}.parquet"
    yield "---"
    yield ""
    yield "# Question pool"
    yield ""
    yield "| split | questions |"
    yield "|---|---|"
    for split, count in counts.items():
        yield f"| {split} | {count:,} |"
    yield ""
    yield "`answers` joins `questions` by `row_id`; `results` holds gold results by `gold_id`."


# NeMo Gym: JSON lines of Responses-API parameters beside our own fields (nemo-gym 0.4).


NEMO_AGENT = "envbuild_agent"
"""The agent of pipelines/trainers/nemo/envbuild.yaml."""


def nemo_row(asked: ExportRow) -> dict[str, Any]:
    """One line; NeMo's agents call the tools natively, so their schemas travel with it."""
    tools = [
        {"type": "function", "strict": False, **schema["function"]}
        for schema in tool_schemas(most_rows=100)
    ]
    return {
        "responses_create_params": {"input": asked.prompt, "tools": tools},
        "agent_ref": {"type": "responses_api_agents", "name": NEMO_AGENT},
        "row_id": asked.row.row_id,
        "schedule_step": asked.ticket.schedule_step,
        "schedule_slot": asked.ticket.schedule_slot,
        "env_json": asked.env_json,
    }


# SkyRL: its own columns; all others reach the environment as `extras` (skyrl-gym 0.4).


ENV_CLASS = "envbuild"
"""The id under which the environment registers."""
SKYRL_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", PROMPT),
        ("env_class", pa.string()),
        ("reward_spec", pa.struct([("method", pa.string()), ("ground_truth", pa.string())])),
        ("extra_info", pa.struct([("index", pa.int64()), ("split", pa.string())])),
        ("db_id", pa.string()),
        ("data", pa.string()),
        ("schedule_step", pa.int64()),
        ("schedule_slot", pa.int64()),
        ("env_json", pa.string()),
    ]
)


def skyrl_row(asked: ExportRow) -> dict[str, Any]:
    """One row for PromptDataset; `db_id` and `data` are what SkyRL's own text2sql asks for."""
    return {
        "data_source": f"envbuild/{asked.row.corpus}",
        "prompt": asked.prompt,
        "env_class": ENV_CLASS,
        "reward_spec": {"method": "rule", "ground_truth": asked.row.gold_sql},
        "extra_info": {"index": asked.index, "split": asked.split},
        "db_id": asked.row.db_id,
        "data": asked.row.corpus,
        "schedule_step": asked.ticket.schedule_step,
        "schedule_slot": asked.ticket.schedule_slot,
        "env_json": asked.env_json,
    }


# TRL: a conversational prompt; every column but it reaches the environment's `reset`.


TRL_SCHEMA = pa.schema(
    [
        ("prompt", PROMPT),
        ("row_id", pa.string()),
        ("bucket", pa.string()),
        ("schedule_step", pa.int64()),
        ("schedule_slot", pa.int64()),
        ("env_json", pa.string()),
    ]
)


def trl_row(asked: ExportRow) -> dict[str, Any]:
    """One row for GRPOTrainer with `shuffle_dataset=False`; it holds no answer."""
    return {
        "prompt": asked.prompt,
        "row_id": asked.row.row_id,
        "bucket": asked.row.bucket,
        "schedule_step": asked.ticket.schedule_step,
        "schedule_slot": asked.ticket.schedule_slot,
        "env_json": asked.env_json,
    }


# verifiers: what the taskset reads, one task a row (verifiers 0.4, `verifiers.v1`).


VERIFIERS_SCHEMA = pa.schema(
    [
        ("idx", pa.int64()),
        ("name", pa.string()),
        ("prompt", PROMPT),
        ("schedule_step", pa.int64()),
        ("env_json", pa.string()),
    ]
)


def verifiers_row(asked: ExportRow) -> dict[str, Any]:
    """One task; it holds no answer."""
    return {
        "idx": asked.index,
        "name": asked.row.row_id,
        "prompt": asked.prompt,
        "schedule_step": asked.ticket.schedule_step,
        "env_json": asked.env_json,
    }


# verl: the RLHF columns, and the agent loop's name (verl 0.9).


VERL_AGENT = "envbuild"
"""The name under which the agent loop registers."""
VERL_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", PROMPT),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [
                    ("index", pa.int64()),
                    ("split", pa.string()),
                    ("row_id", pa.string()),
                    ("env_json", pa.string()),
                ]
            ),
        ),
        ("agent_name", pa.string()),
        ("schedule_step", pa.int64()),
        ("schedule_slot", pa.int64()),
        ("env_json", pa.string()),
    ]
)


def verl_row(asked: ExportRow) -> dict[str, Any]:
    """One row for RLHFDataset; the answer is in `reward_model` alone, where only rewards look."""
    return {
        "data_source": f"envbuild/{asked.row.corpus}",
        "prompt": asked.prompt,
        "ability": "text2sql",
        "reward_model": {"style": "rule", "ground_truth": asked.row.gold_sql},
        "extra_info": {
            "index": asked.index,
            "split": asked.split,
            "row_id": asked.row.row_id,
            "env_json": asked.env_json,
        },
        "agent_name": VERL_AGENT,
        "schedule_step": asked.ticket.schedule_step,
        "schedule_slot": asked.ticket.schedule_slot,
        "env_json": asked.env_json,
    }
