"""`envbuild amplify`: a new corpus folder, the same for any workers, every row accounted for."""

import json
import shutil
from pathlib import Path

import apsw
import pytest

from envbuild.corpora.folder import open_corpora
from envbuild.errors import UsageError
from envbuild.generate.corpus import parse_rows
from envbuild.io.parquet import read_records
from envbuild.records.signal import AddedRow, GoldState
from envbuild.sql.verdicts import decode_rows
from tests.generate.test_amplify import GOLDS, SHOP
from tests.shared import envbuild

NEVER = "SELECT title FROM shop WHERE size > 5 AND size < 4"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Spider-shaped folder of two databases, materialized."""
    root = tmp_path_factory.mktemp("amplify")
    records = []
    for number, name in enumerate(("shop", "kiosk")):
        file = root / "raw" / "database" / name / f"{name}.sqlite"
        described = file.parent / "database_description" / "shop.csv"
        described.parent.mkdir(parents=True)
        described.write_text(f"original_column_name,column_description\ntitle,of a {name}\n")
        connection = apsw.Connection(str(file))
        connection.execute(SHOP)
        connection.close()
        golds = GOLDS if number else (*GOLDS, NEVER)
        records += [{"db_id": name, "question": f"q{n}", "query": g} for n, g in enumerate(golds)]
    (root / "raw" / "dev.json").write_text(json.dumps(records))
    assert run("materialize", root / "raw", "--out", root / "corpus", "--name", "tiny")[0] == 0
    return root / "corpus" / "tiny"


def run(*arguments: object) -> tuple[int, str, str]:
    done = envbuild(*arguments)
    return done.returncode, done.stdout, done.stderr


def content(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_a_gold_that_stays_empty_is_listed_and_makes_exit_1(source: Path, tmp_path: Path) -> None:
    before = content(source)
    code, out, _ = run("amplify", source, "--out", tmp_path, "--workers", 1, "--json")
    document = json.loads(out)
    assert code == 1
    assert document["format"] == "envbuild.amplify/1"
    assert [name.partition("/")[0] for name in document["empty_golds"]["tiny"]] == ["shop"]
    assert document["corpora"][0]["orphans_added"] == 0
    assert content(source) == before, "the source is only read"

    (grown,) = open_corpora(tmp_path)
    states = read_records(grown.root / "amplified_golds.parquet", GoldState)
    assert sum(state.rows_after == 0 for state in states) == 1
    assert [q.gold_sql for q in grown.questions()] == [
        q.gold_sql for q in open_corpora(source)[0].questions()
    ]
    for row in grown.databases():
        connection = apsw.Connection(str(grown.database_path(row.db_id)))
        tables = [table for table in grown.tables() if table.db_id == row.db_id]
        assert row.rows == sum(table.rows for table in tables) == row.rows_stored
        for table in tables:
            ((rows,),) = connection.execute(f'SELECT count(*) FROM "{table.table}"')
            assert rows == table.rows
        added = [
            added
            for added in read_records(grown.root / "added_rows.parquet", AddedRow)
            if added.db_id == row.db_id and added.table == "item"
        ]
        for one in added[:5]:
            columns = ", ".join(f'"{name}"' for name in one.columns)
            sql = f"SELECT {columns} FROM item WHERE rowid = ?"
            assert list(connection.execute(sql, (one.rowid,))) == list(decode_rows(one.cells))


def test_the_same_bytes_for_any_workers_and_shards_and_after_a_kill(
    source: Path, tmp_path: Path
) -> None:
    run("amplify", source, "--out", tmp_path / "one", "--workers", 1, "--guided")
    run("amplify", source, "--out", tmp_path / "two", "--workers", 2, "--guided")
    for shard in ("0/2", "1/2"):
        run("amplify", source, "--out", tmp_path / "cut", "--guided", "--shard", shard)
    one = content(tmp_path / "one")
    assert one == content(tmp_path / "two") == content(tmp_path / "cut")
    described = {name: text for name, text in content(source).items() if name.endswith(".csv")}
    assert len(described) == 2 and described.items() <= content(tmp_path / "one" / "tiny").items()

    # a folder as a kill leaves it: no index, a finished part, a database half written
    shutil.copytree(tmp_path / "one", tmp_path / "killed")
    (tmp_path / "killed" / "tiny" / "corpus.json").unlink()
    (tmp_path / "killed" / "tiny" / "databases.parquet").unlink()
    run("amplify", source, "--out", tmp_path / "killed", "--guided")
    assert content(tmp_path / "killed") == one


def test_another_configuration_is_refused(source: Path, tmp_path: Path) -> None:
    run("amplify", source, "--out", tmp_path)
    code, out, err = run("amplify", source, "--out", tmp_path, "--seed", 1)
    assert (code, out) == (2, "")
    assert "seed" in err
    code, _, err = run("amplify", source, "--out", source.parent)
    assert code == 2
    assert "where the corpus lies" in err


def test_a_row_range_that_cannot_be_is_refused() -> None:
    for rows in ("70:30", "x", "0:5", "-1:5"):
        with pytest.raises(UsageError, match="30:70"):
            parse_rows(rows)
