"""A pipeline file: TOML, decoded strictly into the records that the commands' options fill, too.

What a field means, its bounds and its published default stand here once; the command line reads
its help from here.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from envbuild.errors import ConfigurationError

FORMAT = "envbuild.pipeline/1"
STAGES = ("materialize", "preflight", "buckets", "manifest", "pool")
"""In running order."""
WHERE = "Only rows for which this DuckDB expression over the manifest's columns is true."
DEMO = "demo:"
DEMO_LICENCE = "Apache-2.0"
"""The source path that means: the corpora that ship with the package."""
DEMO_NAMES = ("demo_sqale", "demo_synsql", "demo_bird")
"""Folders that `corpora.synthetic.write_demo_sources` writes, one a published layout."""


def _field(help: str, **shown: Any) -> Meta:
    """What --help says of a field; `shown` as typer names it, such as metavar."""
    return Meta(description=help, extra=shown)


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class MaterializeOptions(_Section, frozen=True, kw_only=True):
    """How a source is read."""

    reader: Annotated[
        str,
        _field("Its layout.", metavar="auto|sqale|payload|synsql|bird|spider|folder|hub"),
    ] = "auto"
    name: Annotated[str, _field("The corpus's name; default: the source's.")] | None = None
    split: Annotated[str, _field("Only this split, such as train.")] | None = None
    limit: Annotated[int, Meta(description="Only the first N databases.", ge=0)] | None = None
    revision: Annotated[str, _field("What the source was fetched at; recorded in rows.")] = ""
    licence: Annotated[str, _field("Of the data; default: that of the published corpus.")] = ""
    fields: Annotated[
        tuple[str, ...],
        _field("Keys of your own question files, such as question=nl,sql=target."),
    ] = ()
    link: Annotated[bool, _field("Link ready SQLite files instead of copying them.")] = False
    packed: Annotated[bool, _field("Keep the databases in a few large files (packs/).")] = False


class SourceSection(MaterializeOptions, frozen=True, kw_only=True):
    """Where the corpus comes from."""

    paths: tuple[str, ...]
    """Folders or files, relative to the pipeline file, or hub ids; `demo:` is what ships."""


class PreflightOptions(_Section, frozen=True, kw_only=True):
    """What preflight looks at."""

    thresholds: (
        Annotated[str, _field("TOML file with thresholds of your own.", metavar="<path>")] | None
    ) = None
    signal: Annotated[
        str, _field("Golds scored: at most N a corpus, 20 a database.", metavar="all|N|off")
    ] = "2000"
    strict: Annotated[bool, _field("Warnings too make exit 1.")] = False
    gold_seconds: Annotated[
        float, Meta(description="Wall clock a gold query may take.", ge=0.01)
    ] = 30.0


class PreflightSection(PreflightOptions, frozen=True, kw_only=True):
    """What preflight looks at, and whether it writes its page."""

    html: bool = True
    """Write preflight.html beside the corpus."""


class BucketsOptions(_Section, frozen=True, kw_only=True):
    """How gold SQL is cut by masked length."""

    edges: Annotated[
        tuple[int | str, ...], _field("Lengths at which a bucket begins. [default: 149,278]")
    ] = ()
    mask: Annotated[
        str, _field("skeleton: identifiers masked too.", metavar="literals|skeleton")
    ] = "literals"
    shares: Annotated[
        tuple[float | str, ...], _field("Pool shares, one a bucket, such as 0.20,0.25,0.55.")
    ] = ()


class SampleOptions(_Section, frozen=True, kw_only=True):
    """How a question's tables are drawn."""

    tables: Annotated[str, _field("Fewest and most tables of a sample.")] = "4:64"
    distractors: Annotated[
        str, _field("How tables are added.", metavar="fk|lexical|random|mixed")
    ] = "fk"
    extra: (
        Annotated[int, Meta(description="The gold tables and exactly this many.", ge=0)] | None
    ) = None
    full: Annotated[bool, _field("Every table of the database.")] = False


