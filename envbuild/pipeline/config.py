"""A pipeline file: TOML, decoded strictly, every value with the published one as its default."""

from pathlib import Path

import msgspec

from envbuild.errors import ConfigurationError

FORMAT = "envbuild.pipeline/1"
STAGES = ("materialize", "preflight", "buckets", "manifest", "pool")
"""In running order."""


class SourceSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the corpus comes from."""

    paths: tuple[str, ...]
    """Folders or files, relative to the pipeline file; `demo:` is what ships with the package."""
    reader: str = "auto"
    revision: str = ""
    """What the source was fetched at: a hub revision or a release date."""
    split: str = ""
    name: str = ""
    """Corpus name; the source's own where empty."""
    limit: int | None = None
    link: bool = False
    """Link ready SQLite files instead of copying them."""


class PreflightSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What preflight looks at."""

    signal: str = "2000"
    """`all`, `off`, or how many golds are sampled."""
    thresholds: str = ""
    """A thresholds file, relative to the pipeline file."""
    html: bool = True
    """Write preflight.html beside the corpus."""
    strict: bool = False
    """Warnings too make the stage end with 1."""
    gold_seconds: float | None = None
    """Wall clock a gold query may take; the command's own where None."""


class BucketsSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How gold SQL is cut by masked length."""

    edges: tuple[int, ...] = (149, 278)
    mask: str = "literals"
    shares: tuple[float, ...] = (0.20, 0.25, 0.55)


class ManifestSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How rows are made."""

    tables: str = "4:64"
    distractors: str = "fk"
    extra: int | None = None
    full: bool = False
    styles: tuple[str, ...] = ()
    """SQaLe phrasings; all where empty."""
    leave_out: tuple[str, ...] = ()
    """Findings whose questions stay out."""
    variants: int = 0
    limit: int | None = None


class PoolSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the trainer draws."""

    schedule: str = "synsql"
    size: int | None = None
    """Questions in the pool; None: all that the shares allow."""
    styles: tuple[str, ...] = ()
    """Phrasings to keep; all where empty."""
    min_signal: float | None = None
    weigh_by_signal: bool = False
    borrow: bool = False
    """Fill what a bucket lacks from the nearest one."""


class Pipeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pipeline file."""

    format: str
    name: str
    seed: int = 0
    workers: int | None = None
    """Processes; None: one a core."""
    source: SourceSection
    preflight: PreflightSection = PreflightSection()
    buckets: BucketsSection = BucketsSection()
    manifest: ManifestSection = ManifestSection()
    pool: PoolSection | None = None
    """None: no schedule is written."""


def read_pipeline(path: Path) -> Pipeline:
    """The pipeline declared in a TOML file.

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
