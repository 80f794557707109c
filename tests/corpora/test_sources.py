"""Sources and corpus folders: the published layouts, and paths that are not one source."""

import json
import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.corpora.benchmarks import iter_ready
from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.corpora.source import READERS, read_source, read_sources
from envbuild.corpora.synthetic import write_shape
from envbuild.errors import CorpusFolderError, OutputError, SourceError, UnknownNameError
from envbuild.materialize.corpus import build_corpus
from envbuild.records.corpus import DatabaseRecord, Reject
from envbuild.sql.connect import open_read_only, quote_name
from tests.shared import envbuild, shared_data


def write_database(folder: Path) -> None:
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / f"{folder.name}.sqlite") as connection:
        connection.execute("CREATE TABLE t (a)")


def write_bird(root: Path, question_file: str = "dev.json") -> Path:
    write_database(root / "dev_databases" / "shop")
    question = {"question_id": 0, "db_id": "shop", "question": "How many?", "SQL": "SELECT 1"}
    (root / question_file).write_text(json.dumps([question]))
    return root


def write_spider(root: Path) -> Path:
    write_database(root / "database" / "pets")
    question = {"db_id": "pets", "question": "How many?", "query": "SELECT 1"}
    (root / "dev.json").write_text(json.dumps([question]))
    return root


