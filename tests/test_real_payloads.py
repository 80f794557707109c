"""SQaLe's three published layouts, and its largest database against the SQLite original."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import read_source, read_sources
from envbuild.errors import SourceError, UnknownNameError
from envbuild.materialize.corpus import build_corpus
from envbuild.sql.connect import open_read_only, quote_name
from tests.shared import shared_data


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


def test_v1_with_the_same_schemas_gives_the_same_empty_tables(
    current: CorpusFolder, tmp_path: Path
) -> None:
    """v1 has DDL only: the current layout's DDL in v1's columns makes the same files, unfilled."""
    from envbuild.corpora.payload import read

    records = [
        {"schema": record.ddl, "query": "SELECT 1", "question": "?", "db_id": record.db_id}
        for record in read(str(shared_data("sqale"))).databases()
        if record.db_id != "pokedex"
    ]
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "records.json").write_text(json.dumps(records))
    v1 = materialized(tmp_path / "v1", tmp_path)
    assert "no data rows" in v1.index["said"]
    tables = {(t.db_id, t.table): (t.columns, t.foreign_keys) for t in current.tables()}
    for table in v1.tables():
        assert tables[table.db_id, table.table] == (table.columns, table.foreign_keys)
        assert table.rows == 0


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


def test_umlauts_and_keywords_survive(tmp_path: Path) -> None:
    german = materialized(shared_data("machinespider_de"), tmp_path)
    assert any("ä" in question.gold_sql for question in german.questions())
    tables = {table.table for table in german.tables()}
    assert "schüler" in tables
    pets = open_read_only(german.database_path("pets_1"))
    assert pets.execute('SELECT count("alter") FROM "schüler"').fetchall()[0][0] > 0
    pets.close()


def test_what_has_no_layout_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        read_source(tmp_path / "nope")
    (tmp_path / "readme.txt").write_text("hello")
    with pytest.raises(SourceError, match="SynSQL"):
        read_source(tmp_path)
    with pytest.raises(UnknownNameError, match="auto, bird, hub"):
        read_source(tmp_path, "csv")
    with pytest.raises(SourceError, match="has no split 'train'; it has dev"):
        read_source(shared_data("bird"), split="train")


def test_an_unreachable_hub_says_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    run = subprocess.run(
        [sys.executable, "-m", "envbuild", "materialize", "nobody/nothing@abc123"],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "hf download nobody/nothing --repo-type dataset --revision abc123" in run.stderr
    assert "Traceback" not in run.stderr


def test_questions_alone_are_no_corpus() -> None:
    with pytest.raises(SourceError, match="questions and no databases"):
        read_sources([shared_data("sqale") / "sqale2_queries"])
