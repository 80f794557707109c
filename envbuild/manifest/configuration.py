"""What a manifest folder was made with: compared, and cleared where another one is wanted."""

import shutil
from pathlib import Path
from typing import Any

import msgspec

from envbuild.errors import ConfigurationError
from envbuild.io.files import writing
from envbuild.manifest.layout import (
    FORMAT,
    GOLD_FILE,
    LOCK_FILE,
    MANIFEST_FILE,
    PARTS_FOLDER,
    READABLE,
    REJECTS_FILE,
    ROWS_FILE,
    VARIANTS_FILE,
)

BEGUN_FILE = "configuration.json"
"""Beside the parts of a build that has not ended: what they are made with."""


def check_same(before: dict[str, Any], now: dict[str, Any], opening: str) -> None:
    """Raises ConfigurationError, naming the options and files that differ, where any does.

    `opening`: the sentence's beginning, such as "manifest was begun with".
    """
    different = dict.fromkeys(map(_typed, _differences(before, now)))
    if different:
        raise ConfigurationError(
            f"{opening} another {', '.join(different)}: "
            "choose another --out, or build it anew with --replace"
        )


def read_index(out: Path) -> dict[str, Any]:
    """manifest.json of a folder that has one. Raises ConfigurationError for another file."""
    try:
        index = msgspec.json.decode((out / MANIFEST_FILE).read_bytes(), type=dict[str, Any])
    except msgspec.MsgspecError:
        index = {}
    parts = (index.get("configuration"), index.get("counts"))
    if index.get("format") not in READABLE or not all(isinstance(part, dict) for part in parts):
        raise ConfigurationError(
            f"{out / MANIFEST_FILE} is no manifest's ({FORMAT}): choose another --out"
        )
    return index


def read_begun(folder: Path) -> dict[str, Any] | None:
    """What the parts in this folder are made with; None where none are begun."""
    file = folder / BEGUN_FILE
    if not file.is_file():
        return None
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])


def remove_other(out: Path, configuration: dict[str, Any]) -> None:
    """Removes the manifest in `out`, or a build of one, that was made with another configuration.

    For whoever holds the folder's lock. Anything else in the folder stays. Raises
    ConfigurationError where manifest.json is no manifest's.
    """
    folder = out / PARTS_FOLDER
    begun = read_begun(folder)
    with writing(out):
        if begun is not None and _differences(begun, configuration):
            for part in folder.iterdir():
                if part.is_dir():
                    shutil.rmtree(part)
                elif part.name != LOCK_FILE:
                    part.unlink()
        if (out / MANIFEST_FILE).is_file() and _differences(
            read_index(out)["configuration"], configuration
        ):
            (out / MANIFEST_FILE).unlink()  # first: without it the folder is not called complete
            for file in (ROWS_FILE, GOLD_FILE, REJECTS_FILE, VARIANTS_FILE):
                (out / file).unlink(missing_ok=True)


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Which entries of two configurations are not the same, sorted."""
    now = msgspec.json.decode(msgspec.json.encode(now))
    flat_before, flat_now = dict(_flatten(before)), dict(_flatten(now))
    return sorted(
        key
        for key in flat_before.keys() | flat_now.keys()
        if flat_before.get(key) != flat_now.get(key)
    )


def _typed(key: str) -> str:
    """An entry of the configuration as the operator knows it: an option, or a corpus's file."""
    section, _, name = key.partition(".")
    if section == "settings":
        option = "tables" if name in ("smallest", "largest") else name.replace("_", "-")
        return f"limit of a gold query ({name})" if "." in name else f"--{option}"
    return f"{name.replace('.', '/', 1)}" if section == "corpora" else f"{section} version"


def _flatten(values: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(values, dict):
        return [(prefix, values)]
    return [
        pair
        for key, value in sorted(values.items())
        for pair in _flatten(value, f"{prefix}.{key}" if prefix else str(key))
    ]
