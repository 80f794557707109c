"""What a manifest is built with: recorded in it, compared when a run resumes."""

from collections import Counter
from typing import Any

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE
from envbuild.errors import UnknownNameError, UsageError
from envbuild.io.files import sha256_file
from envbuild.io.sorting import count_values
from envbuild.manifest.buckets import Edges, read_edges
from envbuild.records.execution import Limits
from envbuild.records.leaks import LEAK_CODES, LEAKS_FILE
from envbuild.schema.sampler import DEFAULT_TABLES, DISTRACTORS
from envbuild.sql.connect import SQLITE_VERSION
from envbuild.sql.mask import MaskMode

INPUT_FILES = (INDEX_FILE, "buckets.parquet", "findings.parquet", LEAKS_FILE, "signal.parquet")
"""Files of a corpus that decide a manifest; a database's own digest is in the first."""


class ManifestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every choice that decides the rows."""

    seed: int = 0
    """Run seed: with the row id it gives a row's own seed."""
    smallest: int = DEFAULT_TABLES[0]
    """Fewest tables a sample is drawn to have; gold tables stay even where they are more."""
    largest: int = DEFAULT_TABLES[1]
    distractors: str = "fk"
    """`fk`, `lexical`, `random` or `mixed`."""
    extra: int | None = None
    """Exactly this many tables besides the gold ones, instead of a drawn size."""
    full: bool = False
    """Every table of the database."""
    edges: tuple[int, ...] | None = None
    """None: each corpus's own from its buckets.parquet, else 149,278."""
    mask: str | None = None
    """`literals` or `skeleton`; None: as edges."""
    styles: tuple[str, ...] = ()
    """Phrasings to take; empty: all."""
    leave_out: tuple[str, ...] = ()
    """Codes of findings whose questions are left out."""
    variants: int = 0
    """Hidden variants a row may refer to."""
    limit: int | None = None
    """Only a corpus's first questions."""
    limits: Limits = Limits()
    """Of running a gold query."""

    def check(self) -> None:
        """Raises UsageError or UnknownNameError for what cannot be."""
        if not 1 <= self.smallest <= self.largest <= 30_000:
            raise UsageError(
                "--tables takes SMALLEST:LARGEST with 1 <= SMALLEST <= LARGEST, such as 4:64; "
                f"got {self.smallest}:{self.largest}"
            )
        if self.distractors not in DISTRACTORS:
            raise UnknownNameError("kind of distractors", self.distractors, DISTRACTORS)
        if self.mask is not None and self.mask not in list(MaskMode):
            raise UnknownNameError("mask", self.mask, MaskMode)
        if self.extra is not None and self.extra < 0:
            raise UsageError(f"--extra takes a number of tables, 0 or more; got {self.extra}")
        if self.extra is not None and self.full:
            raise UsageError("--extra and --full ask for different samples: give one of them")

    def cutting(self, corpus: CorpusFolder) -> tuple[Edges, MaskMode]:
        """The edges and the mask for one corpus."""
        stored = read_edges(corpus)
        if self.edges is not None:
            return Edges(self.edges), MaskMode(self.mask or MaskMode.LITERALS)
        if stored is not None and self.mask in (None, stored[1]):
            return stored[0], MaskMode(stored[1])
        return Edges(), MaskMode(self.mask or MaskMode.LITERALS)


def parse_tables(text: str) -> tuple[int, int]:
    """`4:64`, or one number for exactly that many. Raises UsageError otherwise."""
    smallest, colon, largest = text.partition(":")
    if not smallest.isdigit() or (colon and not largest.isdigit()):
        raise UsageError(
            f"--tables takes SMALLEST:LARGEST, such as 4:64, or a number; got {text!r}"
        )
    return int(smallest), int(largest if colon else smallest)


def check_corpora(corpora: list[CorpusFolder], settings: ManifestSettings) -> None:
    """Raises UsageError where two corpora share a name, since their row ids would be the same.

    Raises UnknownNameError for a phrasing that no question of the corpora has, and UsageError
    where leaks are to be left out and a corpus was not searched for them.
    """
    names = Counter(corpus.name for corpus in corpora)
    twice = sorted(name for name, times in names.items() if times > 1)
    if twice:
        raise UsageError(
            f"two corpora are called {', '.join(map(repr, twice))}: materialize one of them "
            "again with another --name"
        )
    leaks = [code for code in settings.leave_out if code in LEAK_CODES]
    unsearched = [corpus for corpus in corpora if not (corpus.root / LEAKS_FILE).is_file()]
    if leaks and unsearched:
        raise UsageError(
            f"{unsearched[0].name} has no {LEAKS_FILE}, which says what {leaks[0]} is: run "
            f"`envbuild leaks {unsearched[0].root} --against BENCHMARK` first"
        )
    if settings.styles:
        files = (c.root / "questions.parquet" for c in corpora)
        known = {style for file in files for style in count_values(file, "style")} - {""}
        for style in settings.styles:
            if style not in known:
                raise UnknownNameError("phrasing", style, known)


def configuration_of(settings: ManifestSettings, corpora: list[CorpusFolder]) -> dict[str, Any]:
    """What decides a manifest's bytes: the settings, the inputs' digests, the engine's version."""
    return {
        "settings": msgspec.to_builtins(settings),
        "corpora": {
            corpus.name: {
                file: sha256_file(corpus.root / file)
                for file in INPUT_FILES
                if (corpus.root / file).is_file()
            }
            for corpus in corpora
        },
        "sqlite": SQLITE_VERSION,
    }
