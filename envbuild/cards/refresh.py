"""A data card with its generated blocks made anew; the prose around them stays as it is.

A block stands between `<!-- envbuild:begin NAME -->` and `<!-- envbuild:end -->`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.corpora.wording import one_spelling
from envbuild.errors import ConfigurationError, CorpusFolderError, UnknownNameError
from envbuild.io.parquet import arrow_schema, iter_records, open_parquet, parquet_metadata
from envbuild.io.sorting import count_values
from envbuild.manifest.buckets import Edges, cut_corpus, read_edges
from envbuild.preflight.row_counts import measure_corpus
from envbuild.preflight.run import REPORT_FILE
from envbuild.records.corpus import DatabaseRow, Question, Reject, TableRow
from envbuild.records.leaks import LEAKS_FILE, SKELETON, Leak
from envbuild.records.preflight import PUBLISHED_MEDIANS, CorpusReport, Finding, Thresholds
from envbuild.records.signal import SignalScore

_BLOCK = re.compile(
    r"(<!-- envbuild:begin ([^\s>]+) -->\n)(.*?)(<!-- envbuild:end(?: [^\s>]+)? -->)", re.DOTALL
)


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """A card made anew."""

    text: str
    stale: tuple[str, ...]
    """Blocks whose text was another one."""
    fresh: tuple[str, ...]
    unchecked: tuple[str, ...]
    """Blocks that need a corpus, where none was given; left as they are."""


def refresh_card(text: str, folder: CorpusFolder | None) -> Refreshed:
    """The card with every block rendered, from `folder` where the block is about a corpus.

    Raises UnknownNameError for a block nobody renders, ConfigurationError for one that never ends
    or a card without front matter, CorpusFolderError where the corpus lacks what a block shows.
    """
    if not text.startswith("---\n") or "\n---\n" not in text[4:]:
        raise ConfigurationError("the card has no YAML front matter between two lines of ---")
    if len(_BLOCK.findall(text)) != text.count("<!-- envbuild:begin "):
        raise ConfigurationError("a block of the card begins and does not end")
    stale: list[str] = []
    fresh: list[str] = []
    unchecked: list[str] = []

    def render(block: re.Match[str]) -> str:
        begin, name, before, end = block.groups()
        if name not in BLOCKS:
            raise UnknownNameError("card block", name, BLOCKS)
        if name not in GENERAL_BLOCKS and folder is None:
            unchecked.append(name)
            return block[0]
        body = BLOCKS[name](folder).rstrip("\n") + "\n"
        (fresh if body == before else stale).append(name)
        return begin + body + end

    text = _BLOCK.sub(render, text)
    return Refreshed(text=text, stale=tuple(stale), fresh=tuple(fresh), unchecked=tuple(unchecked))


def card_corpus(text: str, card: Path, named: Path | None) -> CorpusFolder | None:
    """The corpus a card is about: `named`, else the front matter's `envbuild_corpus`, else none.

    The front matter's path is relative to the card. Raises CorpusFolderError where there is no
    corpus, ConfigurationError where there are several, or where the front matter's
    `envbuild_reader` is not the one that the corpus was read by.
    """
    front = text[: text.find("\n---\n", 4) + 1]
    keys = dict(re.findall(r"^envbuild_(\w+):\s*(\S.*?)\s*$", front, re.MULTILINE))
    stated = {key: value.strip("\"'") for key, value in keys.items()}
    path = named or (card.parent / stated["corpus"] if "corpus" in stated else None)
    if path is None:
        return None
    folders = open_corpora(path)
    if len(folders) > 1:
        names = ", ".join(folder.name for folder in folders)
        raise ConfigurationError(f"{path} holds several corpora ({names}); name one of them")
    reader = folders[0].index.get("reader")
    if reader and stated.get("reader", reader) != reader:
        raise ConfigurationError(
            f"the card is about a corpus read as {stated['reader']}, and {path} was read as "
            f"{reader}; if that is meant, change envbuild_reader in its front matter"
        )
    return folders[0]


class StoredReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of preflight.json that cards show."""

    corpora: tuple[CorpusReport, ...]


