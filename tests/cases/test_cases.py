"""Every case of `cases.jsonl` and `own.jsonl`, or of the file that $ENVBUILD_CASES names."""

import importlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cases.form import Case, read_cases

HERE = Path(__file__).parent
CAPABILITIES = {
    "materialize": "run_materialize",
    "preflight": "run_preflight",
    "mask+bucket": "run_mask",
    "gold tables": "run_gold_tables",
    "FK graph+sampler": "run_graph",
    "tool protocol": "run_protocol",
    "exec+timeout": "run_exec",
    "compare+reward": "run_reward",
    "manifest": "run_manifest",
    "trainer adapters": "run_trainers",
    "CLI": "run_cli",
}
"""Capability -> the module that runs its cases."""


def _files() -> list[Path]:
    named = os.environ.get("ENVBUILD_CASES")
    return [Path(named)] if named else [HERE / "cases.jsonl", HERE / "own.jsonl"]


CASES = [case for file in _files() for case in read_cases(file)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the package makes of the input is what the case expects."""
    assert case.capability in CAPABILITIES, f"unknown capability {case.capability!r}"
    module = importlib.import_module(f"tests.cases.{CAPABILITIES[case.capability]}")
    module.CHECKS.refuse_unknown(case)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "case"
    folder.mkdir()
    with broken_off_after(case.seconds):
        module.run(case, folder)


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
