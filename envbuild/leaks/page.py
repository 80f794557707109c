"""`--out`: the ledger, and the leaks as one self-contained page."""

from pathlib import Path

from envbuild.io.files import write_text, writing
from envbuild.io.pages import render_page
from envbuild.leaks.run import Found, write_ledger
from envbuild.records.leaks import LEAKS_FILE, MEASURED, SKELETON

SHOWN_PAIRS = 1000
"""Rows of the page's table; leaks.parquet has every one."""


def write_report(found: Found, folder: Path, *, training: str, threshold: float) -> None:
    """Writes leaks.parquet and leaks.html into `folder`."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_ledger(found, folder / LEAKS_FILE, threshold=threshold)
    pairs = [leak for leak in found.leaks if leak.kind != SKELETON]
    page = render_page(
        "leaks.html",
        title=f"Leaks: {training}",
        found=found,
        pairs=pairs[:SHOWN_PAIRS],
        num_pairs=len(pairs),
        threshold=threshold,
        measured=MEASURED,
    )
    write_text(folder / "leaks.html", page)
