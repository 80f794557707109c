"""BIRD's column descriptions: CSV files, one a table, beside the database they belong to."""

import shutil
from pathlib import Path

from envbuild.io.files import atomic_path

DESCRIPTIONS = "database_description"
"""The folder of CSV files that say what a database's columns and values mean."""


def copy_descriptions(source: Path, target: Path) -> int:
    """Copies `database_description/*.csv` of the folder `source` into `target`; how many."""
    folder = source / DESCRIPTIONS
    files = sorted(folder.glob("*")) if folder.is_dir() else []
    described = [file for file in files if file.suffix.lower() == ".csv" and file.is_file()]
    for file in described:
        with atomic_path(target / DESCRIPTIONS / file.name) as temporary:
            shutil.copyfile(file, temporary)
    return len(described)
