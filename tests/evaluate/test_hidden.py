"""`hidden@1` at evaluation: a query that is right by luck is told apart, beside EX."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.corpora.folder import open_corpora
from envbuild.env.environment import Environment
from envbuild.errors import CorpusFolderError
from envbuild.evaluate.runs import evaluate_episodes
from envbuild.io.episodes import EpisodeJournal
from envbuild.io.parquet import write_records
from envbuild.manifest.build import build_manifest
from envbuild.manifest.read import GOLD_SCHEMA, ROW_SCHEMA, open_manifest
from envbuild.manifest.samples import LADDER, resample_manifest
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.execution import Outcome
from envbuild.records.manifest import ManifestRow
from envbuild.sql.execution.session import Session
from tests.manifest.test_build import SHOP, ask
from tests.small_corpus import write_corpus

GOLDS = (
    "SELECT count(*) FROM orders WHERE price > 1",
    "SELECT count(*) FROM customer",
    "SELECT name FROM customer WHERE 1 = 0",
)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hidden")
    write_corpus(root / "c", {"shop": SHOP}, [ask(n, sql) for n, sql in enumerate(GOLDS)])
    build_manifest(
        open_corpora(root / "c"),
        root / "manifest",
        settings=ManifestSettings(variants=2),
        workers=1,
    )
    return root / "manifest"


def play(
    manifest: Path, folder: Path, answer: Callable[[ManifestRow], str], **recorded: object
) -> Path:
    env = Environment.open(manifest, settings="default")
    configuration = {"manifest": str(manifest), **recorded}
    with EpisodeJournal(folder, configuration=configuration) as journal:
        for row in env.manifest.rows:
            episode = env.new_episode(row)
            call = {"tool": "submit_sql", "args": {"sql": answer(row)}}
            episode.feed(json.dumps(call))
            episode.close()
            journal.add(episode.record())
        journal.seal()
    return folder


def lucky(manifest: Path) -> Callable[[ManifestRow], str]:
    """Answers with the number that the visible database happens to give."""
    opened = open_manifest(manifest)

    def answer(row: ManifestRow) -> str:
        with Session.open_file(opened.database_path(row)) as session:
            result = session.run(row.gold_sql)
        assert result.outcome is Outcome.OK
        return f"SELECT {result.rows[0][0]}" if result.rows else row.gold_sql

    return answer


def test_luck_is_right_officially_and_not_hidden(manifest: Path, tmp_path: Path) -> None:
    gold = evaluate_episodes(play(manifest, tmp_path / "gold", lambda row: row.gold_sql))
    luck = evaluate_episodes(play(manifest, tmp_path / "luck", lucky(manifest)))
    wrong = evaluate_episodes(play(manifest, tmp_path / "wrong", lambda row: "SELECT 'no'"))
    for run, official, hidden in ((gold, 3, 2), (luck, 3, 0), (wrong, 0, 0)):
        first = run.evaluation.scores[0]
        assert first.official.correct == official
        assert first.hidden is not None
        assert (first.hidden.correct, first.hidden.total) == (hidden, 2)
        assert [v.question_id for v in run.verdicts if not v.hidden] == ["q2"]


def test_the_rule_is_that_of_ex_beside_it(manifest: Path, tmp_path: Path) -> None:
    """Every row twice: the same set, another bag. A variant whose gold is empty is not asked."""
    twice = play(manifest, tmp_path / "twice", lambda r: f"{r.gold_sql} UNION ALL {r.gold_sql}")
    run = evaluate_episodes(twice)
    first = run.evaluation.scores[0]
    assert first.hidden is not None
    assert (first.official.correct, first.hidden.correct, first.hidden.total) == (3, 2, 2)

    opened = open_manifest(manifest)
    row = opened.row("c/shop/q2")
    empty = msgspec.structs.replace(opened.gold(row.gold_id), variant="c/shop/0.0")
    golds = sorted((*opened.iter_gold(), empty), key=lambda gold: (gold.gold_id, gold.variant))
    rows = [
        msgspec.structs.replace(one, variants=("c/shop/0.0",)) if one == row else one
        for one in opened.rows
    ]
    other = tmp_path / "manifest"
    shutil.copytree(manifest.parent, tmp_path, dirs_exist_ok=True)
    write_records(other / "gold.parquet", golds, GOLD_SCHEMA)
    write_records(other / "manifest.parquet", rows, ROW_SCHEMA)
    run = evaluate_episodes(play(other, tmp_path / "again", lambda r: r.gold_sql))
    assert [v.question_id for v in run.verdicts if not v.hidden] == ["q2"]


def test_a_rung_of_the_ladder_keeps_the_variants(manifest: Path, tmp_path: Path) -> None:
    rung = tmp_path / "full"
    resample_manifest(open_manifest(manifest), rung, LADDER[-1])
    luck = evaluate_episodes(play(rung, tmp_path / "luck", lucky(rung)))
    assert luck.evaluation.scores[0].hidden is not None
    assert luck.evaluation.scores[0].hidden.correct == 0


def test_the_command_says_hidden_beside_ex(manifest: Path, tmp_path: Path) -> None:
    folder, metrics = play(manifest, tmp_path / "luck", lucky(manifest)), tmp_path / "m.jsonl"
    found = CliRunner().invoke(app, ["evaluate", str(folder), "--metrics", str(metrics)])
    assert found.exit_code == 0, found.output
    assert "hidden@1: 0.0% of 2" in found.stdout
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    (hidden,) = (x for x in lines if x["metric"] == "ex/hidden@1" and x["group"] == "all")
    assert (hidden["value"], hidden["n"]) == (0.0, 2)


@pytest.mark.parametrize(
    ("recorded", "mean", "said"),
    [
        ({"settings": {"evaluation": True}}, 3.0, ""),
        ({"settings": {"evaluation": False}}, None, ""),
        ({}, None, "does not say how it was played: scored as training episodes are"),
    ],
)
def test_score_judges_as_the_rollout_was_played(
    manifest: Path, tmp_path: Path, recorded: dict[str, object], mean: float | None, said: str
) -> None:
    """Hidden variants are for training: luck is paid in full at evaluation."""
    folder = play(manifest, tmp_path / "luck", lucky(manifest), **recorded)
    found = CliRunner().invoke(app, ["score", str(folder), "--json"])
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert document["evaluation"] == (mean is not None)
    assert (document["mean_reward"] == 3.0) == (mean == 3.0)
    assert document["tiers"]["equivalent"] == (3 if mean else 1)
    assert said in found.stderr and bool(said) == bool(found.stderr)


def test_settings_that_cannot_be_read_are_said(manifest: Path, tmp_path: Path) -> None:
    folder = play(manifest, tmp_path / "luck", lucky(manifest), settings={"evaluation": "yes"})
    found = CliRunner().invoke(app, ["score", str(folder)])
    assert isinstance(found.exception, CorpusFolderError)
    assert "settings" in str(found.exception)