def files_block(_: CorpusFolder | None) -> str:
    """The files of a corpus folder and their columns."""
    files: dict[str, type[msgspec.Struct]] = {
        "databases": DatabaseRow,
        "tables": TableRow,
        "questions": Question,
        "rejects": Reject,
        "findings": Finding,
        "leaks": Leak,
        "signal": SignalScore,
    }
    rows = [("`databases/<db_id>/<db_id>.sqlite`", "one SQLite database each")]
    for name, record in files.items():
        columns = (f"{f.name} ({_kind(str(f.type))})" for f in arrow_schema(record))
        rows.append((f"`{name}.parquet`", ", ".join(columns)))
    rows.append(("`buckets.parquet`", "question_id, masked_sql, masked_length, bucket"))
    return markdown_table(("file", "columns"), rows)


def published_block(_: CorpusFolder | None) -> str:
    """The published medians of rows per table."""
    rows = [(median.corpus, median.render()) for median in PUBLISHED_MEDIANS]
    return markdown_table(("corpus", "published median of rows per table"), rows)


def counts_block(corpus: CorpusFolder) -> str:
    """How much the corpus holds, and how much of its source was refused."""
    databases = corpus.databases()
    totals = {
        name: sum(getattr(row, name) for row in databases)
        for name in ("tables", "columns", "rows", "rows_refused", "foreign_keys", "fk_violations")
    }
    totals["foreign-key violations"] = totals.pop("fk_violations")
    file = corpus.root / "questions.parquet"
    questions = pl.DataFrame(open_parquet(file).read(columns=["db_id", "question_id"]))
    rows = [
        ("databases", f"{len(databases):,}"),
        *((name.replace("_", " "), f"{total:,}") for name, total in totals.items()),
        ("questions", f"{questions.n_unique():,}"),
        ("phrasings", f"{corpus.num_questions:,}"),
    ]
    said = count_values(file, "difficulty")
    shown = one_spelling(said.elements())
    difficulties: Counter[str] = Counter()
    for difficulty in filter(str.strip, said):
        difficulties[shown[difficulty]] += said[difficulty]
    rows += [(f"difficulty {name}", f"{count:,}") for name, count in sorted(difficulties.items())]
    return markdown_table(("", "count"), rows)


def rows_block(corpus: CorpusFolder) -> str:
    """Rows per table."""
    s = measure_corpus(corpus, Thresholds()).statistics
    counts = (f"{s.databases:,}", f"{s.tables:,}", f"{s.rows:,}")
    quantiles = (f"{s.median:g}", f"{s.p10:.4g}", f"{s.p90:.4g}", f"{s.mean:,.1f}")
    shares = (f"{s.share_empty:.1%}", f"{s.share_at_most_2:.1%}")
    headers = ("databases", "tables", "rows", "median", "p10", "p90", "mean", "empty")
    return markdown_table((*headers, "at most 2"), [(*counts, *quantiles, *shares)])


def buckets_block(corpus: CorpusFolder) -> str:
    """The corpus's masked-length buckets and their shares."""
    edges, mask = read_edges(corpus) or (Edges(), "literals")
    found = cut_corpus(corpus, edges, mask=mask, write=False)
    rows = [
        (band.name, _span(band.lower, band.upper), f"{band.questions:,}", f"{band.share:.1%}")
        for band in found.bands
    ]
    table = markdown_table(("bucket", "masked length", "questions", "share"), rows)
    return f"{table}\nCharacters of the gold SQL, {mask} masked; {found.questions:,} questions.\n"


def golds_block(corpus: CorpusFolder) -> str:
    """What preflight found when it ran the gold queries."""
    report = _stored_report(corpus)
    g = report.gold
    rows = [
        ("distinct gold queries", f"{g.golds:,}"),
        ("fail", f"{g.error + g.denied + g.truncated:,}"),
        ("run out of time", f"{g.timeout:,}"),
        ("return nothing", f"{g.empty:,}"),
        ("return one trivial cell", f"{g.trivial:,}"),
        ("are not determined by the data", f"{g.undetermined:,}"),
        ("sound", f"{g.sound:,}"),
    ]
    return markdown_table(("gold queries", "count"), rows)


