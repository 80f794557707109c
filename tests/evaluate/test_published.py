"""597 published verdicts of SuperSQL on Spider, and what the rules say of the same answers."""

import json

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.evaluate.report import render_page
from envbuild.evaluate.runs import EvaluationRun, evaluate_predictions
from envbuild.io.pages import embed_json
from tests.shared import shared_data


@pytest.fixture(scope="module")
def run() -> EvaluationRun:
    predictions = shared_data("predictions", "spider_dev_supersql.jsonl")
    return evaluate_predictions(shared_data("spider"), predictions, benchmark="spider")


def test_every_published_verdict_is_reproduced(run: EvaluationRun) -> None:
    published = {}
    with shared_data("predictions", "spider_dev_supersql.jsonl").open() as stream:
        for line in stream:
            record = json.loads(line)
            key = (record["db_id"], record["question"], record["predicted_sql"])
            published[key] = record["exec_acc"] == 1.0
    ours = {(v.db_id, v.question, v.predicted_sql): v.official_correct for v in run.verdicts}
    assert len(run.verdicts) == 597
    assert ours == published
    assert all(v.reason or v.official_correct or v.equal_under for v in run.verdicts)


def test_the_matrix_counts_answers_of_one_rule_that_another_refuses(run: EvaluationRun) -> None:
    rules, apart = run.evaluation.rules, run.evaluation.disagreements
    assert rules["official@1"] == 498
    assert apart["official@1"] == {"bag@1": 8, "ordered@1": 9, "strict@1": 28, "testsuite@1": 9}
    assert apart["testsuite@1"]["strict@1"] == 35
    for one, others in apart.items():
        for other, count in others.items():
            assert rules[one] - count == rules[other] - apart[other][one]  # equal under both


def test_the_page_holds_its_data_whatever_the_strings(run: EvaluationRun) -> None:
    page = render_page(run.evaluation, run.verdicts)
    assert page.count("</script>") == 2
    assert "</script>" not in embed_json({"sql": "</script><script>alert(1)</script>"})


def test_the_command_shows_the_matrix_at_80_columns() -> None:
    predictions = str(shared_data("predictions", "spider_dev_supersql.jsonl"))
    arguments = ["evaluate", "--predictions", predictions, str(shared_data("spider"))]
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "rule not official not bag not ordered not strict not testsuite" in lines
    assert "official - 8 9 28 9" in lines
    assert max(map(len, shown.splitlines()[1:])) <= 80  # the first says what was read
    found = CliRunner().invoke(app, [*arguments, "--benchmark", "spider", "--json"])
    assert found.exit_code == 0
    document = json.loads(found.stdout)
    assert document["format"] == "envbuild.evaluate/1"
    assert document["evaluation"]["scores"][0]["official"]["total"] == 597
