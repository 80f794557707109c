"""The demo corpora: the published layouts, every flaw on purpose, none by accident."""

from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.corpora.source import read_source
from envbuild.corpora.synthetic.shapes import write_demo_sources
from envbuild.materialize.corpus import build_corpus
from envbuild.sql.executor import Session
from envbuild.sql.text.mask import mask_sql


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


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_demo_sources(tmp_path / name)
    first, second = (
        {
            file.relative_to(tmp_path / name): file.read_bytes()
            for file in (tmp_path / name).rglob("*")
            if file.is_file()
        }
        for name in ("a", "b")
    )
    assert first == second
