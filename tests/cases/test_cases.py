"""Every case of `cases.jsonl` and `own.jsonl`, or of the file that $ENVBUILD_CASES names."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cases.agent_cases import protocol, trainers
from tests.cases.corpus_cases import graph, materialize, preflight
from tests.cases.databases import Run
from tests.cases.form import Case, Checks, check_all, read_cases, refuse_unknown
from tests.cases.manifest_cases import command_line, manifest
from tests.cases.sql_cases import compare, execution, gold_tables, mask

HERE = Path(__file__).parent


class Capability(NamedTuple):
    """What is done with the input of a case, and the keys that it may have."""

    checks_of: Callable[[Run], Checks]
    keys: str


CAPABILITIES = {
    "materialize": Capability(materialize, "ddl payload ddl_dialect db_ids db_id"),
    "preflight": Capability(preflight, "ddl payload gold_sql queries timeout_s"),
    "mask+bucket": Capability(mask, "sql ddl identifiers masked_lengths edges masked_text mask"),
    "gold tables": Capability(gold_tables, "ddl sql"),
    "FK graph+sampler": Capability(
        graph,
        "ddl ddl_dialect gold_tables targets target seed hashseeds sample distractors extra full",
    ),
    "tool protocol": Capability(protocol, "turn turns ddl calls calls_per_turn queries final"),
    "exec+timeout": Capability(
        execution, "ddl sql statements steps timeout_s row_cap gold_sql repeat forbidden_files"
    ),
    "compare+reward": Capability(
        compare,
        "gold pred pred2 pred3 preds ddl gold_sql pred_sql pred_sqls tolerance cases groups "
        "timeout_s row_cap swap sqls stored_gold_rows stored_with_sqlite",
    ),
    "manifest": Capability(
        manifest, "shards records known_db_ids ddl gold pred_in_file_order inputs hashseeds"
    ),
    "trainer adapters": Capability(
        trainers,
        "record records databases target call_from ddl gold_sql preds timeout_s completions_a "
        "completions_b columns sql samples n_good bad golds sqls n ulimit_n",
    ),
    "CLI": Capability(
        command_line, "records file_bytes_hex lines n_records kill_after_s samples buckets"
    ),
}
NAMED = os.environ.get("ENVBUILD_CASES")
FILES = [Path(NAMED)] if NAMED else [HERE / "cases.jsonl", HERE / "own.jsonl"]


@pytest.mark.parametrize("case", [c for f in FILES for c in read_cases(f)], ids=lambda c: c.id)
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
    capability = CAPABILITIES[case.capability]
    refuse_unknown([key for key in case.input if key not in capability.keys.split()], "input")
    with ExitStack() as opened:
        given = Run(given=case.input, expected=case.expected, folder=folder, opened=opened)
        check_all(capability.checks_of(given), case.expected)


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
