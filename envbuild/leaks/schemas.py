"""Schemas that are one database under two names: by qualified columns, by columns, by values.

Each measure is a containment in the smaller of both, so that a subset is found as its source is.
Names are folded first: case, camelCase and underscores, plurals, prefixes and stop words do not
count. Exact: an index of rare items only says which pairs are worth a look, and misses none.
"""

import hashlib
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from envbuild.records.corpus import Schema, counted
from envbuild.sql.connect import SQLiteError, iter_rows, open_read_only, quote_name

LEAST_COLUMNS = 5
"""Qualified or distinctive columns that two schemas share at least."""
LEAST_VALUES = 10
"""Distinct values of text columns that two databases share at least."""
READ_ROWS = 5000
"""Rows of a table whose values are read."""
SKETCH = 64
"""Hashes kept of a column: the smallest, so that two samples of one column agree."""
SHARED = 0.5
"""Of a column's values, from which the column counts as shared."""
LEAST_DISTINCT = 3
_WORDS = re.compile(r"[A-Z]+s?(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|\d+")
STOP_WORDS = frozenset(("a", "an", "and", "by", "for", "in", "of", "on", "tbl", "the", "to"))
GENERIC = frozenset((
    "id", "name", "type", "date", "title", "description", "code", "status", "year", "address",
    "city", "state", "country", "email", "phone", "time", "number", "value", "note", "amount",
    "price", "age", "gender", "sex", "category", "comment", "location", "position", "first_name",
    "last_name", "start_date", "end_date", "created_at", "updated_at", "detail", "order", "rank",
    "score", "quantity", "total", "rating", "role", "level", "weight", "height", "version", "url",
    "created", "updated", "active",
))  # fmt: skip
"""Folded columns that schemas of every field have: no evidence without their table."""


class Profile(NamedTuple):
    """What is compared of one database."""

    db_id: str
    qualified: frozenset[str]
    """Folded `table.column`."""
    distinctive: frozenset[str]
    """Folded columns that are not GENERIC."""
    types: dict[str, str]
    """Folded `table.column` -> affinity."""
    keys: frozenset[str]
    """Folded foreign keys."""
    values: dict[str, frozenset[int]]
    """Text column that is no key -> the smallest hashes of its values."""


class SchemaMatch(NamedTuple):
    """Two schemas that are, in whole or part, one."""

    other: Profile
    score: float
    evidence: str


class SchemaIndex:
    """Schemas of a benchmark, asked which of them another one shares."""

    def __init__(self, profiles: Sequence[Profile], *, threshold: float) -> None:
        self.profiles, self.threshold = profiles, threshold
        self._indexes = [RareIndex(map(part, profiles), threshold) for part in _PARTS]
        self._by_value: defaultdict[int, set[int]] = defaultdict(set)
        for place, profile in enumerate(profiles):
            for hashes in profile.values.values():
                for one in hashes:
                    self._by_value[one].add(place)

    def matches(self, profile: Profile) -> list[SchemaMatch]:
        """The indexed schemas at or above the threshold, best first."""
        places: set[int] = set()
        for index, part in zip(self._indexes, _PARTS, strict=True):
            places |= index.near(part(profile))
        shared = Counter(
            place
            for one in set().union(*profile.values.values())
            for place in self._by_value.get(one, ())
        )
        places |= {place for place, count in shared.items() if count >= LEAST_VALUES}
        found = [compare(profile, self.profiles[place]) for place in sorted(places)]
        kept = [match for match in found if match.score >= self.threshold]
        return sorted(kept, key=lambda match: (-match.score, match.other.db_id))


