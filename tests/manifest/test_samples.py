"""Samples over real databases: exact sizes, and gold results unchanged on the view."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.corpora.folder import CorpusFolder
from envbuild.manifest.build import build_manifest
from envbuild.manifest.read import open_manifest
from envbuild.manifest.samples import SampleReport, sample_corpora
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.corpus import Question
from tests.shared import shared_data
from tests.small_corpus import real_corpus, write_corpus

POKEDEX_GOLDS = {
    1: "SELECT count(*) FROM pokemon",
    2: "SELECT p.identifier FROM pokemon p JOIN pokemon_species s ON s.id = p.species_id"
    " WHERE s.is_baby = 1 ORDER BY p.id LIMIT 10",
    3: "SELECT t.identifier, count(*) FROM pokemon_types pt JOIN types t ON t.id = pt.type_id"
    " JOIN pokemon p ON p.id = pt.pokemon_id GROUP BY t.identifier ORDER BY 2 DESC, 1",
    4: "SELECT a.id FROM abilities a WHERE NOT EXISTS (SELECT 1 FROM pokemon_abilities pa"
    " WHERE pa.ability_id = a.id) AND a.generation_id IN (SELECT id FROM generations)"
    " AND a.id NOT IN (SELECT ability_id FROM ability_changelog) ORDER BY a.rowid",
    5: "WITH heavy AS (SELECT * FROM pokemon WHERE weight > 4000) SELECT h.identifier, n.name,"
    " sum(st.base_stat) FROM heavy h JOIN pokemon_stats st ON st.pokemon_id = h.id"
    " JOIN pokemon_species_names n ON n.pokemon_species_id = h.species_id"
    " JOIN languages l ON l.id = n.local_language_id AND l.identifier = 'en'"
    " JOIN pokemon_species s ON s.id = h.species_id GROUP BY h.id ORDER BY 3 DESC, 1",
}  # fmt: skip


@pytest.fixture(scope="module")
def pokedex(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    questions = [
        Question(question_id=f"q{number}", db_id="pokedex", question=f"{number}?", gold_sql=sql)
        for number, sql in POKEDEX_GOLDS.items()
    ]
    file = shared_data("large") / "pokedex" / "pokedex.sqlite"
    return write_corpus(tmp_path_factory.mktemp("p") / "pokedex", {"pokedex": file}, questions)


def sampled(corpus: CorpusFolder, **settings: Any) -> SampleReport:
    return sample_corpora([corpus], settings=ManifestSettings(**settings), show=99, workers=1)


@pytest.mark.parametrize("tables", [4, 16, 64])
@pytest.mark.parametrize("distractors", ["fk", "mixed"])
def test_pokedex_at_a_size(pokedex: CorpusFolder, tables: int, distractors: str) -> None:
    report = sampled(pokedex, smallest=tables, largest=tables, distractors=distractors)
    assert report.num_changed == 0
    assert [len(shown.gold_tables) for shown in report.shown] == [1, 2, 3, 4, 5]
    assert [len(shown.tables) for shown in report.shown] == [max(tables, n) for n in range(1, 6)]
    assert all(set(s.gold_tables) <= set(s.tables) for s in report.shown)


def test_pokedex_with_extra_and_in_full(pokedex: CorpusFolder) -> None:
    extra = sampled(pokedex, extra=32)
    assert [len(shown.tables) for shown in extra.shown] == [33, 34, 35, 36, 37]
    full = sampled(pokedex, full=True)
    assert [len(shown.tables) for shown in full.shown] == [172] * 5
    assert len({shown.tables for shown in full.shown}) == 5
    assert extra.num_changed == full.num_changed == 0
    assert full.corpora[0].whole == 5


def test_the_manifest_has_the_samples_that_the_command_showed(
    pokedex: CorpusFolder, tmp_path: Path
) -> None:
    settings = ManifestSettings(seed=3)
    build_manifest([pokedex], tmp_path / "out", settings=settings, workers=1)
    rows = {row.row_id: row.tables for row in open_manifest(tmp_path / "out").rows}
    assert rows == {s.row_id: s.tables for s in sampled(pokedex, seed=3).shown}


def test_a_gold_that_hangs_on_other_tables_is_a_change(tmp_path: Path) -> None:
    sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table'"
    ddl = "CREATE TABLE a(x); CREATE TABLE b(x); CREATE TABLE c(x);"
    questions = [
        Question(question_id="q1", db_id="d", question="how many?", gold_sql=sql),
        Question(question_id="q2", db_id="d", question="what?", gold_sql="SELECT nope FROM a"),
        Question(question_id="q3", db_id="d", question="which?", gold_sql="SELECT a.x FROM a, b"),
    ]
    write_corpus(tmp_path / "c", {"d": ddl}, questions)
    arguments = ["sample", str(tmp_path / "c"), "--tables", "2", "--workers", "1"]
    run = CliRunner().invoke(app, [*arguments, "--json"])
    assert run.exit_code == 1
    document = json.loads(run.stdout)
    (corpus,) = document["corpora"]
    assert document["format"] == "envbuild.sample/1"
    assert [row_id for row_id, _ in corpus["changed"]] == ["c/d/q1"]
    assert corpus["refused"] == {"gold_error": 1}
    assert document["shown"][0]["distractors"] == []
    whole = CliRunner().invoke(app, [*arguments, "--full"])
    assert whole.exit_code == 0, "with every table there the count is right"
    assert "c/d/q1: 3 tables" in whole.stdout
    assert max(map(len, whole.stdout.splitlines())) <= 80


def test_synsqls_golds_keep_their_results(tmp_path: Path) -> None:
    report = sampled(real_corpus(tmp_path, "synsql"))
    assert report.corpora[0].samples == 200
    assert report.num_changed == 0
