"""A data set of the Hugging Face hub at a pinned revision: fetched once, read like local files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from envbuild.corpora.source import Source, read_source
from envbuild.errors import MissingDependencyError, SourceError

_PATTERNS = ["*.parquet", "*.json", "*.jsonl"]


def read(path: str, *, split: str | None = None) -> Source:
    """The source `owner/name@revision`; without a revision the newest, and its commit is recorded.

    Files already in the local hub cache are not fetched again. Raises SourceError, saying what to
    do, where the hub cannot be reached.
    """
    name, _, revision = path.partition("@")
    folder = Path(_fetch(name, revision or None))
    found = read_source(folder, split=split)
    return replace(
        found,
        name=name.rpartition("/")[2],
        said=f"{name} at commit {folder.name}: {found.said}",
        revision=folder.name,
    )


def _fetch(name: str, revision: str | None) -> str:
    """The folder of the snapshot; its name is the commit."""
    hub = _hub(name)
    asked: dict[str, Any] = {"repo_type": "dataset", "allow_patterns": _PATTERNS}
    if revision:
        asked["revision"] = revision
    try:
        return str(hub.snapshot_download(name, **asked))
    except Exception as e:
        pinned = revision or "REVISION"
        raise SourceError(
            f"{_no_folder(name)}the hub does not give {name} ({type(e).__name__}); on a machine "
            f"with a network run "
            f"`hf download {name} --repo-type dataset --revision {pinned} --local-dir FOLDER` "
            f"and give FOLDER here instead"
        ) from e


def _hub(name: str) -> Any:
    try:
        import datasets  # noqa: F401 - what the extra installs; it brings huggingface_hub
        import huggingface_hub
    except ModuleNotFoundError as e:
        raise MissingDependencyError(
            f"{_no_folder(name)}reading {name} from the hub",
            "datasets",
            "pip install '.[hub]' in a checkout",
        ) from e
    return huggingface_hub


def _no_folder(name: str) -> str:
    """A path with a slip in it looks like an id: what was looked for first is said first."""
    return "" if Path(name).exists() else f"there is no folder {name} here; "