def findings_block(corpus: CorpusFolder) -> str:
    """Preflight's findings by code."""
    report = _stored_report(corpus)
    rows = [
        (f.severity.value, f"`{f.code}`", f.meaning, f"{f.findings:,}", f"{f.databases:,}")
        for f in report.findings
    ]
    if not rows:
        return "Preflight found nothing.\n"
    return markdown_table(("severity", "code", "meaning", "findings", "databases"), rows)


def signal_block(corpus: CorpusFolder) -> str:
    """How many wrong queries near a gold the databases tell from it."""
    signal = _stored_report(corpus).signal
    if signal is None or signal.mean_low is None or signal.mean_high is None:
        return "Not measured.\n"
    rows = [
        ("golds scored", f"{signal.scored:,} of {signal.sampled:,} sampled"),
        ("mean, low to high", f"{signal.mean_low:.2f} to {signal.mean_high:.2f}"),
        ("median", f"{signal.median:.2f}"),
        ("share below 0.5", f"{signal.share_below_half or 0:.1%}"),
        ("verdict", signal.verdict),
    ]
    return markdown_table(("signal", ""), rows)


def leaks_block(corpus: CorpusFolder) -> str:
    """What the corpus shares with benchmarks."""
    file = corpus.root / LEAKS_FILE
    if not file.is_file():
        return "Not searched for leaks.\n"
    compared: dict[str, list[int]] = msgspec.json.decode(parquet_metadata(file)["benchmarks"])
    leaks = [leak for leak in iter_records(file, Leak) if leak.kind != SKELETON]
    rows = []
    for benchmark, (databases, questions) in compared.items():
        own = [leak for leak in leaks if leak.benchmark == benchmark]
        pairs = {
            kind: {(x.benchmark_db_id, x.benchmark_question_id) for x in own if x.kind == kind}
            for kind in ("schema", "question", "sql")
        }
        counts = (f"{len(pairs[kind]):,}" for kind in pairs)
        rows.append((benchmark, f"{databases:,}", f"{questions:,}", *counts))
    headers = (
        "benchmark",
        "databases",
        "questions",
        "databases here",
        "asked here",
        "queries here",
    )
    return markdown_table(headers, rows)


def made_block(corpus: CorpusFolder) -> str:
    """What made the corpus folder, and from which bytes."""
    index = corpus.index
    lines = [f"- envbuild {index.get('envbuild')}, SQLite {index.get('sqlite')}"]
    if index.get("revision"):
        lines.append(f"- source revision `{index['revision']}`")
    lines.append(f"- licence of the data: {corpus.licence}")
    for name, digest in sorted(dict(index.get("source", {})).items()):
        lines.append(f"- `{name}` sha256 `{digest}`")
    return "\n".join(lines) + "\n"


GENERAL_BLOCKS: dict[str, Callable[[Any], str]] = {
    "files": files_block,
    "published": published_block,
}
"""Block name -> what renders it, for any corpus."""
BLOCKS: dict[str, Callable[[Any], str]] = {
    **GENERAL_BLOCKS,
    "counts": counts_block,
    "rows-per-table": rows_block,
    "buckets": buckets_block,
    "gold-queries": golds_block,
    "findings": findings_block,
    "signal": signal_block,
    "leaks": leaks_block,
    "made": made_block,
}
"""The others are rendered from a corpus."""


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A GitHub table; bars in cells are escaped."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def _kind(arrow_type: str) -> str:
    return arrow_type.replace("list<item: ", "list of ").rstrip(">")


def _stored_report(folder: CorpusFolder) -> CorpusReport:
    file = folder.root / REPORT_FILE
    try:
        report = msgspec.json.decode(file.read_bytes(), type=StoredReport)
    except FileNotFoundError:
        raise CorpusFolderError(f"{file} is not there: run envbuild preflight first") from None
    except msgspec.MsgspecError as e:
        raise CorpusFolderError(f"{file} is no preflight report of this version: {e}") from e
    return report.corpora[0]


def _span(lower: int, upper: int | None) -> str:
    return f"{lower} and more" if upper is None else f"{lower} to {upper - 1}"
