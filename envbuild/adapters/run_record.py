"""What a training run says of itself: which data and rules, and whether groups were seen."""

from pathlib import Path

import msgspec

from envbuild.io.files import write_bytes
from envbuild.sql.connect import VERSIONS

FILE = "envbuild_run.json"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run: envbuild_run.json beside its checkpoints."""

    format: str = "envbuild.run/1"
    adapter: str
    recipe: str = ""
    manifest_sha256: str
    prompts_sha256: str
    reward_sha256: str
    """Digest of the reward's constants."""
    group_seen: bool
    """False: the trainer shows one episode at a time, so nobody got the consensus bonus."""
    note: str = ""
    """Why groups are seen, or not."""
    versions: dict[str, str] = msgspec.field(default_factory=VERSIONS.copy)
    """`envbuild` and `sqlite`: what ran the queries."""


def write_run_record(folder: Path, record: RunRecord) -> Path:
    """Writes the record into the run's folder and returns its path."""
    path = folder / FILE
    write_bytes(path, msgspec.json.format(msgspec.json.encode(record)))
    return path
