"""NeMo Gym: JSON lines of Responses-API parameters beside our own fields (nemo-gym 0.4)."""

from typing import Any

from envbuild.adapters.layouts.rows import Asked


def lay_out(asked: Asked) -> dict[str, Any]:
    """One line; the tools are in the prompt, so the Responses API is offered none."""
    return {
        "responses_create_params": {"input": asked.prompt, "tools": []},
        "row_id": asked.row.row_id,
        "schedule_step": asked.ticket.schedule_step,
        "schedule_slot": asked.ticket.schedule_slot,
        "env_json": asked.env_json,
    }
