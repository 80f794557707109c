"""Questions and queries that stand in a benchmark, in the same words or nearly so.

A benchmark's questions are indexed, a corpus's streamed. Every measure is exact: an index of rare
words only says which pairs are worth a look, so its cost follows the benchmark's common words.
"""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from envbuild.errors import MissingDependencyError
from envbuild.leaks.schemas import fold
from envbuild.sql.mask import MaskMode, mask_sql

WORDS = 0.72
"""Jaccard index of two questions' words from which one is the other."""
SHINGLES = 0.8
"""Jaccard index of their three-letter shingles, for short questions."""
SHORT = 12
"""Words up to which a question is short."""
CONTAINED = 0.5
"""Jaccard index of their words from which one counts whose every word the other has."""
LEAST_WORDS = 5
"""Words of a question that another contains, at least."""
GRAM = 8
GRAMS = 0.6
"""Share of the shorter one's 8-grams that stand in the other."""
NAMES = 0.8
"""Share of two queries' identifiers, in the smaller set, from which equal skeletons are a leak."""
LEAST_NAMES = 3
COSINE = 0.9
"""Of two embeddings, with --embed."""
_NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty",
)  # fmt: skip
NUMBERS = {word: str(number) for number, word in enumerate(_NUMBER_WORDS)}
ASKING = frozenset((
    "calculate", "compute", "determine", "display", "enumerate", "find", "give", "identify",
    "indicate", "list", "me", "out", "please", "provide", "return", "show", "state", "tell",
))  # fmt: skip
"""Words that only ask: no evidence."""
_WORD = re.compile(r"[^\W_]+")
_CLAUSES = ("select", "join", "where", " by ", "limit", "case", "over", "distinct", " in ", "(")


class Near(NamedTuple):
    """A benchmark's question that another one is, in its words or in its query."""

    place: int
    """Among the indexed questions."""
    score: float
    evidence: str


def words_of(question: str) -> list[str]:
    """A question's words: case and plurals folded, numbers as digits, asking words left out."""
    plain = question if question.isascii() else unicodedata.normalize("NFKC", question)
    found = _WORD.findall(plain.casefold().replace("’", "'").replace("'s", ""))
    words = [NUMBERS.get(word) or _singular(word) for word in found]
    return [word for word in words if word not in ASKING] or words


def _singular(word: str) -> str:
    plural = len(word) > 3 and word[-1] == "s" and word[-2] != "s"
    return word[:-1] if plural else word


class QuestionIndex:
    """A benchmark's questions, asked which of them another one is.

    By prefix filtering: two sets with a Jaccard index of at least t share one of the rarest
    n - ceil(t * n) + 1 items of each, and a set that contains another has its rarest item.
    """

    def __init__(self, questions: Sequence[str]) -> None:
        split = [words_of(question) for question in questions]
        frequency = Counter(word for words in split for word in set(words))
        order = sorted(frequency, key=lambda word: (frequency[word], word))
        self._number = {word: number for number, word in enumerate(order)}
        """Word -> its place by rarity."""
        self._sets = [frozenset(map(self._number.__getitem__, words)) for words in split]
        self._texts: defaultdict[str, list[int]] = defaultdict(list)
        self._grams: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        self._num_grams = [max(0, len(words) - GRAM + 1) for words in split]
        self._shingles: list[frozenset[str]] = []
        self._by_shingle: defaultdict[str, list[int]] = defaultdict(list)
        self._by_word, self._by_rarest, self._by_rare = (
            defaultdict[int, list[int]](list),
            defaultdict[int, list[int]](list),
            defaultdict[int, list[int]](list),
        )
        for place, (words, own) in enumerate(zip(split, self._sets, strict=True)):
            self._texts[" ".join(words)].append(place)
            for gram in self._grams_of(words):
                self._grams[gram].append(place)
            ranked = sorted(own)
            for number in ranked:
                self._by_word[number].append(place)
            for number in ranked[: _prefix(len(own), WORDS)]:
                self._by_rare[number].append(place)
            if len(own) >= LEAST_WORDS:
                self._by_rarest[ranked[0]].append(place)
            self._shingles.append(_shingles(words) if len(words) <= SHORT else frozenset())
        self._shingle_counts = Counter(part for each in self._shingles for part in each)
        for place, parts in enumerate(self._shingles):
            for part in self._rare_shingles(parts):
                self._by_shingle[part].append(place)

    def near(self, question: str) -> list[Near]:
        """Every indexed question that this one is, by whichever measure says most."""
        words = words_of(question)
        if not words:
            return []
        distinct = set(words)
        known = sorted(
            number for word in distinct if (number := self._number.get(word)) is not None
        )
        found: dict[int, Near] = {}
        self._by_grams(words, found)
        if known:
            self._by_words(frozenset(known), known, len(distinct), found)
        if len(words) <= SHORT:
            self._by_shingles(_shingles(words), found)
        for place in self._texts.get(" ".join(words), ()):
            found[place] = Near(place, 1.0, "the same words in the same order")
        return list(found.values())

    def _by_words(
        self, own: frozenset[int], ranked: list[int], size: int, found: dict[int, Near]
    ) -> None:
        unknown = size - len(own)
        rare = ranked[: max(0, _prefix(size, WORDS) - unknown)]
        places = {place for number in rare for place in self._by_rare.get(number, ())}
        for number in ranked:
            places.update(self._by_rarest.get(number, ()))
        if not unknown and size >= LEAST_WORDS:
            places.update(self._by_word[ranked[0]])
        for place in places:
            other = self._sets[place]
            smaller, larger = sorted((size, len(other)))
            if smaller < CONTAINED * larger:
                continue
            shared = len(own & other)
            score = shared / (size + len(other) - shared)
            if score >= WORDS:
                _keep(found, place, score, f"{shared} of {size} and {len(other)} words")
            elif shared == smaller >= LEAST_WORDS and score >= CONTAINED:
                _keep(found, place, score, f"all {shared} words of the shorter one")

    def _grams_of(self, words: list[str]) -> set[tuple[int, ...]]:
        """The 8-grams of known words, as their numbers."""
        if len(words) < GRAM:
            return set()
        numbers = [self._number.get(word, -1) for word in words]
        grams = zip(*(numbers[at:] for at in range(GRAM)), strict=False)
        return {gram for gram in grams if -1 not in gram}

    def _by_grams(self, words: list[str], found: dict[int, Near]) -> None:
        grams = self._grams_of(words)
        shared = Counter(place for gram in grams for place in self._grams.get(gram, ()))
        for place, count in shared.items():
            fewer = min(len(words) - GRAM + 1, self._num_grams[place])
            if count >= GRAMS * fewer:
                _keep(found, place, count / fewer, f"{count} of {fewer} 8-grams")

    def _by_shingles(self, parts: frozenset[str], found: dict[int, Near]) -> None:
        places = {
            place for part in self._rare_shingles(parts) for place in self._by_shingle.get(part, ())
        }
        for place in places:
            other = self._shingles[place]
            shared = len(parts & other)
            score = shared / (len(parts) + len(other) - shared)
            if score >= SHINGLES:
                _keep(found, place, score, f"{score:.0%} of their three-letter shingles")

    def _rare_shingles(self, parts: frozenset[str]) -> list[str]:
        count = self._shingle_counts
        order = sorted(parts, key=lambda part: (count[part], part))
        return order[: _prefix(len(parts), SHINGLES)]


