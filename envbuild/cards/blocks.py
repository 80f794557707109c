"""The generated blocks of data cards: each a table or a few lines, from records or a corpus."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from envbuild.buckets.cut import cut_corpus, read_edges
from envbuild.buckets.edges import Edges
from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.wording import one_spelling
from envbuild.errors import CorpusFolderError
from envbuild.io.parquet import arrow_schema
from envbuild.io.sorting import count_values, iter_grouped
from envbuild.preflight.measure import measure_corpus
from envbuild.preflight.write import REPORT_FILE
from envbuild.records.corpus import DatabaseRow, Question, Reject, TableRow
from envbuild.records.preflight import PUBLISHED_MEDIANS, CorpusReport, Finding, Thresholds
from envbuild.records.signal import SignalScore


class AskedId(msgspec.Struct, frozen=True, kw_only=True):
    """The column of questions.parquet that tells one question from another."""

    question_id: str


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """How one block is made."""

    render: Callable[[CorpusFolder | None], str]
    needs_corpus: bool = True


class StoredReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of preflight.json that cards show."""

    corpora: tuple[CorpusReport, ...]


def files_block(folder: CorpusFolder | None) -> str:
    """The files of a corpus folder and their columns."""
    del folder  # the same for every corpus
    files: tuple[tuple[str, type[msgspec.Struct]], ...] = (
        ("databases.parquet", DatabaseRow),
        ("tables.parquet", TableRow),
        ("questions.parquet", Question),
        ("rejects.parquet", Reject),
        ("findings.parquet", Finding),
        ("signal.parquet", SignalScore),
    )
    rows = [("`databases/<db_id>/<db_id>.sqlite`", "one SQLite database each")]
    for name, record in files:
        columns = (f"{f.name} ({_kind(str(f.type))})" for f in arrow_schema(record))
        rows.append((f"`{name}`", ", ".join(columns)))
    rows.append(("`buckets.parquet`", "question_id, masked_sql, masked_length, bucket"))
    return markdown_table(("file", "columns"), rows)


def published_block(folder: CorpusFolder | None) -> str:
    """The published medians of rows per table."""
    del folder
    rows = [(median.corpus, median.render()) for median in PUBLISHED_MEDIANS]
    return markdown_table(("corpus", "published median of rows per table"), rows)


def counts_block(folder: CorpusFolder | None) -> str:
    """How much the corpus holds, and how much of its source was refused."""
    corpus = _given(folder)
    databases = corpus.databases()

    def total(field: str) -> str:
        return f"{sum(getattr(row, field) for row in databases):,}"

    rows = [
        ("databases", f"{len(databases):,}"),
        ("tables", total("tables")),
        ("columns", total("columns")),
        ("rows", total("rows")),
        ("rows refused", total("rows_refused")),
        ("foreign keys", total("foreign_keys")),
        ("foreign-key violations", total("fk_violations")),
        ("questions", f"{_distinct_questions(corpus):,}"),
        ("phrasings", f"{corpus.num_questions:,}"),
    ]
    said = _spread(corpus, "difficulty")
    shown = one_spelling(said.elements())
    difficulties: Counter[str] = Counter()
    for difficulty, count in said.items():
        if difficulty.strip():
            difficulties[shown[difficulty]] += count
    rows += [(f"difficulty {name}", f"{count:,}") for name, count in sorted(difficulties.items())]
    return markdown_table(("", "count"), rows)


def _distinct_questions(corpus: CorpusFolder) -> int:
    """Questions, phrasings of one counted once."""
    file = corpus.root / "questions.parquet"
    found = iter_grouped(file, AskedId, by="db_id", keys=_spread(corpus, "db_id"))
    return sum(len({asked.question_id for asked in own}) for _, own in found)


def _spread(corpus: CorpusFolder, column: str) -> Counter[str]:
    """How many questions have each value of a column."""
    if not corpus.catalogued:
        return Counter()
    return count_values(corpus.root / "questions.parquet", column)


def rows_block(folder: CorpusFolder | None) -> str:
    """Rows per table."""
    s = measure_corpus(_given(folder), Thresholds()).statistics
    counts = (f"{s.databases:,}", f"{s.tables:,}", f"{s.rows:,}")
    quantiles = (f"{s.median:g}", f"{s.p10:.4g}", f"{s.p90:.4g}", f"{s.mean:,.1f}")
    shares = (f"{s.share_empty:.1%}", f"{s.share_at_most_2:.1%}")
    headers = ("databases", "tables", "rows", "median", "p10", "p90", "mean", "empty")
    return markdown_table((*headers, "at most 2"), [(*counts, *quantiles, *shares)])


def buckets_block(folder: CorpusFolder | None) -> str:
    """The corpus's masked-length buckets and their shares."""
    corpus = _given(folder)
    edges, mask = read_edges(corpus) or (Edges(), "literals")
    found = cut_corpus(corpus, edges, mask=mask, write=False)
    rows = [
        (band.name, _span(band.lower, band.upper), f"{band.questions:,}", f"{band.share:.1%}")
        for band in found.bands
    ]
    table = markdown_table(("bucket", "masked length", "questions", "share"), rows)
    return f"{table}\nCharacters of the gold SQL, {mask} masked; {found.questions:,} questions.\n"


def golds_block(folder: CorpusFolder | None) -> str:
    """What preflight found when it ran the gold queries."""
    report = _stored_report(_given(folder))
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


def findings_block(folder: CorpusFolder | None) -> str:
    """Preflight's findings by code."""
    report = _stored_report(_given(folder))
    rows = [
        (f.severity.value, f"`{f.code}`", f.meaning, f"{f.findings:,}", f"{f.databases:,}")
        for f in report.findings
    ]
    if not rows:
        return "Preflight found nothing.\n"
    return markdown_table(("severity", "code", "meaning", "findings", "databases"), rows)


def signal_block(folder: CorpusFolder | None) -> str:
    """How many wrong queries near a gold the databases tell from it."""
    signal = _stored_report(_given(folder)).signal
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


def made_block(folder: CorpusFolder | None) -> str:
    """What made the corpus folder, and from which bytes."""
    index = _given(folder).index
    lines = [f"- envbuild {index.get('envbuild')}, SQLite {index.get('sqlite')}"]
    if index.get("revision"):
        lines.append(f"- source revision `{index['revision']}`")
    for name, digest in sorted(dict(index.get("source", {})).items()):
        lines.append(f"- `{name}` sha256 `{digest}`")
    return "\n".join(lines) + "\n"


BLOCKS: dict[str, Block] = {
    "files": Block(render=files_block, needs_corpus=False),
    "published": Block(render=published_block, needs_corpus=False),
    "counts": Block(render=counts_block),
    "rows-per-table": Block(render=rows_block),
    "buckets": Block(render=buckets_block),
    "gold-queries": Block(render=golds_block),
    "findings": Block(render=findings_block),
    "signal": Block(render=signal_block),
    "made": Block(render=made_block),
}
"""Block name -> how it is rendered."""


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A GitHub table; bars in cells are escaped."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def _kind(arrow_type: str) -> str:
    return arrow_type.replace("list<item: ", "list of ").rstrip(">")


def _given(folder: CorpusFolder | None) -> CorpusFolder:
    if folder is None or not folder.catalogued:
        raise CorpusFolderError("this block needs a corpus folder that materialize has made")
    return folder


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