@pytest.mark.parametrize("reader", ["auto", *(name for name in READERS if name != "hub")])
def test_a_missing_path_is_said_to_be_missing(reader: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file or folder"):
        read_source(tmp_path / "nope", reader)


def test_a_folder_above_several_sources_names_them(tmp_path: Path) -> None:
    write_bird(tmp_path / "bird")
    write_spider(tmp_path / "spider")
    write_shape("sqale", tmp_path / "dense", databases=1, seed=0)
    with pytest.raises(
        SourceError, match=r"bird/ \(BIRD\), spider/ \(Spider\), dense/ \(row payloads\)"
    ):
        read_source(tmp_path)
    shutil.rmtree(tmp_path / "dense")
    (tmp_path / "bird").rename(tmp_path / "spider" / ".bird")
    with pytest.raises(SourceError, match=r"give .*/spider$"):
        read_source(tmp_path)
    (tmp_path / "spider" / ".bird").rename(tmp_path / "bird")
    shutil.rmtree(tmp_path / "spider")
    assert read_source(tmp_path).kind == "bird"


@pytest.mark.parametrize("other", ["sqale", "synsql"])
def test_two_sources_written_into_one_folder_are_refused(other: str, tmp_path: Path) -> None:
    write_shape(other, tmp_path, databases=1, seed=0)
    assert read_source(tmp_path).kind == other
    write_bird(tmp_path)
    with pytest.raises(SourceError, match=r"several sources: .*\(BIRD\)"):
        read_source(tmp_path)
    assert read_source(tmp_path, "bird").kind == "bird"  # the operator has said which


def test_a_second_synthetic_source_wants_a_folder_of_its_own(tmp_path: Path) -> None:
    write_shape("sqale", tmp_path, databases=1, seed=0)
    write_shape("sqale", tmp_path, databases=1, seed=0)
    with pytest.raises(OutputError, match="holds a source already, read as sqale"):
        write_shape("bird", tmp_path, databases=1, seed=0)


def test_bird_reads_the_questions_beside_its_databases_alone(tmp_path: Path) -> None:
    write_bird(tmp_path / "dev_20240627")
    write_spider(tmp_path / "spider")
    source = read_source(tmp_path, "bird")
    assert len(list(source.questions())) == 1
    assert "dev_20240627/dev.json (dev)" in source.description


def test_two_releases_of_bird_are_not_one(tmp_path: Path) -> None:
    write_bird(tmp_path / "dev_20240627")
    write_bird(tmp_path / "train", "train.json")
    assert len(list(read_source(tmp_path).questions())) == 2
    write_bird(tmp_path / "dev_20251106")
    with pytest.raises(SourceError, match=r"dev_20240627/dev.json, dev_20251106/dev.json"):
        read_source(tmp_path)


@pytest.mark.parametrize("reader", ["auto", "bird", "payload"])
def test_what_envbuild_made_is_no_source(reader: str, tmp_path: Path) -> None:
    source = read_source(write_bird(tmp_path / "bird"))
    build_corpus(source, tmp_path / "corpus", workers=1)
    with pytest.raises(SourceError, match="corpus/bird is a corpus that `envbuild materialize`"):
        read_source(tmp_path / "corpus" / "bird", reader)


def test_a_corpus_inside_its_source_does_not_hide_it(tmp_path: Path) -> None:
    write_shape("sqale", tmp_path / "sqale", databases=1, seed=0)
    before = read_source(tmp_path / "sqale")
    build_corpus(before, tmp_path / "sqale", workers=1)
    after = read_source(tmp_path / "sqale")
    assert (after.kind, after.files) == (before.kind, before.files)
    (tmp_path / "sqale" / "sqale" / "corpus.json").unlink()  # as a stopped materialize leaves it
    (tmp_path / "sqale" / "sqale" / ".parts").mkdir()
    assert read_source(tmp_path / "sqale").files == before.files


@pytest.mark.parametrize(("name", "said"), [("we ird/na'me", True), ("bird-dev", False)])
def test_a_name_that_no_folder_can_have_is_said(name: str, said: bool, tmp_path: Path) -> None:
    source, out = write_bird(tmp_path / "bird"), tmp_path / "out"
    arguments = ["materialize", str(source), "--name", name, "--out", str(out), "--quiet"]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0
    (made,) = out.iterdir()
    assert (f"the corpus is {made.name}" in found.stderr) is said


def test_a_second_file_called_like_its_folder_is_a_reject(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    for ending in (".sqlite", ".db"):
        (tmp_path / "shop" / f"shop{ending}").touch()
    taken, refused = iter_ready(tmp_path)
    assert isinstance(taken, DatabaseRecord) and taken.sqlite_file.endswith("shop.sqlite")
    assert isinstance(refused, Reject) and refused.reason == "duplicate_db_id"
    assert refused.detail == "shop.sqlite was read, shop.db was not"


def test_what_is_no_corpus_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CorpusFolderError, match="no folder"):
        open_corpora(tmp_path / "nope")
    with pytest.raises(CorpusFolderError, match="holds no corpus"):
        open_corpora(tmp_path)
    (tmp_path / "shop" / ".parts").mkdir(parents=True)
    with pytest.raises(CorpusFolderError, match="not finished"):
        open_corpora(tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "corpus.json").write_text('{"format": "envbuild.corpus/0"}')
    with pytest.raises(CorpusFolderError, match=r"reads 'envbuild\.corpus/1'"):
        open_corpora(tmp_path / "old")


def materialized(source: Path, out: Path) -> CorpusFolder:
    summary = build_corpus(read_source(source), out, workers=1)
    return CorpusFolder(Path(summary.root))


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    return materialized(shared_data("sqale"), tmp_path_factory.mktemp("current"))


def test_pokedex_is_the_original_value_for_value(current: CorpusFolder) -> None:
    row = next(row for row in current.databases() if row.db_id == "pokedex")
    assert (row.tables, row.rows, row.foreign_keys) == (172, 202_302, 303)
    assert (row.rows_offered, row.rows_refused, row.ddl_refused) == (202_302, 0, 0)
    original = open_read_only(shared_data("large") / "pokedex" / "pokedex.sqlite")
    built = open_read_only(current.database_path("pokedex"))
    names = [n for (n,) in original.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    assert len(names) == 172
    for name in names:
        columns = [
            f"typeof({c}), {c}"
            for (column,) in original.execute("SELECT name FROM pragma_table_xinfo(?)", (name,))
            if (c := quote_name(column))
        ]
        query = f"SELECT {', '.join(columns)} FROM {quote_name(name)}"
        assert list(original.execute(query)) == list(built.execute(query)), name
    original.close()
    built.close()


def test_the_current_and_the_legacy_layout_agree(current: CorpusFolder, tmp_path: Path) -> None:
    legacy = materialized(shared_data("sqale/SQaLe_2_legacy"), tmp_path)
    digests = {row.db_id: row.sha256 for row in current.databases()}
    assert len(legacy.databases()) == 10
    for row in legacy.databases():
        assert digests[row.db_id] == row.sha256


def test_a_schema_repeated_with_every_question_is_one_database(tmp_path: Path) -> None:
    ddl = ["CREATE TABLE t(a);", "CREATE TABLE u(a);"]
    payload = ['{"t": [{"a": 1}]}', '{"u": []}']
    table = pa.table(
        {
            "schema id": ["one", "one", "two", "one", "two"],
            "Full schema": [ddl[0], ddl[0], ddl[1], ddl[0], ddl[1]],
            "Schema content": [payload[0], payload[0], payload[1], payload[0], '{"u": [{"a": 2}]}'],
            "question id": ["a", "b", "c", "d", "e"],
            "questions": ['{"verbose (original)": "q?", "casual": null}'] * 5,
            "sql statement": ["SELECT 1"] * 5,
        }
    )
    (tmp_path / "legacy").mkdir()
    pq.write_table(table, tmp_path / "legacy" / "train-00000-of-00001.parquet")
    legacy = materialized(tmp_path / "legacy", tmp_path)
    assert [row.db_id for row in legacy.databases()] == ["one", "two"]
    assert [(r.db_id, r.index, r.reason) for r in legacy.rejects()] == [
        ("two", 4, "duplicate_db_id")
    ]
    assert [(q.question_id, q.style) for q in legacy.questions()] == [
        (name, "verbose") for name in "abcde"
    ]


def test_phrasings_are_questions_and_nulls_are_not(current: CorpusFolder) -> None:
    questions = current.questions()
    assert len(questions) == 6
    assert {question.style for question in questions} == {"verbose"}
    assert questions[0].relevant_tables == ("teacher", "book")
    assert questions[0].stored_result is not None
    assert json.loads(questions[0].stored_result)[0][0] == 1


def test_two_sets_given_one_after_the_other_are_one_source() -> None:
    root = shared_data("sqale")
    (joined,) = read_sources([root / "sqale2_schemas", root / "sqale2_queries"])
    assert joined.name == "sqale2_schemas"
    assert (len(list(joined.databases())), len(list(joined.questions()))) == (11, 6)


def test_what_has_no_layout_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        read_source(tmp_path / "nope")
    (tmp_path / "readme.txt").write_text("hello")
    with pytest.raises(SourceError, match="SynSQL"):
        read_source(tmp_path)
    with pytest.raises(UnknownNameError, match="auto, bird, folder, hub"):
        read_source(tmp_path, "csv")
    with pytest.raises(SourceError, match="has no split 'train'; it has dev"):
        read_source(shared_data("bird"), split="train")


def test_an_unreachable_hub_says_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    run = envbuild("materialize", "nobody/nothing@abc123", **offline)
    assert run.returncode == 2
    assert "hf download nobody/nothing --repo-type dataset --revision abc123" in run.stderr
    assert "Traceback" not in run.stderr


def test_questions_alone_are_no_corpus() -> None:
    with pytest.raises(SourceError, match="questions and no databases"):
        read_sources([shared_data("sqale") / "sqale2_queries"])
