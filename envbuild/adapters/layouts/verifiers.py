"""verifiers: what the taskset reads, one task a row (verifiers 0.4, `verifiers.v1`)."""

from typing import Any

import pyarrow as pa

from envbuild.adapters.layouts.rows import PROMPT, Asked

SCHEMA = pa.schema(
    [
        ("idx", pa.int64()),
        ("name", pa.string()),
        ("prompt", PROMPT),
        ("schedule_step", pa.int64()),
        ("env_json", pa.string()),
    ]
)


def lay_out(asked: Asked) -> dict[str, Any]:
    """One task; it holds no answer."""
    return {
        "idx": asked.index,
        "name": asked.row.row_id,
        "prompt": asked.prompt,
        "schedule_step": asked.ticket.schedule_step,
        "env_json": asked.env_json,
    }
