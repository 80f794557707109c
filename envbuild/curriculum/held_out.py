"""Keeps test out of training: the same schema under another name, the same question reworded.

A schema's fingerprint is its tables' and columns' names, whatever the database is called and in
whatever order they are declared. A near-duplicate question shares at least 0.8 of its words.
"""

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import ceil

import msgspec

from envbuild.records.schema import Schema

NEAR = 0.8
"""Jaccard index of two questions' sets of words from which they count as near-duplicates."""
_WORD = re.compile(r"\w+")

SAME_SCHEMA = "shares_schema_with_test"
NEAR_DUPLICATE = "near_duplicate_of_test"


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


def leaks(
    train: Iterable[tuple[str, str, str]],
    held_out: Iterable[tuple[str, str, str]],
    *,
    fingerprints: Mapping[str, str],
) -> dict[str, str]:
    """Reason a training row must stay out: row id -> SAME_SCHEMA or NEAR_DUPLICATE.

    Rows are (row id, database file, question); `fingerprints` maps database files to digests.
    """
    held_out = list(held_out)
    schemas = {fingerprints[file] for _, file, _ in held_out}
    near = NearDuplicates(question for _, _, question in held_out)
    reasons = {}
    for row_id, file, question in train:
        if fingerprints[file] in schemas:
            reasons[row_id] = SAME_SCHEMA
        elif near.holds(question):
            reasons[row_id] = NEAR_DUPLICATE
    return reasons
