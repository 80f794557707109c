"""A gold that cannot run leaves its answers unscored: beside the score, never inside it."""

import json
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.errors import SourceError
from envbuild.evaluate.runs import evaluate_predictions
from envbuild.evaluate.statistics import compare_all, read_sides
from envbuild.io.parquet import read_records
from envbuild.records.evaluation import QuestionVerdict

GOLDS = ("SELECT name FROM pet", "SELECT colour FROM pet", "SELECT count(*) FROM pet")
ANSWERS = ("SELECT name FROM pet", "SELECT name FROM pet", "SELECT 7")


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    folder = tmp_path / "spider" / "database" / "pets"
    folder.mkdir(parents=True)
    connection = apsw.Connection(str(folder / "pets.sqlite"))
    connection.execute("CREATE TABLE pet (id INTEGER PRIMARY KEY, name TEXT)")
    connection.execute("INSERT INTO pet (name) VALUES ('Rex'), ('Tom')")
    connection.close()
    asked = [{"db_id": "pets", "question": f"q{n}", "query": sql} for n, sql in enumerate(GOLDS)]
    (tmp_path / "spider" / "dev.json").write_text(json.dumps(asked))
    (tmp_path / "spider" / "tables.json").write_text("[]")
    return tmp_path / "spider"


def test_a_broken_gold_is_reported_beside_the_score(benchmark: Path, tmp_path: Path) -> None:
    predictions, out = tmp_path / "system.sql", tmp_path / "out"
    predictions.write_text("\n".join(ANSWERS) + "\n")
    arguments = ["--predictions", str(predictions), "--benchmark", "spider", "--json"]
    found = CliRunner().invoke(app, ["evaluate", str(benchmark), *arguments, "--out", str(out)])
    assert found.exit_code == 1, found.output
    first = json.loads(found.stdout)["evaluation"]["scores"][0]
    assert (first["official"]["correct"], first["official"]["total"]) == (1, 2)
    assert (first["strict"]["total"], first["unscored"]) == (2, 1)
    verdicts = read_records(out / "evaluation.parquet", QuestionVerdict)
    assert [v.official_correct for v in verdicts] == [True, None, False]
    assert [v.strict_correct for v in verdicts] == [True, None, False]
    assert [v.official for v in verdicts] == ["equal", "gold_error", "different"]
    (compared,) = compare_all(read_sides([str(out), str(out)]))
    assert (compared.questions, compared.left_out) == (2, 1)


@pytest.mark.parametrize("form", ["lines", "bird", "jsonl"])
def test_a_record_without_gold_keeps_the_others_at_their_places(
    benchmark: Path, tmp_path: Path, form: str
) -> None:
    asked = json.loads((benchmark / "dev.json").read_text())
    asked[0]["query"] = float("nan")
    (benchmark / "dev.json").write_text(json.dumps(asked))
    predictions = tmp_path / "system"
    answers = ("SELECT 7", "SELECT name FROM pet", "SELECT count(*) FROM pet")
    texts = {
        "lines": "\n".join(answers),
        "bird": json.dumps({n: f"{sql}\t----- bird -----\tpets" for n, sql in enumerate(answers)}),
        "jsonl": "\n".join(json.dumps({"id": n, "sql": sql}) for n, sql in enumerate(answers)),
    }
    predictions.write_text(texts[form])
    run = evaluate_predictions(benchmark, predictions, benchmark="spider")
    assert [v.official for v in run.verdicts] == ["gold_error", "equal"]
    assert run.warnings == ["1 records of the source are no questions: no_gold_sql 1"]


def test_a_file_of_which_nothing_fits_is_refused_with_the_ids_of_both(
    benchmark: Path, tmp_path: Path
) -> None:
    predictions = tmp_path / "system.jsonl"
    lines = [json.dumps({"id": f"x{n}", "sql": "SELECT 1"}) for n in range(5)]
    predictions.write_text("\n".join(lines))
    said = "the file has 'x0', 'x1', 'x2' and 2 more, the questions have '0', '1', '2'"
    with pytest.raises(SourceError, match=said):
        evaluate_predictions(benchmark, predictions, benchmark="spider")
    predictions.write_text("\n".join([*lines, '{"id": "0", "sql": "SELECT name FROM pet"}']))
    run = evaluate_predictions(benchmark, predictions, benchmark="spider")
    assert "5 predictions match no question, such as 'x0'" in run.warnings


def test_a_folder_without_databases_is_refused(benchmark: Path, tmp_path: Path) -> None:
    predictions = tmp_path / "system.sql"
    predictions.write_text("\n".join(ANSWERS) + "\n")
    for file in benchmark.rglob("*.sqlite"):
        file.unlink()
    with pytest.raises(SourceError, match="no database of its"):
        evaluate_predictions(benchmark, predictions, benchmark="spider")


def test_a_spider_folder_is_judged_by_spiders_rule_unless_another_is_named(
    benchmark: Path, tmp_path: Path
) -> None:
    predictions = tmp_path / "system.sql"
    predictions.write_text("\n".join(ANSWERS) + "\n")
    own = evaluate_predictions(benchmark, predictions, benchmark=None).evaluation
    assert own.official_name == "testsuite@1 without DISTINCT"
    assert "judged as spider" in own.said
    named = evaluate_predictions(benchmark, predictions, benchmark="bird").evaluation
    assert named.official_name == "official@1"
    assert "judged as" not in named.said
    (benchmark / "database").rename(benchmark / "dev_databases")
    as_bird = evaluate_predictions(benchmark, predictions, benchmark=None).evaluation
    assert as_bird.official_name == "official@1"
    assert "judged as bird" in as_bird.said


def test_every_question_is_judged_unless_rows_are_asked_for(
    benchmark: Path, tmp_path: Path
) -> None:
    asked = [{"db_id": "pets", "question": f"q{n}", "query": "SELECT 1"} for n in range(310)]
    (benchmark / "dev.json").write_text(json.dumps(asked))
    predictions = tmp_path / "system.sql"
    predictions.write_text("SELECT 1\n" * 310)
    arguments = ["evaluate", str(benchmark), "--predictions", str(predictions), "--json"]
    for more, questions in (([], 310), (["--rows", "7"], 7)):
        found = CliRunner().invoke(app, [*arguments, *more])
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout)["evaluation"]["questions"] == questions
