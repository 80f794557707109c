"""NeMo Gym: JSON lines of Responses-API parameters beside our own fields (nemo-gym 0.4)."""

from typing import Any

from envbuild.adapters.layouts.rows import Asked
from envbuild.episode.tools import tool_schemas

NEMO_AGENT = "envbuild_agent"
"""The agent of pipelines/trainers/nemo/envbuild.yaml."""


def lay_out(asked: Asked) -> dict[str, Any]:
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
