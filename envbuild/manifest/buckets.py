"""Buckets of masked gold-SQL length: half-open bands between edges, kept beside the questions
(CONTRACT 2, 4)."""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import islice, pairwise
from statistics import median
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from envbuild.corpora.folder import CorpusFolder
from envbuild.errors import CorpusFolderError, UnknownNameError, UsageError
from envbuild.io.packs import local_file
from envbuild.io.parquet import (
    arrow_schema,
    iter_records,
    open_parquet,
    parquet_metadata,
    write_records,
)
from envbuild.sql.connect import VERSIONS, open_read_only
from envbuild.sql.mask import MaskMode, mask_sql
from envbuild.sql.names import read_identifiers

PUBLISHED_EDGES = (149, 278)
"""`short < 149 <= medium < 278 <= long`, in characters of masked SQL."""
NAMES_OF_TWO_EDGES = ("short", "medium", "long")


class Edges(msgspec.Struct, frozen=True):
    """Increasing lengths at which the next bucket begins; k edges make k + 1 buckets."""

    values: tuple[int, ...] = PUBLISHED_EDGES

    @property
    def names(self) -> tuple[str, ...]:
        """The buckets' names, shortest first."""
        if len(self.values) == 2:
            return NAMES_OF_TWO_EDGES
        return tuple(f"b{position}" for position in range(len(self.values) + 1))

    def bucket(self, length: int) -> str:
        """The bucket that a length falls into."""
        return self.names[bisect_right(self.values, length)]

    def render(self) -> str:
        """`149,278`: as --edges takes it."""
        return ",".join(map(str, self.values))


def parse_edges(text: str) -> Edges:
    """`149,278` as Edges. Raises UsageError unless they are increasing positive whole numbers."""
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or values[0] <= 0 or any(a >= b for a, b in pairwise(values)):
        raise UsageError(
            f"--edges takes increasing lengths in characters, such as 149,278; got {text!r}"
        )
    return Edges(values)


def parse_shares(text: str, buckets: int) -> tuple[float, ...]:
    """`0.20,0.25,0.55` as one share a bucket. Raises UsageError unless they add up to 1."""
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    # written so that NaN, which compares with nothing, is refused too
    if len(shares) != buckets or min(shares) < 0 or not abs(sum(shares) - 1) <= 1e-6:
        raise UsageError(
            f"--shares takes {buckets} numbers that add up to 1, one a bucket, such as "
            f"0.20,0.25,0.55 for three; got {text!r}"
        )
    return shares


def suggest_edges(lengths: Iterable[int], buckets: int) -> Edges:
    """The `buckets - 1` edges that cut these lengths into buckets as even as they allow.

    Each edge is a length that occurs, the one whose share below comes nearest to its quantile.
    Raises UsageError for fewer than two buckets and for fewer different lengths than buckets.
    """
    if buckets < 2:
        raise UsageError(f"--suggest takes the number of buckets, at least 2; got {buckets}")
    below: dict[int, int] = {}
    counted = sorted(lengths)
    for position, length in enumerate(counted):
        below.setdefault(length, position)
    candidates = list(below)[1:]
    if len(candidates) < buckets - 1:
        raise UsageError(
            f"{len(below)} different masked lengths cannot be cut into {buckets} buckets"
        )
    edges: list[int] = []
    first = 0
    for cut in range(1, buckets):
        last = len(candidates) - (buckets - 1 - cut)
        wanted = cut * len(counted) / buckets
        place = min(range(first, last), key=lambda at: abs(below[candidates[at]] - wanted))
        edges.append(candidates[place])
        first = place + 1
    return Edges(tuple(edges))


BUCKETS_FILE = "buckets.parquet"
FORMAT = "envbuild.buckets/1"


class BucketRow(msgspec.Struct, frozen=True, kw_only=True):
    """One question's bucket: a row of buckets.parquet."""

    question_id: str
    masked_sql: str
    masked_length: int
    bucket: str


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket of one corpus."""

    name: str
    lower: int
    """First masked length inside, in characters."""
    upper: int | None
    """First length outside; None leaves the band open."""
    questions: int
    share: float
    """Of the corpus's questions, 0 to 1."""


class CorpusBuckets(msgspec.Struct, frozen=True, kw_only=True):
    """How a corpus's questions fall into buckets."""

    corpus: str
    edges: tuple[int, ...]
    mask: str
    questions: int
    bands: tuple[Band, ...]
    shortest: int
    median: float
    longest: int
    empty: tuple[str, ...]
    """Names of the buckets without a question."""
    pool_size: int | msgspec.UnsetType = msgspec.UNSET
    """Questions of the largest pool with the shares asked for that the corpus can fill."""


class BucketReport(msgspec.Struct, frozen=True, kw_only=True):
    """The buckets of each corpus, or the edges suggested for each."""

    corpora: tuple[CorpusBuckets, ...] = ()
    suggested: tuple[CorpusBuckets, ...] = ()
    """As cut at the suggested edges; nothing is written for these."""
    shares: tuple[float, ...] | None = None