def _keep(found: dict[int, Near], place: int, score: float, evidence: str) -> None:
    if place not in found or score > found[place].score:
        found[place] = Near(place, round(score, 4), evidence)


def _prefix(size: int, share: float) -> int:
    return size - math.ceil(share * size - 1e-9) + 1


def _shingles(words: list[str]) -> frozenset[str]:
    text = f" {' '.join(words)} "
    return frozenset(text[at : at + 3] for at in range(len(text) - 2))


# Queries.


class QueryIndex:
    """A benchmark's queries, asked which of them another one is but for literals."""

    def __init__(self, queries: Sequence[str]) -> None:
        self._names: list[frozenset[str]] = []
        self._by_skeleton: defaultdict[str, list[int]] = defaultdict(list)
        self._clauses = set(map(_clauses, queries))
        """What a query must have as many of, to be worth masking."""
        for place, sql in enumerate(queries):
            skeleton, names = skeleton_of(sql)
            self._names.append(names)
            self._by_skeleton[skeleton].append(place)

    def near(self, sql: str) -> tuple[list[Near], list[int]]:
        """The queries of this skeleton: those that share its identifiers, and all the others."""
        if _clauses(sql) not in self._clauses:
            return [], []
        skeleton, names = skeleton_of(sql)
        leaks, alike = [], []
        for place in self._by_skeleton.get(skeleton, ()):
            other = self._names[place]
            shared, smaller = len(names & other), min(len(names), len(other))
            if shared >= LEAST_NAMES and shared >= NAMES * smaller:
                said = f"one skeleton, {shared} of {len(names)} and {len(other)} identifiers"
                leaks.append(Near(place, round(shared / smaller, 4), said))
            else:
                alike.append(place)
        return leaks, alike


def skeleton_of(sql: str) -> tuple[str, frozenset[str]]:
    """The query without literals and identifiers, and its identifiers, folded; no short aliases."""
    masked = mask_sql(sql, mode=MaskMode.SKELETON)
    names = {"_".join(fold(name.strip('"`[]'))) for name in masked.names if len(name) > 2}
    return masked.text.lower(), frozenset(names)


def _clauses(sql: str) -> tuple[int, ...]:
    lower = sql.lower()
    return tuple(map(lower.count, _CLAUSES))


# Embeddings.


class EmbeddingIndex:
    """A benchmark's questions as a model of sentence-transformers embeds them."""

    def __init__(self, questions: Sequence[str], model: str) -> None:
        """Raises MissingDependencyError where sentence-transformers is not installed."""
        try:
            from sentence_transformers import SentenceTransformer
        except ModuleNotFoundError as e:
            raise MissingDependencyError(
                "--embed", "sentence-transformers", "pip install sentence-transformers"
            ) from e
        self._model: Any = SentenceTransformer(model)
        self._vectors = self._embed(questions)

    def near(self, questions: Sequence[str]) -> Iterator[list[Near]]:
        """For each question the nearest indexed one, where its cosine is at least COSINE."""
        for row in self._embed(questions) @ self._vectors.T:
            place = int(row.argmax())
            score = round(float(row[place]), 4)
            yield [Near(place, score, "embedding")] if score >= COSINE else []

    def _embed(self, questions: Iterable[str]) -> Any:
        return self._model.encode(list(questions), normalize_embeddings=True)
