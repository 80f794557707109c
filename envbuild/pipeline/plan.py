"""The stages of a pipeline as calls of the commands, and which of them are done already."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from envbuild import __version__
from envbuild.errors import UnknownNameError
from envbuild.io.files import sha256_file, write_bytes
from envbuild.pipeline.config import STAGES, Pipeline

PROGRESS_FILE = "run.json"


class PlannedStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage as the arguments of the command of its name."""

    name: str
    arguments: dict[str, Any]
    digest: str
    """SHA-256 over this stage's arguments (how it is spread over workers apart), the version, and
    every stage before it."""


class DoneStage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that ended, as run.json keeps it."""

    digest: str
    inputs: str
    """SHA-256 over the files it read, see `READ`."""
    outputs: str = ""
    """SHA-256 over the files it left, see `LEFT`: one that was changed since is made again."""
    exit_code: int
    versions: dict[str, str] = {}
    """`envbuild` and `sqlite` that ran it."""


READ: Mapping[str, tuple[str, ...]] = {
    "preflight": ("corpus/*/corpus.json",),
    "buckets": ("corpus/*/corpus.json",),
    "manifest": ("corpus/*/corpus.json", "corpus/*/*.parquet"),
    "pool": ("manifest/manifest.json",),
}
"""What each stage reads, below the work folder. materialize resumes by its sources' digests itself,
so it is always asked."""
LEFT: Mapping[str, tuple[str, ...]] = {
    "preflight": (
        "preflight.html",
        *(f"corpus/*/{name}" for name in ("preflight.json", "findings.parquet", "signal.parquet")),
    ),
    "buckets": ("corpus/*/buckets.parquet",),
    "manifest": ("manifest/manifest.*", "manifest/gold.parquet", "manifest/rejects.parquet"),
    "pool": ("manifest/schedule.parquet",),
}
"""What each stage leaves, below the work folder."""


def plan_stages(
    pipeline: Pipeline,
    *,
    out: Path,
    until: str = STAGES[-1],
    workers: int | None = None,
    engine: str = "local",
    quiet: bool = False,
) -> list[PlannedStage]:
    """The stages up to `until`, in running order, of a pipeline whose paths are resolved.

    Everything is written below `out`. `workers` goes before the file's own; `quiet` shows no
    progress bars. Raises UnknownNameError for an unknown stage.
    """
    if until not in STAGES:
        raise UnknownNameError("stage", until, STAGES)
    corpus, manifest, seed = out / "corpus", out / "manifest", {"seed": pipeline.seed}
    spread = {"workers": workers or pipeline.workers, "engine": engine, "quiet": quiet}
    html = out / "preflight.html" if pipeline.preflight.html else None
    sources = list(pipeline.source.paths)
    calls: dict[str, dict[str, Any]] = {
        "materialize": {"source": sources, "out": corpus, "settings": pipeline.source},
        "preflight": {"corpus": corpus, "settings": pipeline.preflight, "html": html, **seed},
        "buckets": {"corpus": corpus, "settings": pipeline.buckets},
        "manifest": {"corpus": corpus, "out": manifest, "settings": pipeline.manifest, **seed},
    }
    if (pool := pipeline.pool) is not None:
        test = [Path(path) for path in pool.test]
        calls["pool"] = {
            "manifest": manifest,
            "settings": pool,
            "test": test,
            "write": True,
            **seed,
        }
    planned: list[PlannedStage] = []
    before = __version__
    for name in STAGES[: STAGES.index(until) + 1]:
        if (arguments := calls.get(name)) is not None:
            encoded = msgspec.json.encode((before, name, arguments), enc_hook=str)
            before = hashlib.sha256(encoded).hexdigest()
            every = arguments | (spread if name in ("materialize", "preflight", "manifest") else {})
            planned.append(PlannedStage(name=name, arguments=every, digest=before))
    return planned


def read_progress(out: Path) -> dict[str, DoneStage]:
    """Stage -> how it ended in an earlier run; empty where there was none."""
    try:
        return msgspec.json.decode((out / PROGRESS_FILE).read_bytes(), type=dict[str, DoneStage])
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return {}


def keep_done(
    out: Path,
    progress: dict[str, DoneStage],
    stage: PlannedStage,
    code: int,
    versions: dict[str, str],
) -> None:
    """Keeps in run.json that a stage has ended with this exit code."""
    progress[stage.name] = DoneStage(
        digest=stage.digest,
        inputs=_digest(out, READ.get(stage.name, ())),
        outputs=_digest(out, LEFT.get(stage.name, ())),
        exit_code=code,
        versions=versions,
    )
    encoded = msgspec.json.encode(progress, order="sorted")
    write_bytes(out / PROGRESS_FILE, msgspec.json.format(encoded))


def state_of(stage: PlannedStage, progress: Mapping[str, DoneStage], out: Path) -> str:
    """`done` where an earlier run ended it with the same arguments over the same files.

    `check`: it ended, and is asked again all the same, since it looks by itself whether its sources
    have changed and builds nothing where they have not. Any other stage is `to do`.
    """
    done = progress.get(stage.name)
    if done is None or done.digest != stage.digest:
        return "to do"
    if stage.name not in READ:
        return "check"
    files = _digest(out, READ[stage.name]), _digest(out, LEFT[stage.name])
    return "done" if (done.inputs, done.outputs) == files else "to do"


def is_own_manifest(progress: Mapping[str, DoneStage], out: Path) -> bool:
    """True where the manifest there is as an earlier run left it, or unfinished: it may go."""
    done = progress.get("manifest")
    if done is None:
        return not (out / "manifest" / "manifest.json").exists()
    return done.outputs == _digest(out, LEFT["manifest"])


def _digest(out: Path, patterns: Sequence[str]) -> str:
    """SHA-256 over the names and bytes of the files."""
    digest = hashlib.sha256()
    for path in (path for pattern in patterns for path in sorted(out.glob(pattern))):
        digest.update(f"{path.relative_to(out)}\0{sha256_file(path)}\0".encode())
    return digest.hexdigest()
