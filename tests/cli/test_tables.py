"""Tables show cells as they are, whatever they hold."""

from pathlib import Path

import pytest

from envbuild.cli.options import default_corpus
from envbuild.cli.output import Result, finish, print_table, print_wrapped
from envbuild.records.corpus import counted


def test_cells_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "[b]"), [("[/y]", "[bold]x"), (1, None)], title="[red]t")
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("[/y]", "[bold]x", "[b]", "[red]t"))


def test_a_number_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    headers = ("view", *(f"number {n}" for n in range(7)))
    print_table(headers, [("a long name of a view", *["96.5-100.0%"] * 7)], right=range(1, 8))
    shown = capsys.readouterr().out
    assert shown.count("96.5-100.0%") == 7
    assert "\u2026" not in shown


def test_a_sentence_is_broken_between_words(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = " ".join(["word-with-hyphens"] * 20)
    print_wrapped(sentence)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1 and all(len(line) <= 80 for line in lines)
    assert " ".join(lines) == sentence


def test_one_is_not_plural() -> None:
    assert [counted(n, "row") for n in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert counted(1, "gold query", "gold queries") == "1 gold query"
    assert counted(2, "gold query", "gold queries") == "2 gold queries"


def test_a_demo_is_taken_where_there_is_no_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ENVBUILD_CORPUS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert default_corpus() == Path("corpus")
    demo = Path("envbuild-demo", "corpus")
    demo.mkdir(parents=True)
    assert (default_corpus(), str(demo) in capsys.readouterr().err) == (demo, True)
    Path("corpus").mkdir()
    assert default_corpus() == Path("corpus")


def test_a_command_ends_with_the_next_one(capsys: pytest.CaptureFixture[str]) -> None:
    for json, said in ((False, "wrote a b; next: envbuild preflight 'a b'\n"), (True, "")):
        place = Path("a b")
        result = Result({}, str, wrote=place, following=("preflight", place))
        assert finish("x", result, json=json) == 0
        assert capsys.readouterr().err == said
