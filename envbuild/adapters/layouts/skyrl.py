"""SkyRL: its own columns; all others reach the environment as `extras` (skyrl-gym 0.4)."""

from typing import Any

import pyarrow as pa

from envbuild.adapters.layouts.rows import PROMPT, Asked

ENV_CLASS = "envbuild"
"""The id under which the environment registers."""
SCHEMA = pa.schema(
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


def lay_out(asked: Asked) -> dict[str, Any]:
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
