"""verl: the RLHF columns, and the agent loop's name (verl 0.9)."""

from typing import Any

import pyarrow as pa

from envbuild.adapters.layouts.rows import PROMPT, Asked

VERL_AGENT = "envbuild"
"""The name under which the agent loop registers."""
SCHEMA = pa.schema(
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


def lay_out(asked: Asked) -> dict[str, Any]:
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
