"""Buckets of masked gold-SQL length: half-open bands between edges, kept beside the questions
(CONTRACT 2, 4)."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.errors import CorpusFolderError, UnknownNameError, UsageError
from envbuild.io.parquet import GROUP_ROWS, open_parquet, parquet_metadata, write_batches
from envbuild.sql.connect import VERSIONS, open_read_only
from envbuild.sql.mask import MaskMode, mask_column
from envbuild.sql.names import read_identifiers

# Buckets of masked gold-SQL length: half-open bands between edges (CONTRACT 4).


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

    def bounds(self, position: int) -> tuple[int, int | None]:
        """(first length inside, first length outside) of a bucket; None: open."""
        ends = (0, *self.values, None)
        lower, upper = ends[position], ends[position + 1]
        return (lower or 0, upper)

    def render(self) -> str:
        """`149,278`: as --edges takes it."""
        return ",".join(map(str, self.values))


def bucket_of(length: int, edges: Edges | Sequence[int] = PUBLISHED_EDGES) -> str:
    """The name of the bucket that a masked length falls into."""
    return (edges if isinstance(edges, Edges) else Edges(tuple(edges))).bucket(length)


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


# Cuts corpora's questions into buckets, each kept beside its questions (CONTRACT 2, 4).


BUCKETS_FILE = "buckets.parquet"
FORMAT = "envbuild.buckets/1"
_SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("masked_sql", pa.string()),
        ("masked_length", pa.int32()),
        ("bucket", pa.string()),
    ]
)
_WANTED = ["question_id", "db_id", "gold_sql"]


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
    shortest: int = 0
    median: float = 0.0
    longest: int = 0

    @property
    def empty(self) -> tuple[str, ...]:
        """Names of the buckets without a question."""
        return tuple(band.name for band in self.bands if not band.questions)

    def pool_size(self, shares: tuple[float, ...]) -> int:
        """Questions of the largest pool with these shares that the corpus can fill."""
        pairs = zip(self.bands, shares, strict=True)
        sizes = [round(band.questions / share, 6) for band, share in pairs if share]
        return int(min(sizes, default=0))


def cut_corpus(
    corpus: CorpusFolder,
    edges: Edges | int,
    *,
    mask: str = "literals",
    write: bool = True,
    limit: int | None = None,
    on_masked: Callable[[int], None] = lambda questions: None,
) -> CorpusBuckets:
    """The corpus's buckets; with `write`, its buckets.parquet too, one row a question.

    `edges` as a number asks for that many buckets at this corpus's own quantiles. Phrasings share
    their question's gold SQL and count once. `limit` takes the corpus's first questions only, and
    `on_masked` hears of every few. Raises CorpusFolderError where there are no questions.
    """
    mode = MaskMode(mask)

    def masked() -> Iterator[pl.DataFrame]:
        for frame in _masked(corpus, mode, limit):
            yield frame
            on_masked(len(frame))

    if not corpus.num_questions:
        raise CorpusFolderError(f"corpus {corpus.name!r} has no questions to cut into buckets")
    lengths = pl.Series(dtype=pl.Int32)
    if isinstance(edges, int) or not write:
        lengths = pl.concat([frame.get_column("masked_length") for frame in masked()])
    if isinstance(edges, int):
        edges = suggest_edges(lengths.to_list(), edges)
    if write:
        lengths = _write(corpus, edges, mode, masked())
    return summarize(corpus.name, bucket_column(lengths, edges), lengths, edges=edges, mask=mode)


def _write(
    corpus: CorpusFolder, edges: Edges, mode: MaskMode, masked: Iterable[pl.DataFrame]
) -> pl.Series:
    """Writes buckets.parquet as the questions are masked; every masked length."""
    lengths: list[pl.Series] = []

    def tables() -> Iterator[pa.Table]:
        for frame in _regrouped(masked):
            lengths.append(frame.get_column("masked_length"))
            cut = frame.with_columns(bucket_column(lengths[-1], edges))
            yield cut.select(_SCHEMA.names).to_arrow().cast(_SCHEMA)

    write_batches(
        corpus.root / BUCKETS_FILE,
        tables(),
        _SCHEMA,
        metadata={"format": FORMAT, **VERSIONS, "edges": edges.render(), "mask": mode.value},
    )
    return pl.concat(lengths)


def bucket_column(lengths: pl.Series, edges: Edges) -> pl.Series:
    """The bucket of each masked length, for a whole column."""
    places = pl.Series(edges.values).search_sorted(lengths, side="right")
    return pl.Series("bucket", edges.names).gather(places)


def summarize(
    corpus: str, buckets: pl.Series, lengths: pl.Series, *, edges: Edges, mask: str
) -> CorpusBuckets:
    """Counts and shares of one corpus, or of several taken together."""
    total = len(buckets)
    counts = dict(buckets.value_counts().iter_rows())
    bands = tuple(
        Band(
            name=name,
            lower=edges.bounds(position)[0],
            upper=edges.bounds(position)[1],
            questions=counts.get(name, 0),
            share=counts.get(name, 0) / total if total else 0.0,
        )
        for position, name in enumerate(edges.names)
    )
    return CorpusBuckets(
        corpus=corpus,
        edges=edges.values,
        mask=str(mask),
        questions=total,
        bands=bands,
        shortest=_number(lengths.min()),
        median=float(_number(lengths.median())),
        longest=_number(lengths.max()),
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


def names_of(corpus: CorpusFolder, db_ids: list[str]) -> Callable[[int], frozenset[str] | None]:
    """`row -> identifiers of that row's database`, for `mask_column`; None where it is missing."""

    def of_row(row: int) -> frozenset[str] | None:
        try:
            return _identifiers(corpus.database_path(db_ids[row]))
        except CorpusFolderError:  # a question of a database that the corpus lacks
            return None

    return of_row


@lru_cache(maxsize=256)
def _identifiers(path: Path) -> frozenset[str] | None:
    if not path.is_file():
        return None
    connection = open_read_only(path)
    try:
        return read_identifiers(connection)
    finally:
        connection.close()


def _masked(corpus: CorpusFolder, mode: MaskMode, limit: int | None) -> Iterator[pl.DataFrame]:
    """question_id, masked_sql and masked_length, each question once, in the corpus's order."""
    file = open_parquet(corpus.root / "questions.parquet")
    ids: Any = pl.from_arrow(file.read(columns=["question_id"]))
    first = ids.get_column("question_id").is_first_distinct()
    del ids
    row = taken = 0
    for batch in file.iter_batches(columns=_WANTED, batch_size=GROUP_ROWS):
        questions: Any = pl.from_arrow(batch)
        fresh = questions.filter(first.slice(row, len(questions)))
        row += len(questions)
        if limit is not None:
            fresh = fresh.head(limit - taken)
        taken += len(fresh)
        masked = mask_column(
            fresh.get_column("gold_sql"),
            identifiers=names_of(corpus, fresh.get_column("db_id").to_list()),
            mode=mode,
        )
        yield pl.concat([fresh.select("question_id"), masked.drop("literals")], how="horizontal")
        if taken == limit:
            return