def compare(one: Profile, other: Profile) -> SchemaMatch:
    """The best of the three measures, and all that speaks for it."""
    scores, said = [0.0], []
    common = one.qualified & other.qualified
    if len(common) >= LEAST_COLUMNS or (common and one.qualified == other.qualified):
        scores.append(_containment(one.qualified, other.qualified))
        alike = sum(one.types[name] == other.types[name] for name in common)
        keys = one.keys & other.keys
        said.append(
            f"{len(common)} of {len(one.qualified)} and {len(other.qualified)} qualified columns, "
            f"{alike} of one type"
        )
        if keys:
            said.append(counted(len(keys), "foreign key"))
    if len(names := one.distinctive & other.distinctive) >= LEAST_COLUMNS:
        scores.append(_containment(one.distinctive, other.distinctive))
        said.append(
            f"{len(names)} of {len(one.distinctive)} and {len(other.distinctive)} distinctive "
            "columns"
        )
    pairs, values = _shared_columns(one.values, other.values)
    if values >= LEAST_VALUES:
        scores.append(len(pairs) / min(len(one.values), len(other.values)))
        said.append(
            f"the values of {len(pairs)} of {len(one.values)} and {len(other.values)} text columns"
        )
    return SchemaMatch(other, round(max(scores), 4), "; ".join(said))


def _containment(one: frozenset[str], other: frozenset[str]) -> float:
    smaller = min(len(one), len(other))
    return len(one & other) / smaller if smaller else 0.0


def _shared_columns(
    one: dict[str, frozenset[int]], other: dict[str, frozenset[int]]
) -> tuple[list[tuple[str, str]], int]:
    """Pairs of columns that share values, each column in one pair, and how many values."""
    by_value = defaultdict(list)
    for column, hashes in other.items():
        for each in hashes:
            by_value[each].append(column)
    counts = Counter(
        (column, found)
        for column, hashes in one.items()
        for each in hashes
        for found in by_value.get(each, ())
    )
    pairs, values = [], 0
    left, right = set(one), set(other)
    for (mine, theirs), count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        if mine in left and theirs in right:
            # beyond the smaller of both largest hashes one of the sketches is not complete
            edge = min(_edge(one[mine]), _edge(other[theirs]))
            least = min(sum(h <= edge for h in part) for part in (one[mine], other[theirs]))
            if count >= LEAST_DISTINCT and count >= SHARED * least:
                pairs.append((mine, theirs))
                values += count
                left.discard(mine)
                right.discard(theirs)
    return pairs, values


def _edge(hashes: frozenset[int]) -> int:
    return max(hashes) if len(hashes) == SKETCH else 1 << 64


_PARTS: tuple[Callable[[Profile], frozenset[str]], ...] = (
    attrgetter("qualified"),
    attrgetter("distinctive"),
)


# A database's profile.


def profile_of(
    schema: Schema, db_id: str, values: dict[str, frozenset[int]] | None = None
) -> Profile:
    """The profile of a schema; `values` where it has rows."""
    types: dict[str, str] = {}
    distinctive = set()
    names: dict[tuple[str, str], str] = {}
    prefix = _common_start([fold(table.name) for table in schema.tables], least=3)
    for table in schema.tables:
        own = _without(fold(table.name), prefix)
        columns = {column.name: fold(column.name) for column in table.columns}
        start = _common_start(list(columns.values()), least=2)
        for column in table.columns:
            words = _without(columns[column.name], start)
            bare = "_".join(words)
            name = f"{'_'.join(own)}.{'_'.join(_without(words, own)) or bare}"
            names[table.name, column.name] = name
            types[name] = _affinity(column.type)
            if bare not in GENERIC:
                distinctive.add(bare)
    keys = {
        f"{names.get((key.child, child))}>{names.get((key.parent, parent))}"
        for key in schema.foreign_keys
        for child, parent in zip(key.child_columns, key.parent_columns, strict=False)
    }
    return Profile(
        db_id, frozenset(types), frozenset(distinctive), types, frozenset(keys), values or {}
    )


