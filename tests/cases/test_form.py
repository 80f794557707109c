"""The driver itself: a key that nobody knows fails its case, a wrong expectation too."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cases.databases import Run
from tests.cases.form import ONE_OF, Case, is_note, read_cases, same_rows
from tests.cases.test_cases import CAPABILITIES, HERE, broken_off_after, run

OURS = [*read_cases(HERE / "cases.jsonl"), *read_cases(HERE / "own.jsonl")]


def test_ids_are_unique() -> None:
    """A case is found by its id."""
    ids = [case.id for case in OURS]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", CAPABILITIES)
def test_every_key_is_used(name: str, tmp_path: Path) -> None:
    """What the driver claims to know, some case shows."""
    cases = [case for case in OURS if case.capability == name]
    capability = CAPABILITIES[name]
    assert not set(capability.keys.split()) - {key for case in cases for key in case.input}
    used = {key for case in cases for key in case.expected}
    steps = [step.get("expect", {}) for case in cases for step in case.input.get("steps", [])]
    used.update(*steps)
    used |= {key.removesuffix(ONE_OF) for key in used}
    given = {"db_ids": ["a"]} if name == "materialize" else {}
    with ExitStack() as opened:
        empty = Run(given=given, expected={}, folder=tmp_path, opened=opened)
        patterns = list(capability.checks_of(empty))
    unused = [p for p in patterns if not any(re.fullmatch(p, key) for key in used)]
    assert not [p for p in unused if p.removesuffix("_each") not in used], unused


@pytest.mark.parametrize(
    ("capability", "input", "expected"),
    [
        ("no such capability", {}, {}),
        ("gold tables", {"ddl": "", "sql": "SELECT 1", "zzz": 1}, {}),
        ("gold tables", {"ddl": "", "sql": "SELECT 1"}, {"zzz": 1}),
        ("exec+timeout", {"steps": [{"sql": "SELECT 1", "expect": {"zzz": 1}}]}, {}),
        ("exec+timeout", {"steps": [{"sql": "SELECT 1", "zzz": 1}]}, {}),
        ("compare+reward", {"cases": [{"match": True, "zzz": 1}]}, {"rewards": [3.0]}),
        ("exec+timeout", {"sql": "SELECT 1"}, {"rows": [[1.0]]}),
        ("exec+timeout", {"sql": "SELECT nope"}, {"status": "ok"}),
        ("materialize", {"ddl": "CREATE TABLE t(a)", "payload": {}}, {"tables": ["u"]}),
        ("mask+bucket", {"sql": "SELECT 1"}, {"literals": ["2"]}),
        ("gold tables", {"ddl": "CREATE TABLE t(a)", "sql": "SELECT a FROM t"}, {"error": "x"}),
        ("FK graph+sampler", {"ddl": "CREATE TABLE t(a)"}, {"n_edges": 1}),
        ("tool protocol", {"turn": '{"tool": "list_tables"}'}, {"turn1": "error_result"}),
        ("compare+reward", {"gold": [[1]], "pred": [[2]]}, {"official": True}),
        ("manifest", {"records": [{"id": "a", "v": 1}]}, {"roundtrip_typed": {"v": [1.0]}}),
    ],
)
def test_a_wrong_case_fails(
    capability: str, input: dict[str, object], expected: dict[str, object], tmp_path: Path
) -> None:
    """The checks can fail."""
    case = Case(id="wrong", capability=capability, input=input, expected=expected)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run(case, tmp_path)


def test_rows_are_compared_with_their_types() -> None:
    """1 and 1.0 are different values, -0.0 and 0.0 are not."""
    same_rows([(-0.0, b"\xff")], [[0.0, {"$hex": "ff"}]])
    with pytest.raises(AssertionError):
        same_rows([(1,)], [[1.0]])
    assert is_note("target4_note")


def test_a_case_that_takes_too_long_is_broken_off() -> None:
    """At ten times what it says, and after minutes where it says nothing."""
    quick = {"max_wall_s": 0.5}
    steps = {"steps": [{"sql": "SELECT 1", "expect": quick}]}
    assert Case(id="a", capability="", input={}, expected={}).seconds == 300
    assert Case(id="a", capability="", input=steps, expected={"max_total_s": 2}).seconds == 25
    with pytest.raises(pytest.fail.Exception, match="still running"), broken_off_after(0.05):
        while True:
            pass