def bucket_corpora(
    corpora: Sequence[CorpusFolder],
    *,
    edges: str | None = None,
    mask: str = "literals",
    shares: str | None = None,
    suggest: int | None = None,
    limit: int | None = None,
    on_masked: Callable[[int], None] = lambda masked: None,
) -> BucketReport:
    """Cuts every corpus, and writes its buckets.parquet unless only edges are suggested.

    `limit` takes each corpus's first questions only; then nothing is written either.
    Raises UsageError for edges or shares that cannot be, CorpusFolderError for a corpus
    without questions.
    """
    if mask not in list(MaskMode):
        raise UnknownNameError("mask", mask, MaskMode)
    given = parse_edges(edges) if edges is not None else Edges()
    parsed = parse_shares(shares, len(given.names)) if shares is not None else None
    if suggest is not None and suggest < 2:
        raise UsageError(f"--suggest takes the number of buckets, at least 2; got {suggest}")
    if limit == 0:
        raise UsageError("--limit 0 leaves no question to cut into buckets")
    kept: dict[str, Any] = {"mask": mask, "limit": limit, "on_masked": on_masked}
    suggested = [cut_corpus(c, suggest, write=False, **kept) for c in corpora if suggest]
    if suggest and edges is None:
        return BucketReport(suggested=tuple(suggested))
    cut = [cut_corpus(c, given, write=limit is None, shares=parsed, **kept) for c in corpora]
    return BucketReport(corpora=tuple(cut), suggested=tuple(suggested), shares=parsed)


def cut_corpus(
    corpus: CorpusFolder,
    edges: Edges | int,
    *,
    mask: str = "literals",
    write: bool = True,
    shares: tuple[float, ...] | None = None,
    limit: int | None = None,
    on_masked: Callable[[int], None] = lambda masked: None,
) -> CorpusBuckets:
    """The corpus's buckets; with `write`, its buckets.parquet too, one row a question.

    `edges` as a number asks for that many buckets at this corpus's own quantiles; such a cut is
    never written. Phrasings share their question's gold SQL and count once. `limit` takes the
    corpus's first questions only, and `on_masked` hears of each. Raises CorpusFolderError where
    there are no questions.
    """
    if not corpus.num_questions:
        raise CorpusFolderError(f"corpus {corpus.name!r} has no questions to cut into buckets")
    lengths: Counter[int] = Counter()

    def rows() -> Iterator[BucketRow]:
        for question_id, text in _masked_questions(corpus, mask, limit):
            lengths[len(text)] += 1
            on_masked(1)
            bucket = "" if isinstance(edges, int) else edges.bucket(len(text))
            yield BucketRow(
                question_id=question_id, masked_sql=text, masked_length=len(text), bucket=bucket
            )

    if write and isinstance(edges, Edges):
        schema = arrow_schema(BucketRow, masked_length=pa.int32())
        metadata = {"format": FORMAT, **VERSIONS, "edges": edges.render(), "mask": str(mask)}
        write_records(corpus.root / BUCKETS_FILE, rows(), schema, metadata=metadata)
    else:
        deque(rows(), maxlen=0)
    cut = suggest_edges(lengths.elements(), edges) if isinstance(edges, int) else edges
    total, counts = lengths.total(), Counter[str]()
    for length, questions in lengths.items():
        counts[cut.bucket(length)] += questions
    spans = zip(cut.names, (0, *cut.values), (*cut.values, None), strict=True)
    shared = zip(cut.names, shares, strict=True) if shares else ()
    sizes = [counts[name] / share for name, share in shared if share]
    return CorpusBuckets(
        corpus=corpus.name,
        edges=cut.values,
        mask=str(mask),
        questions=total,
        bands=tuple(
            Band(name=n, lower=lower, upper=upper, questions=counts[n], share=counts[n] / total)
            for n, lower, upper in spans
        ),
        shortest=min(lengths),
        median=float(median(lengths.elements())),
        longest=max(lengths),
        empty=tuple(name for name in cut.names if not counts[name]),
        pool_size=int(round(min(sizes), 6)) if sizes else msgspec.UNSET,
    )


def read_edges(corpus: CorpusFolder) -> tuple[Edges, str] | None:
    """The edges and the mask of the corpus's buckets.parquet; None where it has none."""
    path = corpus.root / BUCKETS_FILE
    if not path.is_file():
        return None
    found = parquet_metadata(path)
    try:
        return Edges(tuple(int(part) for part in found["edges"].split(","))), found["mask"]
    except (KeyError, ValueError):
        raise CorpusFolderError(
            f"{path} names no edges: run `envbuild buckets` on this corpus again"
        ) from None


class _GoldText(msgspec.Struct, frozen=True, kw_only=True):
    """What a question's bucket depends on."""

    question_id: str
    db_id: str
    gold_sql: str


def _masked_questions(
    corpus: CorpusFolder, mask: str, limit: int | None
) -> Iterator[tuple[str, str]]:
    """question_id and masked gold SQL, each question once, in the corpus's order."""
    file = corpus.root / "questions.parquet"
    ids = pl.Series(open_parquet(file).read(columns=["question_id"]).column(0))
    questions = zip(iter_records(file, _GoldText), ids.is_first_distinct(), strict=True)
    fresh = (question for question, is_first in questions if is_first)
    for question in islice(fresh, limit):
        names = _identifiers(corpus, question.db_id) if '"' in question.gold_sql else None
        masked = mask_sql(question.gold_sql, identifiers=names, mode=mask)
        yield question.question_id, masked.text


@lru_cache(maxsize=256)
def _identifiers(corpus: CorpusFolder, db_id: str) -> frozenset[str] | None:
    """The names in a question's database; None where the corpus lacks it."""
    try:
        path = corpus.database_path(db_id)
    except CorpusFolderError:
        return None
    if not local_file(path).is_file():
        return None
    with closing(open_read_only(path)) as connection:
        return read_identifiers(connection)