class ManifestOptions(SampleOptions, frozen=True, kw_only=True):
    """How rows are made."""

    edges: Annotated[
        tuple[int | str, ...], _field("Bucket edges; default: each corpus's buckets.parquet.")
    ] = ()
    mask: Annotated[str, _field("Default: as the edges.", metavar="literals|skeleton")] | None = (
        None
    )
    styles: Annotated[tuple[str, ...], _field("Phrasings to take, comma-separated.")] = ()
    leave_out: Annotated[
        tuple[str, ...],
        _field("Findings whose questions stay out, comma-separated; leaks: all three of them."),
    ] = ()
    variants: Annotated[
        int, Meta(description="Hidden variants that each gold is also judged on.", ge=0)
    ] = 0
    limit: (
        Annotated[int, Meta(description="Only the first N questions of each corpus.", ge=0)] | None
    ) = None


class PoolOptions(_Section, frozen=True, kw_only=True):
    """What the trainer draws."""

    schedule: Annotated[str, _field("synsql, none, or a TOML file of the same form.")] = "synsql"
    size: (
        Annotated[
            int, Meta(description="Questions in the pool; default: all the shares allow.", ge=1)
        ]
        | None
    ) = None
    where: Annotated[str, _field(WHERE, metavar="SQL")] = ""
    weigh_by_signal: Annotated[bool, _field("Prefer rows with more signal.")] = False


class PoolSection(PoolOptions, frozen=True, kw_only=True):
    """What the trainer draws, and what from it is kept apart."""

    test: tuple[str, ...] = ()
    """Manifests to keep the pool apart from, relative to the pipeline file."""


class Pipeline(_Section, frozen=True, kw_only=True):
    """One pipeline file."""

    format: str
    name: str
    seed: int = 0
    workers: Annotated[int, Meta(ge=1)] | None = None
    """Processes; None: one a core."""
    source: SourceSection
    preflight: PreflightSection = PreflightSection()
    buckets: BucketsOptions = BucketsOptions(edges=(149, 278), shares=(0.20, 0.25, 0.55))
    """The published cut where nothing is said."""
    manifest: ManifestOptions = ManifestOptions()
    pool: PoolSection | None = None
    """None: no schedule is written."""


def read_pipeline(path: Path) -> Pipeline:
    """The pipeline declared in a TOML file, its paths as they stand there.

    Raises ConfigurationError, with the key, for what cannot be.
    """
    try:
        found = msgspec.toml.decode(Path(path).read_bytes(), type=Pipeline)
    except FileNotFoundError:
        raise ConfigurationError(f"no pipeline file {path}") from None
    except OSError as e:
        raise ConfigurationError(f"cannot read the pipeline file {path}: {e.strerror}") from None
    except msgspec.MsgspecError as e:
        raise ConfigurationError(f"{path}: {e}") from None
    if found.format != FORMAT:
        raise ConfigurationError(f"{path}: format is {found.format!r}; this version reads {FORMAT}")
    return found


def resolve_paths(pipeline: Pipeline, *, beside: Path, out: Path) -> Pipeline:
    """The pipeline with paths that count from `beside`, the folder its file lies in.

    `demo:` becomes the sources that are written below `out`; a hub id stays as it is, and is asked
    for only when its stage runs. Raises ConfigurationError for a path that leads nowhere.
    """

    def resolve(key: str, path: str) -> str:
        found = beside / path
        if found.exists():
            return str(found)
        if key == "source.paths" and "@" in path:
            return path
        raise ConfigurationError(
            f"{key} names {path}, but there is no {found}: paths count from the pipeline file's "
            "folder"
        )

    replace = msgspec.structs.replace
    paths: list[str] = []
    for path in pipeline.source.paths:
        demo = [str(demo_sources(out) / name) for name in DEMO_NAMES]
        paths += demo if path == DEMO else [resolve("source.paths", path)]
    preflight, pool = pipeline.preflight, pipeline.pool
    if preflight.thresholds:
        thresholds = resolve("preflight.thresholds", preflight.thresholds)
        preflight = replace(preflight, thresholds=thresholds)
    if pool is not None:
        if pool.schedule.endswith(".toml"):
            pool = replace(pool, schedule=resolve("pool.schedule", pool.schedule))
        pool = replace(pool, test=tuple(resolve("pool.test", path) for path in pool.test))
    source = replace(pipeline.source, paths=tuple(paths))
    return replace(pipeline, source=source, preflight=preflight, pool=pool)


def demo_sources(out: Path) -> Path:
    """Where a pipeline over `demo:` writes the corpora that ship with the package."""
    return out / "sources"
