"""Comparisons over real evaluation files: pairing by id, several seeds, correction."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.errors import CorpusFolderError, UsageError
from envbuild.evaluate.statistics import (
    VERDICTS_FILE,
    compare_all,
    read_side,
    read_sides,
)
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.records.evaluation import QuestionVerdict
from tests.evaluate.test_statistics import AFTER, BEFORE


def write_evaluation(
    folder: Path,
    correct: dict[str, bool | None],
    *,
    rule: str = "official@1",
    hidden: dict[str, str] | None = None,
) -> str:
    rows = [
        QuestionVerdict(
            question_id=key,
            official_name=rule,
            db_id=f"db{int(key) % 7}",
            official="equal" if right else "gold_error" if right is None else "different",
            strict="different",
            official_correct=right,
            strict_correct=None if right is None else False,
            hidden=(hidden or {}).get(key, ""),
        )
        for key, right in correct.items()
    ]
    write_records(folder / VERDICTS_FILE, rows, arrow_schema(QuestionVerdict))
    return str(folder)


def numbered(values: list[bool]) -> dict[str, bool | None]:
    return {str(i): value for i, value in enumerate(values)}


def test_published_case_from_files_in_another_order(tmp_path: Path) -> None:
    before = write_evaluation(tmp_path / "before", numbered(BEFORE))
    backwards = dict(reversed(numbered(AFTER).items()))
    after = write_evaluation(tmp_path / "after", backwards)
    (found,) = compare_all([read_side(before), read_side(after)])
    assert (found.only_first, found.only_second) == (15, 30)
    assert round(found.p, 4) == 0.0357
    assert found.delta == pytest.approx(0.05)
    assert found.holm == found.p
    assert found.test == "mcnemar_exact"
    assert found.left_out == 0
    assert found.detectable is not None and found.detectable > found.delta


def test_two_that_agree_everywhere_tell_nothing_of_what_could_be_found(tmp_path: Path) -> None:
    sides = [write_evaluation(tmp_path / name, numbered([False] * 9)) for name in ("a", "b")]
    (found,) = compare_all(read_sides(sides))
    assert (found.delta, found.p, found.detectable) == (0.0, 1.0, None)


def test_unscored_questions_are_left_out_and_counted(tmp_path: Path) -> None:
    a = write_evaluation(tmp_path / "a", {"1": True, "2": None, "3": False, "5": True})
    b = write_evaluation(tmp_path / "b", {"1": True, "2": True, "3": True, "4": True})
    (found,) = compare_all([read_side(a), read_side(b)])
    assert found.questions == 2
    assert found.left_out == 3


def test_a_family_of_pairs_is_corrected(tmp_path: Path) -> None:
    sides = [
        read_side(write_evaluation(tmp_path / name, numbered(values)))
        for name, values in (("a", BEFORE), ("b", AFTER), ("c", BEFORE))
    ]
    found = compare_all(sides)
    assert [(c.first, c.second) for c in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert found[0].holm == pytest.approx(min(1.0, 3 * found[0].p))
    assert found[0].holm > 0.05 > found[0].p


def test_several_seeds_keep_the_question_as_the_unit(tmp_path: Path) -> None:
    folders = [
        write_evaluation(tmp_path / f"run{i}", numbered(values))
        for i, values in enumerate((BEFORE, AFTER, AFTER))
    ]
    several = read_side(",".join(folders[:2]))
    (found,) = compare_all([several, read_side(folders[2])])
    assert found.questions == 300
    assert found.test == "sign_flip"
    assert several.noise is not None and several.noise.flipped == pytest.approx(45 / 300)
    assert read_side(folders[2]).noise is None


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    a = write_evaluation(tmp_path / "a", {"1": True})
    b = write_evaluation(tmp_path / "b", {"2": True})
    with pytest.raises(UsageError, match="share no scored question"):
        compare_all([read_side(a), read_side(b)])
    with pytest.raises(UsageError, match="at least two"):
        compare_all([read_side(a)])
    with pytest.raises(CorpusFolderError, match="envbuild evaluate"):
        read_side(str(tmp_path / "none"))


def test_different_rules_are_not_compared(tmp_path: Path) -> None:
    a = write_evaluation(tmp_path / "a", {"1": True})
    b = write_evaluation(tmp_path / "b", {"1": True}, rule="testsuite@1")
    with pytest.raises(UsageError, match="official@1, testsuite@1"):
        compare_all(read_sides([a, b]))
    assert compare_all(read_sides([a, b], rule="strict"))


def test_sides_of_one_folder_name_are_told_apart(tmp_path: Path) -> None:
    paths = [tmp_path / run / "episodes" for run in ("base", "tuned")]
    texts = [write_evaluation(path, {"1": True}) for path in paths]
    assert [side.name for side in read_sides(texts)] == texts


def test_hidden_verdicts_are_compared_where_both_sides_have_them(tmp_path: Path) -> None:
    right: dict[str, bool | None] = {str(n): True for n in range(8)}
    lucky = {str(n): "equal" if n < 2 else "different" for n in range(6)}
    sound = {str(n): "equal" for n in range(7)}
    first = write_evaluation(tmp_path / "lucky", right, hidden=lucky)
    second = write_evaluation(tmp_path / "sound", right, hidden=sound, rule="testsuite@1")
    (found,) = compare_all(read_sides([first, second], rule="hidden"))
    assert (found.questions, found.left_out) == (6, 2)
    assert (found.only_first, found.only_second) == (0, 4)
    plain = write_evaluation(tmp_path / "plain", right)
    with pytest.raises(UsageError, match="plain carries no hidden@1 verdict"):
        read_sides([first, plain], rule="hidden")


def test_the_command_names_its_rule_and_no_p_is_zero(tmp_path: Path) -> None:
    right: dict[str, bool | None] = {str(n): True for n in range(40)}
    wrong: dict[str, bool | None] = dict.fromkeys(right, False)
    equal = dict.fromkeys(right, "equal")
    first = write_evaluation(tmp_path / "first", right, hidden=dict.fromkeys(right, "different"))
    second = write_evaluation(tmp_path / "second", wrong, hidden=equal)
    plain = CliRunner().invoke(app, ["compare", first, second]).stdout
    assert "first against second by official@1 (1 comparison in this family)" in plain
    assert "EX of first" in plain
    assert plain.count("<0.0001") == 3
    hidden = CliRunner().invoke(app, ["compare", first, second, first, "--rule", "hidden"]).stdout
    assert "by hidden@1 (3 comparisons in this family)" in hidden
    assert "hidden@1 of second" in hidden
    assert "EX of" not in hidden
