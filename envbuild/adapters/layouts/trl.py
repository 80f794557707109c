"""TRL: a conversational prompt; every column but it reaches the environment's `reset`."""

from typing import Any

import pyarrow as pa

from envbuild.adapters.layouts.rows import PROMPT, Asked

SCHEMA = pa.schema(
    [
        ("prompt", PROMPT),
        ("row_id", pa.string()),
        ("bucket", pa.string()),
        ("schedule_step", pa.int64()),
        ("schedule_slot", pa.int64()),
        ("env_json", pa.string()),
    ]
)


def lay_out(asked: Asked) -> dict[str, Any]:
    """One row for GRPOTrainer with `shuffle_dataset=False`; it holds no answer."""
    return {
        "prompt": asked.prompt,
        "row_id": asked.row.row_id,
        "bucket": asked.row.bucket,
        "schedule_step": asked.ticket.schedule_step,
        "schedule_slot": asked.ticket.schedule_slot,
        "env_json": asked.env_json,
    }
