"""Keeps test out of training: its rows, its schemas under another name, its questions reworded.

`untrainable_rows` is the one rule for what may be trained on: pools, exports and adapters ask it.
A schema's fingerprint is its tables' and columns' names, whatever the database is called and in
whatever order they are declared. A near-duplicate question shares at least 0.8 of its words.
"""

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from math import ceil
from pathlib import Path
from typing import NamedTuple

import msgspec

from envbuild.manifest.read import Manifest
from envbuild.records.corpus import Schema, is_evaluation_split
from envbuild.schema.read import read_schema_of

NEAR = 0.8
"""Jaccard index of two questions' sets of words from which they count as near-duplicates."""
BATCH = 65536
"""Rows that are Python objects at a time."""
_WORD = re.compile(r"\w+")

TEST_SPLIT = "test_split"
SAME_SCHEMA = "shares_schema_with_test"
NEAR_DUPLICATE = "near_duplicate_of_test"


def untrainable_rows(manifest: Manifest, *, apart_from: Sequence[Manifest] = ()) -> dict[str, str]:
    """Why a row must not be trained on, by row id; every other row of the manifest may be.

    TEST_SPLIT: its split is an evaluation's. SAME_SCHEMA, NEAR_DUPLICATE: it gives such a row away,
    or any row of `apart_from`. Databases are opened only where something is held out.
    """
    rows = _Rows(manifest)
    held_out = [row for row in rows if is_evaluation_split(row.split)]
    reasons = {row.row_id: TEST_SPLIT for row in held_out}
    held_out += [row for other in apart_from for row in _Rows(other)]
    if held_out and len(reasons) < len(manifest.rows):
        reasons |= _leaks((row for row in rows if row.row_id not in reasons), held_out)
    return reasons


def schema_fingerprint(schema: Schema) -> str:
    """Hex digest of the names of tables and columns, order-free and case-insensitive."""
    tables = sorted(
        (table.name.casefold(), sorted(column.name.casefold() for column in table.columns))
        for table in schema.tables
    )
    return hashlib.blake2b(msgspec.json.encode(tables), digest_size=16).hexdigest()


def question_words(question: str) -> frozenset[str]:
    """The question's distinct words: folded case, no punctuation, compatibility forms unified."""
    plain = question if question.isascii() else unicodedata.normalize("NFKC", question)
    return frozenset(_WORD.findall(plain.casefold()))


class NearDuplicates:
    """Held-out questions, asked whether a question is nearly one of them.

    Exact, by prefix filtering: two sets with a Jaccard index of at least t share one of the
    rarest |set| - ceil(t |set|) + 1 words of each.
    """

    def __init__(self, questions: Iterable[str], *, near: float = NEAR) -> None:
        self._near = near
        words = sorted({question_words(q) for q in questions}, key=sorted)
        self._frequency = Counter(word for each in words for word in each)
        self._by_word: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
        self._whole = set(words)
        for each in words:
            for word in self._prefix(each):
                self._by_word[word].append(each)

    def holds(self, question: str) -> bool:
        """True where a held-out question is the same or nearly so."""
        words = question_words(question)
        if words in self._whole:
            return True
        seen: set[frozenset[str]] = set()
        for word in self._prefix(words):
            for other in self._by_word.get(word, ()):
                if other in seen:
                    continue
                seen.add(other)
                shared = len(words & other)
                if shared >= self._near * (len(words) + len(other) - shared):
                    return True
        return False

    def _prefix(self, words: frozenset[str]) -> list[str]:
        length = len(words) - ceil(self._near * len(words) - 1e-9) + 1
        known = [word for word in words if word in self._frequency]
        length -= len(words) - len(known)  # words that no held-out question has are the rarest
        if length <= 0:
            return []
        return sorted(known, key=lambda word: (self._frequency[word], word))[:length]


class _Row(NamedTuple):
    row_id: str
    split: str
    question: str
    database: Path


class _Rows:
    """A manifest's rows, as often as wanted.

    Four columns in Arrow's memory, never whole records: a manifest of 2.5 million rows fits.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._root = manifest.root
        self._columns = manifest.columns("row_id", "split", "question", "sqlite_file")

    def __iter__(self) -> Iterator[_Row]:
        path = cache(self._root.joinpath)
        for batch in self._columns.to_batches(max_chunksize=BATCH):
            columns = (column.to_pylist() for column in batch.columns)
            for row_id, split, question, file in zip(*columns, strict=True):
                yield _Row(row_id, split, question, path(file))


def _leaks(train: Iterable[_Row], held_out: Sequence[_Row]) -> dict[str, str]:
    """Reason a training row must stay out: row id -> SAME_SCHEMA or NEAR_DUPLICATE."""
    fingerprint = cache(lambda file: schema_fingerprint(read_schema_of(file)))
    schemas = {fingerprint(row.database) for row in held_out}
    near = NearDuplicates(row.question for row in held_out)
    reasons = {}
    for row in train:
        if fingerprint(row.database) in schemas:
            reasons[row.row_id] = SAME_SCHEMA
        elif near.holds(row.question):
            reasons[row.row_id] = NEAR_DUPLICATE
    return reasons