def _regrouped(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same rows, as many in each frame as a row group holds; the last may have fewer."""
    held = pl.DataFrame()
    for frame in frames:
        held = pl.concat([held, frame]) if len(held) else frame
        while len(held) >= GROUP_ROWS:
            yield held[:GROUP_ROWS]
            held = held[GROUP_ROWS:]
    if len(held):
        yield held


def _number(value: Any) -> int:
    return value or 0


class BucketReport(msgspec.Struct, frozen=True, kw_only=True):
    """The buckets of each corpus, or the edges suggested for each."""

    corpora: tuple[CorpusBuckets, ...] = ()
    suggested: tuple[CorpusBuckets, ...] = ()
    """As cut at the suggested edges; nothing is written for these."""
    shares: tuple[float, ...] | None = None

    def document(self) -> dict[str, Any]:
        """The report as plain values, for --json."""
        return {
            "corpora": [_plain(found, self.shares) for found in self.corpora],
            "suggested": [_plain(found, None) for found in self.suggested],
            "shares": self.shares,
        }


def bucket_corpora(
    path: Path,
    *,
    edges: str | None = None,
    mask: str = "literals",
    shares: str | None = None,
    suggest: int | None = None,
    limit: int | None = None,
    on_masked: Callable[[int], None] = lambda questions: None,
) -> BucketReport:
    """Cuts every corpus at `path`, and writes its buckets.parquet unless only edges are suggested.

    `limit` takes each corpus's first questions only; then nothing is written either.
    Raises UsageError for edges or shares that cannot be, CorpusFolderError for a folder that is no
    corpus or has no questions.
    """
    if mask not in list(MaskMode):
        raise UnknownNameError("mask", mask, MaskMode)
    cut = parse_edges(edges) if edges is not None else Edges(PUBLISHED_EDGES)
    parsed = parse_shares(shares, len(cut.names)) if shares is not None else None
    if suggest is not None and suggest < 2:
        raise UsageError(f"--suggest takes the number of buckets, at least 2; got {suggest}")
    if limit == 0:
        raise UsageError("--limit 0 leaves no question to cut into buckets")

    def cut_one(corpus: CorpusFolder, at: Edges | int, *, write: bool) -> CorpusBuckets:
        return cut_corpus(corpus, at, mask=mask, write=write, limit=limit, on_masked=on_masked)

    corpora = open_corpora(path)
    suggested = (
        ()
        if suggest is None
        else tuple(cut_one(corpus, suggest, write=False) for corpus in corpora)
    )
    if suggest is not None and edges is None:
        return BucketReport(suggested=suggested)
    return BucketReport(
        corpora=tuple(cut_one(corpus, cut, write=limit is None) for corpus in corpora),
        suggested=suggested,
        shares=parsed,
    )


def _plain(found: CorpusBuckets, shares: tuple[float, ...] | None) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(found)
    document["empty"] = list(found.empty)
    if shares:
        document["pool_size"] = found.pool_size(shares)
    return document