@lru_cache(100_000)
def fold(name: str) -> tuple[str, ...]:
    """A name's words: case, underscores, plurals and stop words gone."""
    words = _WORDS.findall(unicodedata.normalize("NFKC", name)) or [name]
    folded = tuple(_singular(word.casefold()) for word in words)
    return tuple(word for word in folded if word not in STOP_WORDS) or folded


def _singular(word: str) -> str:
    if len(word) < 3 or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word.removesuffix("s")


def _common_start(names: Sequence[tuple[str, ...]], *, least: int) -> tuple[str, ...]:
    """The one word that all of these begin with, where it says nothing."""
    if len(names) < least or any(len(name) < 2 for name in names):
        return ()
    first = {name[0] for name in names}
    return (first.pop(),) if len(first) == 1 else ()


def _without(words: tuple[str, ...], start: tuple[str, ...]) -> tuple[str, ...]:
    cut = start and words[: len(start)] == start and len(words) > len(start)
    return words[len(start) :] if cut else words


def _affinity(declared: str) -> str:
    """SQLite's affinity of a declared type (sqlite.org/datatype3.html), numeric ones as one."""
    kind = declared.upper()
    for affinity, parts in _AFFINITIES:
        if any(part in kind for part in parts):
            return affinity
    return "numeric"


_AFFINITIES = (
    ("numeric", ("INT", "NUM", "REAL", "FLOA", "DOUB", "BOOL")),
    ("text", ("CHAR", "CLOB", "TEXT", "TIME", "DATE")),
)


def read_values(database: Path, schema: Schema) -> dict[str, frozenset[int]]:
    """The smallest hashes of each text column that is no key; columns of few values left out."""
    keys = {(key.child, name) for key in schema.foreign_keys for name in key.child_columns}
    found = {}
    with closing(open_read_only(database)) as connection:
        for table in schema.tables:
            columns = [
                c.name
                for c in table.columns
                if (table.name, c.name) not in keys and not c.primary_key
            ]
            if not columns:
                continue
            listed = ", ".join(map(quote_name, columns))
            sql = f"SELECT {listed} FROM {quote_name(table.name)} LIMIT {READ_ROWS}"
            texts: list[set[str]] = [set() for _ in columns]
            try:
                for row in iter_rows(connection, sql):
                    for place, cell in enumerate(row):
                        if type(cell) is str and 3 <= len(cell) <= 500:
                            texts[place].add(cell)
            except SQLiteError:
                continue  # a damaged table has no values to compare
            for name, own in zip(columns, texts, strict=True):
                if len(own) >= LEAST_DISTINCT:
                    found[f"{table.name}.{name}"] = frozenset(sorted(map(_hash, own))[:SKETCH])
    return found


def _hash(text: str) -> int:
    plain = " ".join(text.casefold().split()).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(plain, digest_size=8).digest())


class RareIndex:
    """Which of the indexed sets share enough with another, by the rarest items of both.

    Of two sets that share at least `share` of the smaller, the larger holds one of the smaller's
    rarest n - ceil(share * n) + 1 items: looking those up misses no pair.
    """

    def __init__(self, sets: Iterable[frozenset[str]], share: float) -> None:
        held = list(sets)
        self.share = share
        self._frequency = Counter(item for each in held for item in each)
        self._all: defaultdict[str, list[int]] = defaultdict(list)
        self._rare: defaultdict[str, list[int]] = defaultdict(list)
        for place, each in enumerate(held):
            for item in each:
                self._all[item].append(place)
            for item in self._rarest(each):
                self._rare[item].append(place)

    def near(self, items: frozenset[str]) -> set[int]:
        """The places of all sets that share enough with these, and of others."""
        found = {place for item in items for place in self._rare.get(item, ())}
        for item in self._rarest(items):
            found.update(self._all.get(item, ()))
        return found

    def _rarest(self, items: frozenset[str]) -> list[str]:
        count = len(items) - math.ceil(self.share * len(items) - 1e-9) + 1
        return sorted(items, key=lambda item: (self._frequency[item], item))[:count]
