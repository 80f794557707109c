"""Evaluation of real episodes: scripted policies over a small manifest, from files to page."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.env.environment import Environment
from envbuild.errors import CorpusFolderError, UsageError
from envbuild.evaluate.curve import read_training_log
from envbuild.evaluate.episodes import (
    JudgedEpisode,
    count_wasted,
    decisive_literals,
    describe_actions,
    describe_behaviour,
    opened_tables,
    stands_in,
)
from envbuild.evaluate.report import evaluate_answers, render_page
from envbuild.evaluate.runs import draw_questions, evaluate_episodes
from envbuild.evaluate.statistics import score_by
from envbuild.io.episodes import BEGUN, EpisodeJournal
from envbuild.io.parquet import read_records, write_records
from envbuild.manifest.read import ROW_SCHEMA, ROWS_FILE, open_manifest
from envbuild.manifest.samples import LADDER, resample_manifest
from envbuild.records.corpus import percent
from envbuild.records.episode import EndedBy, Episode, ToolCall, Turn
from envbuild.records.evaluation import LiteralUse, QuestionVerdict
from envbuild.records.manifest import ManifestRow
from envbuild.sql.connect import VERSIONS
from envbuild.sql.execution.session import Session
from envbuild.testing.policies import make_policy
from tests.shared import shared_data
from tests.small_manifest import write_small_manifest

runner = CliRunner()


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_manifest(tmp_path_factory.mktemp("music"))


def play_all(manifest: Path, folder: Path, policy: str) -> Path:
    env = Environment.open(str(manifest))
    with EpisodeJournal(folder, configuration={"manifest": str(manifest)}) as journal:
        for row in env.manifest.rows:
            episode = env.new_episode(row, policy=policy)
            act = make_policy(policy, row)
            while (request := episode.next_request()) is not None:
                episode.feed(act(request))
            episode.close()
            journal.add(episode.record())
        journal.seal()
    return folder


def test_oracle_is_right_and_opens_what_it_needs(manifest: Path, tmp_path: Path) -> None:
    run = evaluate_episodes(play_all(manifest, tmp_path / "oracle", "oracle"))
    first = run.evaluation.scores[0]
    assert first.official.value == first.strict.value == 1.0
    assert first.unscored == 0
    assert "intervals" not in run.evaluation.said
    assert run.evaluation.behaviour is not None
    assert run.evaluation.behaviour.submit_rate == 1.0
    assert run.evaluation.behaviour.opened_all_gold_tables == 1.0
    groups = {(score.by, score.name) for score in run.evaluation.scores}
    assert groups > {("", "all"), ("schema", "withheld"), ("bucket", "short")}
    assert sum(s.official.total for s in run.evaluation.scores if s.name in BUCKETS) == len(
        run.verdicts
    )


BUCKETS = ("short", "medium", "long")


def test_hacker_is_wrong_and_told_why(manifest: Path, tmp_path: Path) -> None:
    run = evaluate_episodes(play_all(manifest, tmp_path / "hacker", "hacker"))
    assert run.evaluation.scores[0].official.value == 0.0
    assert all(verdict.reason for verdict in run.verdicts)


def test_answers_that_no_call_ran_count_among_sql_that_executes(
    manifest: Path, tmp_path: Path
) -> None:
    env, folder = Environment.open(str(manifest)), tmp_path / "untried"
    submit = json.dumps({"tool": "submit_sql", "args": {"sql": "SELECT 1"}})
    broken = submit.replace("SELECT 1", "SELECT nothing_such")
    look = json.dumps({"tool": "run_query", "args": {"sql": "SELECT 2"}})
    idle = ["I think."] * 6
    told = [
        [submit],
        [broken],
        [*idle, "```sql\nSELECT 3\n```"],
        [look, *idle[1:], "no SQL"],
    ]
    row = env.manifest.rows[0]
    with EpisodeJournal(folder, configuration={"manifest": str(manifest)}) as journal:
        for candidate, completions in enumerate(told):
            episode = env.new_episode(row, candidate=candidate)
            for completion in completions:
                episode.feed(completion)
            episode.close()
            journal.add(episode.record())
        journal.seal()
    run = evaluate_episodes(folder)
    assert [episode.answer_source for episode in run.episodes] == [
        "submit_sql",
        "submit_sql",
        "final_turn",
        "last_working_query",
    ]
    assert run.evaluation.behaviour is not None
    assert run.evaluation.said.startswith("4 episodes of 1 row; intervals take the question")
    assert run.evaluation.behaviour.executable_sql == 0.75  # the fallback's query counts once


def test_commands_from_files_to_page(manifest: Path, tmp_path: Path) -> None:
    good = play_all(manifest, tmp_path / "good", "oracle")
    bad = play_all(manifest, tmp_path / "bad", "lazy")
    page, metrics = tmp_path / "page.html", tmp_path / "metrics.jsonl"
    for folder in (good, bad):
        found = runner.invoke(
            app, ["evaluate", str(folder), "--html", str(page), "--metrics", str(metrics)]
        )
        assert found.exit_code == 0, found.output
        assert "official@1" in found.stdout
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert {"ex/official@1", "behaviour/submit_rate"} <= {line["metric"] for line in lines}
    assert len({(x["metric"], x["by"], x["group"]) for x in lines}) == len(lines)
    assert any(line["metric"].startswith("ended_by/") for line in lines)
    page_text = page.read_text()
    assert "episodes" in page_text
    out = tmp_path / "published"
    arguments = ["evaluate", str(bad), "--out", str(out), "--html", str(page), "--no-text"]
    assert runner.invoke(app, arguments).exit_code == 0
    for row in open_manifest(manifest).rows:
        for text in (row.question, row.gold_sql):
            assert text in page_text and text not in page.read_text()
    for v in read_records(out / "evaluation.parquet", QuestionVerdict):
        assert v.question_id and not (v.question or v.gold_sql or v.predicted_sql or v.reason)
    ledger = read_records(out / "literals.parquet", LiteralUse)
    assert ledger and not any(use.literal for use in ledger)
    compared = runner.invoke(app, ["compare", str(good), str(bad), "--json"])
    assert compared.exit_code == 0, compared.output
    (comparison,) = json.loads(compared.stdout)["comparisons"]
    for option, told in (((), True), (("--no-text",), False)):
        arguments = ["compare", str(good), str(bad), "--html", str(page), *option]
        assert runner.invoke(app, arguments).exit_code == 0
        lost = page.read_text()
        assert all((row.gold_sql in lost) == told for row in open_manifest(manifest).rows)
    assert "got 3" in str(runner.invoke(app, [*arguments, str(good)]).exception)
    assert comparison["left_out"] == 0
    assert comparison["delta"] <= 0


def test_a_training_log_is_drawn(manifest: Path, tmp_path: Path) -> None:
    """The first entries are those of a run of TRL 1.16; a log may hold NaN, or break off."""
    history = [
        {"epoch": 0.3, "kl": 0.0, "reward": 1.8250000476837158, "reward_std": 1.35830, "step": 1},
        {"epoch": 0.6, "kl": 0.2, "reward": 1.7950000762939453, "reward_std": 1.36661, "step": 2},
        {"epoch": 1.0, "kl": 0.0, "reward": float("nan"), "reward_std": float("nan"), "step": 3},
        {"step": 3, "train_runtime": 8.1},
    ]
    state, lines = tmp_path / "trainer_state.json", tmp_path / "log.jsonl"
    state.write_text(json.dumps({"global_step": 3, "log_history": history}))
    lines.write_text("".join(json.dumps(entry) + "\n" for entry in history) + '{"step": 4, "rew')
    logged = read_training_log(state)
    assert [(one.step, round(one.reward, 3)) for one in logged] == [(1, 1.825), (2, 1.795)]
    assert read_training_log(lines) == logged
    arguments = ["evaluate", str(play_all(manifest, tmp_path / "lazy", "lazy"))]
    page = tmp_path / "page.html"
    drawn = [*arguments, "--html", str(page), "--training-log", str(state)]
    assert runner.invoke(app, drawn).exit_code == 0
    assert "first tenth of the run 1.83, of the last 1.80" in page.read_text()
    for wrong in (drawn[:2] + drawn[4:], [*drawn[:-1], str(manifest / "manifest.json")]):
        assert isinstance(runner.invoke(app, wrong).exception, UsageError)


def test_ladder_keeps_questions_and_golds(manifest: Path, tmp_path: Path) -> None:
    opened = open_manifest(manifest)
    for size in LADDER:
        assert resample_manifest(opened, tmp_path / size.name, size) == len(opened.rows)
        resampled = open_manifest(tmp_path / size.name)
        for before, after in zip(opened.rows, resampled.rows, strict=True):
            assert set(after.tables) >= set(after.gold_tables) == set(before.gold_tables)
            assert resampled.database_path(after).is_file()
        play_all(tmp_path / size.name, tmp_path / size.name / "episodes", "oracle")
    assert all(set(r.tables) == set(r.gold_tables) for r in open_manifest(tmp_path / "gold").rows)
    found = runner.invoke(app, ["ladder", str(manifest), "--out", str(tmp_path), "--json"])
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    rungs = document["rungs"]
    # the database has six tables, so 32 more than the gold ones are all of them
    assert document["same_as_full"] == {"gold": 0, "plus32": len(opened.rows)}
    shown = runner.invoke(app, ["ladder", str(manifest), "--out", str(tmp_path)]).stdout
    assert f"plus32 shows the same tables as full on {len(opened.rows)} of" in shown
    assert "gold shows the same" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert all("51.0-100.0%" in line for line in shown.splitlines() if " 100.0% " in line)
    assert [rung["name"] for rung in rungs] == ["gold", "plus32", "full"]
    assert rungs[0]["tables"] < rungs[2]["tables"]
    assert all(rung["official"]["correct"] == rung["official"]["total"] for rung in rungs)


def test_decisive_literals_are_those_that_change_the_result(manifest: Path) -> None:
    env = Environment.open(str(manifest))
    row = next(row for row in env.manifest.rows if "'France'" in row.gold_sql)
    gold = env.manifest.gold(row.gold_id)
    moved = msgspec.structs.replace(gold, digest="of another day")
    with Session.open_file(env.manifest.database_path(row)) as session:
        assert decisive_literals(row, session=session, gold=gold) == ["France"]
        assert decisive_literals(row, session=session, gold=moved) == []


def test_opened_and_wasted_by_hand(manifest: Path) -> None:
    env = Environment.open(str(manifest))
    row = env.manifest.rows[0]
    calls = (
        ToolCall(tool="list_tables", result="singer"),
        ToolCall(tool="describe_table", arguments='{"table_name": "Singer"}'),
        ToolCall(tool="describe_table", arguments='{ "table_name":"Singer"}'),
        ToolCall(tool="describe_table", arguments='{"table_name": "nope"}', failed=True),
        ToolCall(
            tool="run_query", sql="SELECT count(*) FROM album", outcome="ok", arguments='{"sql":1}'
        ),
        ToolCall(tool="run_query", sql="SELECT * FROM venue v", outcome="error"),
    )
    episode = Episode(
        episode_id="a/0",
        row_id=row.row_id,
        ended_by=EndedBy.NO_ANSWER,
        turns=(Turn(index=0, kind="tool", completion="", calls=calls),),
    )
    with Session.open_file(env.manifest.database_path(row)) as session:
        assert opened_tables(episode, session.connection) == {"singer", "album"}
    assert count_wasted(episode) == 1


def ended(ended_by: EndedBy, source: str, *calls: ToolCall) -> Episode:
    turn = Turn(index=0, kind="tool", completion="", calls=calls)
    return Episode(
        episode_id="a/0", row_id="a", ended_by=ended_by, answer_source=source, turns=(turn,)
    )


def judged(episode: Episode, question: str = "") -> JudgedEpisode:
    verdict = QuestionVerdict(
        question_id=question or episode.row_id,
        official="equal",
        strict="equal",
        ended_by=episode.ended_by,
    )
    return JudgedEpisode(verdict=verdict, shares=describe_actions(episode))


def test_a_fallback_is_one_whatever_ended_the_episode() -> None:
    episodes = [
        ended(EndedBy.FALLBACK, "last_working_query"),
        ended(EndedBy.TOKEN_BUDGET, "last_working_query"),
        ended(EndedBy.CALL_BUDGET, "final_turn"),
        ended(EndedBy.SUBMIT_SQL, "submit_sql"),
    ]
    assert describe_behaviour([judged(episode) for episode in episodes]).fallback_rate == 0.5


def test_intervals_of_behaviour_take_the_question_as_the_unit() -> None:
    def played(row: int, question: int) -> JudgedEpisode:
        how = EndedBy.SUBMIT_SQL if row < 24 else EndedBy.NO_ANSWER
        return judged(Episode(episode_id="e", row_id=str(row), ended_by=how), str(question))

    once = describe_behaviour([played(row, row) for row in range(40)])
    often = describe_behaviour([played(row, row) for row in range(40) for _ in range(8)])
    assert once.submit_rate == often.submit_rate == 0.6
    assert once.intervals["submit_rate"] == pytest.approx(often.intervals["submit_rate"])
    of_two = describe_behaviour([played(row, row // 20) for row in range(40)])
    low, high = of_two.intervals["submit_rate"]
    assert high - low > 0.7, "two questions"
    assert "executable_sql" not in once.intervals, "no SQL was run"


def test_a_refused_submission_made_again_is_no_waste() -> None:
    refused = ToolCall(tool="submit_sql", arguments='{"sql": "SELECT 1"}', failed=True)
    ran = ToolCall(tool="run_query", arguments='{"sql": "SELECT 1"}')
    taken = ToolCall(tool="submit_sql", arguments='{"sql": "SELECT 1"}')
    assert count_wasted(ended(EndedBy.SUBMIT_SQL, "submit_sql", refused, ran, taken)) == 0
    assert count_wasted(ended(EndedBy.SUBMIT_SQL, "submit_sql", ran, ran, taken)) == 1


def test_an_unfinished_rollout_is_judged_and_said_to_be_one(manifest: Path, tmp_path: Path) -> None:
    env, folder = Environment.open(str(manifest)), tmp_path / "part"
    with EpisodeJournal(folder, configuration={"manifest": str(manifest)}) as journal:
        for row, broken in zip(env.manifest.rows[:2], (False, True), strict=True):
            episode = env.new_episode(row)
            if broken:
                episode.fail("the server went away")
            else:
                episode.feed(json.dumps({"tool": "submit_sql", "args": {"sql": row.gold_sql}}))
            episode.close()
            journal.add(episode.record())
    run = evaluate_episodes(folder)  # its configuration names the manifest from the start
    assert (run.evaluation.scores[0].official.correct, run.evaluation.questions) == (1, 2)
    assert ["unfinished" in said or "policy_error" in said for said in run.warnings] == [True, True]


def test_commands_know_the_manifest_of_an_unfinished_rollout(
    manifest: Path, tmp_path: Path
) -> None:
    env, folder = Environment.open(str(manifest)), tmp_path / "part"
    with EpisodeJournal(folder, configuration={"manifest": str(manifest)}) as journal:
        episode = env.new_episode(env.manifest.rows[0])
        episode.feed(json.dumps({"tool": "submit_sql", "args": {"sql": "SELECT 1"}}))
        episode.close()
        journal.add(episode.record())
    page = tmp_path / "page.html"
    for arguments in (["score"], ["evaluate"], ["view", "--html", str(page)]):
        found = runner.invoke(app, [arguments[0], str(folder), *arguments[1:]])
        assert found.exit_code == 0, found.output
    assert env.manifest.rows[0].question in page.read_text()
    shown = runner.invoke(app, ["view", str(folder), "--html", str(page), "--json"])
    counts = {"episodes": 1, "rows_known": 1, "scored": 1}
    head = {"format": "envbuild.view/1", "versions": VERSIONS}
    assert json.loads(shown.stdout) == {**head, "html": str(page), **counts}
    (folder / BEGUN).unlink()
    with pytest.raises(CorpusFolderError, match="--manifest"):
        evaluate_episodes(folder)


@pytest.mark.parametrize(
    "names",
    [
        ("short", "medium", "long"),
        ("easy", "medium", "hard", "extra"),
        ("simple", "moderate", "challenging"),
        ("Simple", "Moderate", "Complex", "Highly Complex"),
        ("b0", "b1", "b2", "b10"),
    ],
)
def test_groups_stand_in_their_own_order(names: tuple[str, ...]) -> None:
    verdicts = [
        QuestionVerdict(question_id=name, bucket=name, official="equal", strict="equal")
        for name in sorted(names)
    ]
    assert [score.name for score in score_by(verdicts, lambda v: v.bucket)] == list(names)


def test_a_draw_depends_on_ids_and_seed_alone() -> None:
    ids = [f"q{n}" for n in range(50)]
    drawn = draw_questions(ids, rows=10, seed=1)
    assert draw_questions([*reversed(ids), *ids], rows=10, seed=1) == drawn
    assert len(set(drawn)) == 10
    assert draw_questions(ids, rows=10, seed=2) != drawn
    assert set(draw_questions(ids, rows=None, seed=1)) == set(ids)


@pytest.mark.parametrize(
    ("text", "literal", "found"),
    [
        ("How many of the pupils are female?", "F", False),
        ("sex = f, please", "F", True),
        ("Which dogs are older?", "dog", True),
        ("Which catalogue?", "cat", False),
        ("a | New York | 3", "new york", True),
        ("Bundesstrasse 7", "%strasse%", True),
        ("strassen", "strasse", False),
        ("anything", "", False),
        ("the C++ course", "C++", True),
    ],
)
def test_a_literal_stands_in_a_text_as_words_of_its_own(
    text: str, literal: str, found: bool
) -> None:
    assert stands_in(text, literal) is found


def test_one_difficulty_in_several_spellings_is_one_group() -> None:
    """BIRD writes `simple`, SynSQL `Simple`: a pool of both has one group of them."""
    questions = [
        *json.loads((shared_data("bird") / "dev.json").read_text())[:40],
        *json.loads((shared_data("synsql") / "data.json").read_text())[:40],
    ]
    written = [q.get("difficulty") or q["sql_complexity"] for q in questions]
    written += ["Simple", "MODERATE", "highly  complex", "Highly Complex", "Highly Complex"]
    verdicts = [
        QuestionVerdict(question_id=str(n), official="equal", strict="equal", difficulty=name)
        for n, name in enumerate(written)
    ]
    scores = score_by(verdicts, lambda v: v.difficulty, by="difficulty")
    names = [score.name for score in scores]
    assert len({name.casefold() for name in names}) == len(names)
    assert {"simple", "moderate", "Highly Complex"} <= set(names)
    assert sum(score.unscored for score in scores) == len(written)


def test_a_question_without_difficulty_is_in_the_last_group_and_rounded_once() -> None:
    """49 of 400 is 12.25 %: Python and a browser would round that half to two sides."""
    verdicts = [
        QuestionVerdict(
            question_id=str(n),
            official="equal",
            strict="equal",
            official_correct=n < 49,
            strict_correct=False,
            difficulty="simple" if n >= 400 else "",
        )
        for n in range(401)
    ]
    found = evaluate_answers(verdicts, name="x", said="")
    assert [(s.by, s.name) for s in found.scores] == [
        ("", "all"),
        ("difficulty", "simple"),
        ("difficulty", "no difficulty"),
    ]
    value = found.scores[2].official.value
    assert value == 0.1225 and percent(value) == "12.2%" and "12.2%" in render_page(found, [])
    assert len(evaluate_answers(verdicts[:9], name="x", said="").scores) == 1


@pytest.mark.parametrize("command", ["score", "evaluate", "view"])
def test_what_holds_no_episodes_is_said_as_it_is(
    command: str, manifest: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    page = ("--html", str(tmp_path / "page.html"))
    for name, said in (("nope", "no folder"), ("file", "is a file"), ("empty", "no episodes in")):
        for named in ((), ("--manifest", str(manifest))):
            options = (*named, *(page if command == "view" else ()))
            found = runner.invoke(app, [command, str(tmp_path / name), *options])
            assert isinstance(found.exception, CorpusFolderError)
            assert said in str(found.exception), (name, named)


def rename_rows(manifest: Path) -> Path:
    rows = [
        msgspec.structs.replace(row, row_id=f"other/{row.row_id}")
        for row in read_records(manifest / ROWS_FILE, ManifestRow)
    ]
    write_records(manifest / ROWS_FILE, rows, ROW_SCHEMA)
    return manifest


def test_questions_that_their_manifest_lost_are_counted(manifest: Path, tmp_path: Path) -> None:
    folder = play_all(manifest, tmp_path / "lazy", "lazy")
    index = folder / "episodes.json"
    other = rename_rows(write_small_manifest(tmp_path))
    index.write_text(index.read_text().replace(str(manifest), str(other)))
    found = runner.invoke(app, ["view", str(folder), "--html", str(tmp_path / "page.html")])
    assert found.exit_code == 0
    assert "questions are not shown" in found.stderr
