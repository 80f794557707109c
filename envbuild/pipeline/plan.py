"""A pipeline as the commands a person would have typed, and which of them are done already.

Every stage is a command of the same name with the file's values as its options: `--dry-run` shows
them, and what they do is told nowhere else.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from envbuild import __version__
from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.io.files import sha256_file, write_bytes
from envbuild.pipeline.config import STAGES, Pipeline

DEMO = "demo:"
"""The source path that means: the corpora that ship with the package."""
PROGRESS_FILE = "run.json"


class PlannedStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage as a command."""

    name: str
    arguments: tuple[str, ...]
    """What follows `envbuild` on the command line."""
    digest: str
    """SHA-256 over this stage's arguments (how it is spread over workers apart), the version, and
    every stage before it."""


class DoneStage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that ended, as run.json keeps it."""

    digest: str
    inputs: str
    """SHA-256 over the files it read, see `INPUTS`."""
    outputs: str = ""
    """SHA-256 over the files it left, see `OUTPUTS`: one that was changed since is made again."""
    exit_code: int
    versions: dict[str, str] = {}
    """`envbuild` and `sqlite` that ran it."""


INPUTS: Mapping[str, tuple[str, ...]] = {
    "preflight": ("corpus/*/corpus.json",),
    "buckets": ("corpus/*/corpus.json",),
    "manifest": ("corpus/*/corpus.json", "corpus/*/*.parquet"),
    "pool": ("manifest/manifest.json",),
}
"""What each stage reads, below the work folder. materialize resumes by its sources' digests itself,
so it is always asked."""

OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "preflight": (
        "preflight.html",
        "corpus/*/preflight.json",
        "corpus/*/findings.parquet",
        "corpus/*/signal.parquet",
    ),
    "buckets": ("corpus/*/buckets.parquet",),
    "manifest": ("manifest/manifest.*", "manifest/gold.parquet", "manifest/rejects.parquet"),
    "pool": ("manifest/schedule.parquet",),
}
"""What each stage leaves, below the work folder."""


SPREAD = ("materialize", "preflight", "manifest")
"""Stages that run on several workers; how many changes nothing of what they leave."""


def plan_stages(
    pipeline: Pipeline,
    *,
    beside: Path,
    out: Path,
    until: str = STAGES[-1],
    workers: int | None = None,
    engine: str = "local",
    quiet: bool = False,
) -> list[PlannedStage]:
    """The stages up to `until`, in running order.

    Relative paths of the file count from `beside`, the folder it lies in; everything is written
    below `out`. `workers` goes before the file's own; `quiet` shows no progress bars.
    Raises UnknownNameError for an unknown stage.
    """
    if until not in STAGES:
        raise UnknownNameError("stage", until, STAGES)
    planned: list[PlannedStage] = []
    spread = _options(("--workers", workers or pipeline.workers))
    spread += _options(("--engine", engine if engine != "local" else None))
    spread += ["--quiet"] if quiet else []
    before = __version__
    for name, arguments in _commands(pipeline, beside, out):
        before = hashlib.sha256("\0".join((before, *arguments)).encode()).hexdigest()
        every = (*arguments, *(spread if name in SPREAD else ()))
        planned.append(PlannedStage(name=name, arguments=every, digest=before))
        if name == until:
            break
    return planned


def check_paths(pipeline: Pipeline, *, beside: Path) -> None:
    """Raises ConfigurationError for a path of the file that leads nowhere.

    A hub id is asked for only when its stage runs.
    """
    schedule = pipeline.pool.schedule if pipeline.pool else ""
    named = [("source.paths", path) for path in pipeline.source.paths if "@" not in path]
    named += [("preflight.thresholds", pipeline.preflight.thresholds)]
    named += [("pool.schedule", schedule)] if schedule.endswith(".toml") else []
    for key, path in named:
        if path not in ("", DEMO) and not (beside / path).exists():
            raise ConfigurationError(
                f"{key} names {path}, but there is no {beside / path}: paths count from the "
                "pipeline file's folder"
            )


def demo_sources(out: Path) -> Path:
    """Where a pipeline over `demo:` writes the corpora that ship with the package."""
    return out / "sources"


def read_progress(out: Path) -> dict[str, DoneStage]:
    """Stage -> how it ended in an earlier run; empty where there was none."""
    try:
        return msgspec.json.decode((out / PROGRESS_FILE).read_bytes(), type=dict[str, DoneStage])
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return {}


def is_done(stage: PlannedStage, progress: Mapping[str, DoneStage], out: Path) -> bool:
    """True where an earlier run ended this stage with the same arguments over the same inputs."""
    done = progress.get(stage.name)
    if done is None or done.digest != stage.digest or stage.name not in INPUTS:
        return False
    return done.inputs == inputs_digest(stage.name, out) and done.outputs == outputs_digest(
        stage.name, out
    )


def is_own_manifest(progress: Mapping[str, DoneStage], out: Path) -> bool:
    """True where the manifest there is as an earlier run left it, or unfinished: it may go."""
    done = progress.get("manifest")
    if done is None:
        return not (out / "manifest" / "manifest.json").exists()
    return done.outputs == outputs_digest("manifest", out)


def is_resumed(stage: PlannedStage, progress: Mapping[str, DoneStage]) -> bool:
    """True for a stage that an earlier run ended and that is asked again all the same.

    It looks by itself whether its sources have changed, and builds nothing where they have not.
    """
    done = progress.get(stage.name)
    return stage.name not in INPUTS and done is not None and done.digest == stage.digest


def inputs_digest(stage: str, out: Path) -> str:
    """SHA-256 over the names and bytes of the files that the stage reads."""
    return _digest(INPUTS.get(stage, ()), out)


def outputs_digest(stage: str, out: Path) -> str:
    """SHA-256 over the names and bytes of the files that the stage has left."""
    return _digest(OUTPUTS.get(stage, ()), out)


def write_progress(out: Path, progress: Mapping[str, DoneStage]) -> None:
    """Keeps which stages have ended."""
    encoded = msgspec.json.encode(dict(progress), order="sorted")
    write_bytes(out / PROGRESS_FILE, msgspec.json.format(encoded))


def _commands(pipeline: Pipeline, beside: Path, out: Path) -> Iterator[tuple[str, list[str]]]:
    corpus, manifest = str(out / "corpus"), str(out / "manifest")
    seed = ["--seed", str(pipeline.seed)]
    source = pipeline.source
    yield (
        "materialize",
        [
            "materialize",
            *_source_paths(source.paths, beside, out),
            *_options(("--out", corpus), ("--reader", source.reader), ("--name", source.name)),
            *_options(("--split", source.split), ("--limit", source.limit)),
            *_options(("--revision", source.revision)),
            *(["--link"] if source.link else []),
        ],
    )
    preflight = pipeline.preflight
    thresholds = str(beside / preflight.thresholds) if preflight.thresholds else ""
    html = str(out / "preflight.html") if preflight.html else ""
    yield (
        "preflight",
        [
            "preflight",
            corpus,
            *_options(("--signal", preflight.signal), ("--thresholds", thresholds)),
            *_options(("--html", html), ("--gold-seconds", preflight.gold_seconds)),
            *(["--strict"] if preflight.strict else []),
            *seed,
        ],
    )
    buckets = pipeline.buckets
    edges = ",".join(map(str, buckets.edges))
    shares = ",".join(map(str, buckets.shares))
    yield (
        "buckets",
        [
            "buckets",
            corpus,
            *_options(("--edges", edges), ("--mask", buckets.mask), ("--shares", shares)),
        ],
    )
    rows = pipeline.manifest
    yield (
        "manifest",
        [
            "manifest",
            corpus,
            *_options(("--out", manifest), ("--tables", rows.tables)),
            *_options(("--distractors", rows.distractors), ("--extra", rows.extra)),
            *(["--full"] if rows.full else []),
            *_options(("--styles", ",".join(rows.styles)), ("--variants", rows.variants or None)),
            *_options(("--leave-out", ",".join(rows.leave_out)), ("--limit", rows.limit)),
            *seed,
        ],
    )
    if (pool := pipeline.pool) is not None:
        yield (
            "pool",
            [
                "pool",
                manifest,
                *_options(("--schedule", _schedule(pool.schedule, beside)), ("--size", pool.size)),
                *_options(("--styles", ",".join(pool.styles)), ("--min-signal", pool.min_signal)),
                *(["--weigh-by-signal"] if pool.weigh_by_signal else []),
                *(["--borrow"] if pool.borrow else []),
                "--write",
                *seed,
            ],
        )


def _source_paths(paths: Sequence[str], beside: Path, out: Path) -> list[str]:
    """A hub id `owner/name@revision` stays as it is; what exists beside the file is a path."""
    found = []
    for path in paths:
        if path == DEMO:
            found += [str(demo_sources(out) / name) for name in DEMO_NAMES]
        else:
            local = beside / path
            found.append(str(local) if local.exists() or "@" not in path else path)
    return found


DEMO_NAMES = ("demo_sqale", "demo_synsql", "demo_bird")
"""Folders that `corpora.synthetic.shapes.write_demo_sources` writes, one a published layout."""


def _schedule(name: str, beside: Path) -> str:
    return str(beside / name) if name.endswith(".toml") else name


def _options(*pairs: tuple[str, object]) -> list[str]:
    """`--name value` for every pair that has a value."""
    return [part for name, value in pairs if value not in ("", None) for part in (name, str(value))]


def _digest(patterns: Sequence[str], out: Path) -> str:
    digest = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(out.glob(pattern)):
            digest.update(f"{path.relative_to(out)}\0{sha256_file(path)}\0".encode())
    return digest.hexdigest()
