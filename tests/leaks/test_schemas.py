"""Schemas of one database are found under another name, and neighbours in kind are not."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from envbuild.leaks.schemas import Profile, SchemaIndex, compare, fold, profile_of, read_values
from envbuild.schema.read import read_schema_of
from envbuild.sql.connect import Connection
from tests.leaks.planted_schemas import (
    KNOWN,
    SHARED_STUDENTS,
    SPIDER_DEV,
    Planted,
    benchmark_records,
    files_with_rows,
    from_record,
    planted_schemas,
    training_records,
)
from tests.shared import shared_data

FOUND = {
    "renamed_tables": 7, "renamed_columns": 7, "subset": 7, "merged": 7, "retyped": 7, "split": 7,
    "translated": 6, "restyled": 7, "prefixed": 7, "extra_columns": 7,
}  # fmt: skip
"""Of seven planted a shape; docs/leaks.md prints them."""


@pytest.fixture(scope="module")
def benchmarks(tmp_path_factory: pytest.TempPathFactory) -> list[Profile]:
    folder = tmp_path_factory.mktemp("benchmarks")
    files = {file.stem: file for file in files_with_rows()}
    found = []
    for record in benchmark_records():
        name = str(record["db_id"])
        file = files.get(name) or built(folder / f"{name}.sqlite", from_record(record))
        found.append(profile(file, name))
    return found


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> list[Profile]:
    folder = tmp_path_factory.mktemp("training")
    return [
        profile(built(folder / f"{number}.sqlite", from_record(record)), str(record["db_id"]))
        for number, record in enumerate(training_records())
    ]


def test_planted_schemas_are_found_and_neighbours_are_not(
    benchmarks: list[Profile], training: list[Profile], tmp_path: Path
) -> None:
    index = SchemaIndex(benchmarks, threshold=0.5)
    right: Counter[str] = Counter()
    wrong = []
    for one in planted_schemas():
        sources = matched(index, profile(built(tmp_path / one.db_id, one), one.db_id))
        right[one.shape] += one.source in sources
        wrong += [(one.db_id, other) for other in sources if other != one.source]
    real = {(one.db_id, other) for one in training for other in matched(index, one)}
    for file in sorted(shared_data("synsql", "databases").glob("*/*.sqlite")):
        wrong += [(file.stem, other) for other in matched(index, profile(file, file.stem))]
    known = {*KNOWN, *SHARED_STUDENTS}
    wrong += sorted(real - known)
    assert known <= real
    assert right == FOUND
    assert wrong == [("student_assessment", "student_transcripts_tracking")]
    planted = right.total()
    assert planted / 70 >= 0.95
    assert planted / (planted + len(wrong)) >= 0.95


def test_three_of_3154_real_pairs_are_one_database(
    benchmarks: list[Profile], training: list[Profile]
) -> None:
    bare = [one._replace(values={}) for one in (*benchmarks, *training)]
    others = [one for one in bare[: len(benchmarks)] if one.db_id not in SPIDER_DEV]
    spider = [one for one in bare if one not in others]
    assert len(spider) * len(others) == 3154
    index = SchemaIndex(others, threshold=0.5)
    assert {(one.db_id, other) for one in spider for other in matched(index, one)} == set(KNOWN)


def test_the_index_misses_no_pair(benchmarks: list[Profile], training: list[Profile]) -> None:
    for threshold in (0.2, 0.5, 0.9):
        index = SchemaIndex(benchmarks, threshold=threshold)
        for one in training:
            every = {b.db_id for b in benchmarks if compare(one, b).score >= threshold}
            assert set(matched(index, one)) == every


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("StudentIDs", ("student", "id")),
        ("tbl_the_addresses", ("address",)),
        ("zipCode2", ("zip", "code", "2")),
        ("Höchste Größe", ("höchste", "grösse")),
        ("of", ("of",)),
        ("", ("",)),
    ],
)
def test_names_are_folded(name: str, words: Iterable[str]) -> None:
    assert fold(name) == words


def matched(index: SchemaIndex, one: Profile) -> list[str]:
    return [match.other.db_id for match in index.matches(one)]


def built(file: Path, one: Planted) -> Path:
    connection = Connection(str(file))
    connection.execute(f"BEGIN; {one.script()} COMMIT;")
    connection.close()
    return file


def profile(file: Path, name: str) -> Profile:
    schema = read_schema_of(file)
    return profile_of(schema, name, read_values(file, schema))
