"""Every case of `cases.jsonl` and `own.jsonl`, or of the file that $ENVBUILD_CASES names."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cases.agent_cases import Protocol, Trainers
from tests.cases.corpus_cases import Graph, Materialize, Preflight
from tests.cases.form import Capability, Case, read_cases
from tests.cases.manifest_cases import CommandLine, Manifest
from tests.cases.sql_cases import Execution, GoldTablesOfQuery, Mask, Reward

HERE = Path(__file__).parent
CAPABILITIES: dict[str, type[Capability]] = {
    "materialize": Materialize,
    "preflight": Preflight,
    "mask+bucket": Mask,
    "gold tables": GoldTablesOfQuery,
    "FK graph+sampler": Graph,
    "tool protocol": Protocol,
    "exec+timeout": Execution,
    "compare+reward": Reward,
    "manifest": Manifest,
    "trainer adapters": Trainers,
    "CLI": CommandLine,
}


def _files() -> list[Path]:
    named = os.environ.get("ENVBUILD_CASES")
    return [Path(named)] if named else [HERE / "cases.jsonl", HERE / "own.jsonl"]


CASES = [case for file in _files() for case in read_cases(file)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the package makes of the input is what the case expects."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "case"
    folder.mkdir()
    with broken_off_after(case.seconds):
        run(case, folder)


def run(case: Case, folder: Path) -> None:
    """Runs one case in an empty folder."""
    assert case.capability in CAPABILITIES, f"unknown capability {case.capability!r}"
    capability = CAPABILITIES[case.capability](case, folder)
    capability.refuse_unknown_keys()
    capability.run()


@contextmanager
def broken_off_after(seconds: float) -> Iterator[None]:
    """Fails the test where its body is still running after so many seconds."""

    def stop(number: int, frame: object) -> None:
        pytest.fail(f"still running after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
