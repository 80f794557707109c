"""What every layout is made of: one question of one step, and the column types they share."""

import msgspec
import pyarrow as pa

from envbuild.records.manifest import ManifestRow


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
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


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One exported row, before a trainer's layout."""

    index: int
    """0-based position in its file."""
    split: str
    """`train` or `test`."""
    row: ManifestRow
    messages: tuple[Message, ...]
    ticket: Ticket

    @property
    def env_json(self) -> str:
        """The ticket as JSON text."""
        return msgspec.json.encode(self.ticket).decode()

    @property
    def prompt(self) -> list[dict[str, str]]:
        """The messages as plain dictionaries."""
        return [{"role": m.role, "content": m.content} for m in self.messages]


PROMPT = pa.list_(pa.struct([pa.field("role", pa.string()), pa.field("content", pa.string())]))
