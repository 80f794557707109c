"""Predictions files of every form, and the ones that must be refused."""

from pathlib import Path

import msgspec
import pytest

from envbuild.errors import SourceError
from envbuild.evaluate.answers import BIRD_SEPARATOR, read_predictions
from envbuild.records.corpus import Question


def questions(*ids_and_databases: tuple[str, str]) -> list[Question]:
    return [
        Question(question_id=key, db_id=db, question="?", gold_sql="SELECT 1")
        for key, db in ids_and_databases
    ]


BIRD = questions(("7", "a"), ("8", "a"), ("0", "b"))


def write(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "predictions"
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    path.write_text(text)
    return path


def bird(**sql: tuple[str, str]) -> dict[str, str]:
    return {key: text + BIRD_SEPARATOR + db for key, (text, db) in sql.items()}


def test_bird_keys_are_told_apart_by_database(tmp_path: Path) -> None:
    by_id = write(tmp_path, bird(**{"7": ("A", "a"), "8": ("B", "a"), "0": ("C", "b")}))
    assert read_predictions(by_id, BIRD).sql == {"7": "A", "8": "B", "0": "C"}
    by_position = write(tmp_path, bird(**{"0": ("A", "a"), "1": ("B", "a"), "2": ("C", "b")}))
    read = read_predictions(by_position, BIRD)
    assert read.sql == {"7": "A", "8": "B", "0": "C"}
    assert "position" in read.said


def test_bird_keys_that_fit_both_ways_are_asked_about(tmp_path: Path) -> None:
    path = write(tmp_path, {"0": "X"})
    with pytest.raises(SourceError, match="JSON lines with question_id"):
        read_predictions(path, BIRD)


def test_bird_of_another_split_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, bird(**{"7": ("A", "zzz")}))
    with pytest.raises(SourceError):
        read_predictions(path, BIRD)


def test_spider_lines_keep_their_places(tmp_path: Path) -> None:
    path = write(tmp_path, "SELECT 1\n\nSELECT 3\tb\n")
    assert read_predictions(path, BIRD).sql == {"7": "SELECT 1", "0": "SELECT 3"}
    with pytest.raises(SourceError, match="2 lines for 3 questions"):
        read_predictions(write(tmp_path, "SELECT 1\nSELECT 2\n"), BIRD)


def test_json_lines_are_keyed_by_id(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '\ufeff{"id": 0, "predicted_sql": "C"}\r\n\r\n{"id": "7", "predicted_sql": null}\n'
        '{"id": "99", "predicted_sql": "Z"}\n',
    )
    read = read_predictions(path, BIRD)
    assert read.sql == {"0": "C"}
    assert read.unknown == ("99",)
    with pytest.raises(SourceError, match="twice"):
        read_predictions(write(tmp_path, '{"id":"7","sql":"A"}\n{"id":"7","sql":"B"}'), BIRD)
    with pytest.raises(SourceError, match="needs one of"):
        read_predictions(write(tmp_path, '{"id":"7","text":"A"}\n'), BIRD)


def test_ids_of_another_subset_are_matched_by_text_or_refused(tmp_path: Path) -> None:
    here = [
        Question(question_id="0", db_id="b", question="How  many?", gold_sql="SELECT 1"),
        Question(question_id="1", db_id="a", question="How many?", gold_sql="SELECT 2"),
    ]
    with_text = (
        '{"id":"1","db_id":"b","question":"How many?","sql":"B"}\n'
        '{"id":"5","db_id":"a","question":"How many?","sql":"A"}\n'
        '{"id":"9","db_id":"c","question":"Which?","sql":"C"}\n'
    )
    read = read_predictions(write(tmp_path, with_text), here)
    assert read.sql == {"0": "B", "1": "A"}
    assert read.unknown == ("9",)
    assert "question text" in read.said
    with pytest.raises(SourceError, match="another release or subset"):
        read_predictions(write(tmp_path, '{"id":"1","db_id":"b","sql":"B"}'), here)


@pytest.mark.parametrize("nothing", ["NaN", "null", "0", "-Infinity"])
def test_what_is_no_text_is_no_prediction_and_no_other_line_suffers(
    tmp_path: Path, nothing: str
) -> None:
    bird_form = write(tmp_path, f'{{"7": {nothing}, "8": "B\\t----- bird -----\\ta"}}')
    assert read_predictions(bird_form, BIRD).sql == {"8": "B"}
    records = [f'{{"id": 7, "sql": {nothing}}}', '{"id": 8, "sql": "B", "score": NaN}']
    lines = write(tmp_path, "\n".join(records))
    assert read_predictions(lines, BIRD).sql == {"8": "B"}
    array = write(tmp_path, f"[{', '.join(records)}]")
    assert read_predictions(array, BIRD).sql == {"8": "B"}


def test_entries_without_an_id_are_counted_as_unknown(tmp_path: Path) -> None:
    lost = '{"id": NaN, "sql": "A"}'
    path = write(tmp_path, f'{lost}\n{{"id": "8", "sql": "B"}}\n{lost}')
    read = read_predictions(path, BIRD)
    assert read.sql == {"8": "B"}
    assert read.unknown == ("(no id)", "(no id)")
