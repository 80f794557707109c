"""`envbuild play`, as a person or a pipe uses it."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from envbuild.cli.episodes import completion_of
from tests.shared import envbuild
from tests.small_manifest import QUESTIONS, write_small_manifest


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_manifest(tmp_path_factory.mktemp("music"))


def play(manifest: Path, typed: str, *options: str) -> CompletedProcess[str]:
    return envbuild("play", manifest, *options, typed=typed, COLUMNS="100")


def test_a_played_episode_ends_with_its_breakdown(manifest: Path) -> None:
    gold = QUESTIONS[0].gold
    done = play(manifest, f"help\ntables\ndescribe SINGER\nsql {gold}\nsubmit {gold}\ntables\n")
    assert done.returncode == 0, done.stderr
    assert "CREATE TABLE singer" in done.stdout and "[3 tool turns left" in done.stdout
    assert "distinct TABLE COLUMN" in done.stdout
    assert ["reward", "3"] in [line.split() for line in done.stdout.splitlines()]
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_a_slip_of_the_hand_costs_no_turn(manifest: Path) -> None:
    done = play(manifest, "foo\nSELECT 1\nschema singer\ntables\n{broken\nsubmit SELECT 1\n")
    assert done.stdout.count("No such word") == 3
    assert ["turns", "3"] in [line.split() for line in done.stdout.splitlines()]


def test_json_is_one_document(manifest: Path) -> None:
    done = play(manifest, "submit SELECT 1", "--json", "--row", "music/music/1")
    document = json.loads(done.stdout)
    assert document["format"] == "envbuild.play/1"
    assert document["episode"]["row_id"] == document["reward"]["row_id"] == "music/music/1"
    assert document["reward"]["tier"] == "executable"


def test_leaving_early_and_wrong_rows(manifest: Path) -> None:
    left = play(manifest, "tables\n")
    assert left.returncode == 0 and "policy_error" in left.stdout
    wrong = play(manifest, "", "--row", "nope")
    assert (wrong.returncode, wrong.stdout) == (2, "") and "no row 'nope'" in wrong.stderr
    assert play(manifest.parent / "absent", "").returncode == 2


@pytest.mark.parametrize(
    ("line", "tool", "arguments"),
    [
        ("tables", "list_tables", {}),
        ("keys", "foreign_keys", {}),
        ("Describe 'two words'", "describe_table", {"table_name": "two words"}),
        ("sample t 3", "sample_rows", {"table_name": "t", "limit": 3}),
        ("sample t x", "sample_rows", {"table_name": "t", "limit": "x"}),
        ("path a b c", "join_path", {"table_a": "a", "table_b": "b", "extra_1": "c"}),
        ("sql  SELECT 'a  b'", "run_query", {"sql": "SELECT 'a  b'"}),
        ("describe it's", "describe_table", {"table_name": "it's"}),
    ],
)
def test_words(line: str, tool: str, arguments: dict[str, object]) -> None:
    assert json.loads(completion_of(line)) == {"tool": tool, "args": arguments}


def test_anything_else_is_taken_as_it_is() -> None:
    assert completion_of('{"tool": "x"} SELECT 1') == '{"tool": "x"} SELECT 1'
