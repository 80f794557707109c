"""Synthetic sources: the published layouts and proportions, gold results that mean something."""

from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import read_source
from envbuild.corpora.synthetic.database import parse_tables
from envbuild.corpora.synthetic.shapes import write_shape
from envbuild.errors import UnknownNameError
from envbuild.materialize.corpus import build_corpus
from envbuild.sql.executor import Session


@pytest.mark.parametrize(
    ("shape", "databases", "rows"), [("sqale", 2, 68), ("synsql", 6, 2), ("bird", 1, 927)]
)
def test_a_shape_reads_back_in_its_proportions(
    tmp_path: Path, shape: str, databases: int, rows: float
) -> None:
    written = write_shape(shape, tmp_path / "source", databases=databases, seed=5)
    source = read_source(tmp_path / "source")
    assert source.kind == shape
    summary = build_corpus(source, tmp_path, workers=1)
    assert (summary.databases, summary.tables) == (databases, written.tables)
    assert (summary.rows, summary.rows_refused, summary.rejects) == (written.rows, 0, {})
    corpus = CorpusFolder(Path(summary.root))
    assert rows / 3 <= median(table.rows for table in corpus.tables()) <= rows * 3
    outcomes: Counter[str] = Counter()
    for question in corpus.questions():
        with Session.open_file(corpus.database_path(question.db_id)) as session:
            result = session.run(question.gold_sql)
        outcomes["rows" if result.rows else result.outcome] += 1
    assert set(outcomes) <= {"rows", "ok"}
    if shape != "synsql":  # two rows a table leave many results empty, as in the real one
        assert outcomes["rows"] >= 0.9 * outcomes.total()


@pytest.mark.parametrize("shape", ["sqale", "synsql", "bird"])
def test_seed_and_number_alone_decide(tmp_path: Path, shape: str) -> None:
    databases = 1 if shape == "bird" else 2
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_shape(shape, tmp_path / name, databases=databases, seed=seed)
    a, b, c = (
        {p.relative_to(tmp_path / n): p.read_bytes() for p in sorted((tmp_path / n).rglob("*.*"))
         if p.is_file()}
        for n in ("a", "b", "c")
    )  # fmt: skip
    assert a == b
    assert a != c


def test_unknown_words_are_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="bird, sqale, synsql"):
        write_shape("oracle", tmp_path, databases=1, seed=0)
    with pytest.raises(ValueError, match="not a table or a column"):
        parse_tables("  stray INTEGER pk")
