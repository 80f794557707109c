"""Synthetic sources and the demo: the published layouts and proportions, flaws on purpose alone."""

from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.corpora.source import READERS, read_source
from envbuild.corpora.synthetic import parse_tables, write_demo_sources, write_shape
from envbuild.errors import UnknownNameError
from envbuild.materialize.corpus import build_corpus
from envbuild.sql.execution.session import Session
from envbuild.sql.mask import mask_sql


@pytest.mark.parametrize(
    ("shape", "databases", "rows"), [("sqale", 2, 68), ("synsql", 6, 2), ("bird", 3, 927)]
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


def content_of(folder: Path) -> dict[Path, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder): file.read_bytes() for file in files}


def test_seed_and_number_alone_decide(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        for shape in ("sqale", "synsql", "bird"):
            write_shape(shape, tmp_path / name / shape, databases=1, seed=seed)
        write_demo_sources(tmp_path / name / "demo")
    a, b, c = (content_of(tmp_path / name) for name in ("a", "b", "c"))
    assert a == b
    assert a != c


def test_unknown_words_are_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="bird, sqale, synsql"):
        write_shape("oracle", tmp_path, databases=1, seed=0)
    with pytest.raises(ValueError, match="not a table or a column"):
        parse_tables("  stray INTEGER pk")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CorpusFolder]:
    folder = tmp_path_factory.mktemp("demo")
    for source in write_demo_sources(folder / "sources"):
        build_corpus(read_source(source), folder / "corpus", workers=1)
    return {corpus.name: corpus for corpus in open_corpora(folder / "corpus")}


def test_three_layouts_and_their_sizes(corpora: dict[str, CorpusFolder]) -> None:
    assert {name: c.index["reader"] for name, c in corpora.items()} == {
        "demo_sqale": "sqale",
        "demo_synsql": "synsql",
        "demo_bird": "bird",
    }
    licences = {name: READERS[c.index["reader"]].licence for name, c in corpora.items()}
    assert {name: c.licence for name, c in corpora.items()} == licences
    medians = {name: median(t.rows for t in c.tables()) for name, c in corpora.items()}
    assert medians["demo_synsql"] == 2
    assert medians["demo_sqale"] > 50
    assert medians["demo_bird"] > 300
    assert "../festival\nof 2024" in {row.db_id for row in corpora["demo_sqale"].databases()}


def test_the_flaws_are_the_ones_intended(corpora: dict[str, CorpusFolder]) -> None:
    outcomes: Counter[str] = Counter()
    empty: Counter[str] = Counter()
    for name, corpus in corpora.items():
        for question in corpus.questions():
            with Session.open_file(corpus.database_path(question.db_id)) as session:
                result = session.run(question.gold_sql)
            outcomes[result.outcome] += 1
            empty[name] += result.ok and not result.rows
    assert set(outcomes) == {"ok", "error"}
    assert outcomes["error"] == 1
    assert empty["demo_bird"] == 1
    assert sum(row.fk_violations for row in corpora["demo_bird"].databases()) == 28
    assert any(q.question == "..." for q in corpora["demo_sqale"].questions())
    with Session.open_file(corpora["demo_bird"].database_path("city_library")) as session:
        tied = session.run("SELECT DISTINCT COUNT(*) FROM book GROUP BY genre")
    assert len(tied.rows) == 1


def test_every_bucket_has_questions(corpora: dict[str, CorpusFolder]) -> None:
    lengths = [len(mask_sql(q.gold_sql).text) for c in corpora.values() for q in c.questions()]
    assert 60 <= len(lengths) <= 120
    for low, high in ((0, 149), (149, 278), (278, 10_000)):
        assert sum(low <= length < high for length in lengths) >= 20
