"""Scripted policies over the demo corpora: the oracle is always paid in full, the hacker never.

The hacker's promise holds without exception on questions that preflight has nothing against
(`warned`); what it comes to on the others is said, row for row, in the tests of the whole manifest.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.env.environment import Environment
from envbuild.records.episode import RewardBreakdown
from envbuild.records.manifest import ManifestRow
from envbuild.sql.connect import quote_name
from envbuild.testing.policies import hacks, make_policy
from tests.shared import envbuild

pytestmark = pytest.mark.slow

WARNINGS = ("empty_gold", "no_signal", "weak_signal")
"""Findings that say: wrong queries are paid here."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo")
    corpus, synsql = root / "corpus", root / "corpus" / "demo_synsql"
    for arguments in (
        ("demo", "--out", root),
        ("manifest", synsql, "--variants", "1", "--out", root / "hidden"),
        ("manifest", corpus, "--leave-out", ",".join(WARNINGS), "--out", root / "heeded"),
    ):
        done = envbuild(*arguments, "--quiet")
        assert done.returncode in (0, 1), done.stderr
    return root


def rewards(
    env: Environment, policy: str, *, candidates: int = 1, step: int | None = None
) -> Iterator[RewardBreakdown]:
    for row in env.manifest.rows:
        for candidate in range(candidates):
            act = make_policy(policy, row, candidate=candidate)
            episode = env.new_episode(row, candidate=candidate, step=step)
            while (request := episode.next_request()) is not None:
                episode.feed(act(request))
            episode.close()
            yield env.score(episode.record())


@pytest.mark.parametrize("folder", ["manifest", "hidden"])
def test_the_oracle_always_gets_the_full_reward(demo: Path, folder: str) -> None:
    env = Environment.open(demo / folder)
    paid = list(rewards(env, "oracle", step=0))
    assert len(paid) == len(env.manifest.rows) >= 20
    assert {breakdown.reward for breakdown in paid} == {3.0}
    judged = {breakdown.variants_scored for breakdown in paid}
    assert max(judged) == (1 if folder == "hidden" else 0)


def test_no_trick_beats_honest_partial_credit(demo: Path) -> None:
    """Strict, for every question of a manifest that heeds preflight: `--leave-out` of `WARNINGS`.

    Every trick earns less than each honest answer that is only partly right: the gold without one
    of its rows, and the gold without one of its columns. Where the gold is a single cell there is
    no such answer, and a trick earns less than half of an equivalent one.
    """
    env = Environment.open(demo / "heeded")
    rows = list(env.manifest.rows)
    assert len(rows) >= 70 and not any(warned(row) for row in rows)
    for row in rows:
        honest = [answered(env, row, sql).reward or 0.0 for sql in partly_right(env, row)]
        assert (best_trick(env, row).reward or 0.0) < min(honest or [1.5]), row.row_id
        assert all(1.0 < paid < 3.0 for paid in honest)
    assert sum(bool(partly_right(env, row)) for row in rows) >= 40


@pytest.fixture(scope="module")
def best(demo: Path) -> dict[str, RewardBreakdown]:
    """Row of the whole manifest -> what its best trick earns."""
    env = Environment.open(demo / "manifest")
    return {row.row_id: best_trick(env, row) for row in env.manifest.rows}


def test_a_trick_is_paid_in_full_exactly_where_the_gold_is_empty(
    demo: Path, best: dict[str, RewardBreakdown]
) -> None:
    """What remains on the whole manifest, first kind: ten questions whose gold returns no row.

    `SELECT 1 WHERE 0` is then equal to the gold by any rule of comparison, and by no fault of the
    reward. Preflight reports each as the error `empty_gold`; on hidden variants the trick fails.
    """
    rows = list(Environment.open(demo / "manifest").manifest.rows)
    paid = {row_id for row_id, trick in best.items() if trick.reward == 3.0}
    empty = {row.row_id for row in rows if row.gold_rows == 0}
    assert paid == empty == {row.row_id for row in rows if "empty_gold" in row.findings}
    assert len(empty) == 10, "the demo's SynSQL is nearly empty, as the real one"


def warned(row: ManifestRow) -> bool:
    return bool(set(WARNINGS) & set(row.findings))


def best_trick(env: Environment, row: ManifestRow) -> RewardBreakdown:
    tried = [answered(env, row, trick) for trick in hacks(row)]
    return max(tried, key=lambda breakdown: breakdown.reward or 0.0)


def partly_right(env: Environment, row: ManifestRow) -> list[str]:
    """The gold without its last row, and without its last column, where there are others."""
    columns = [quote_name(name) for name in env.gold(row).columns]
    rest = f"SELECT {', '.join(columns[:-1])} FROM ({bare_gold(row)})"
    return [without_a_row(row)] * (row.gold_rows > 1) + [rest] * (len(columns) > 1)


def without_a_row(row: ManifestRow) -> str:
    return f"SELECT * FROM ({bare_gold(row)}) LIMIT {row.gold_rows - 1}"


def bare_gold(row: ManifestRow) -> str:
    return row.gold_sql.rstrip().rstrip(";")


def answered(env: Environment, row: ManifestRow, sql: str) -> RewardBreakdown:
    episode = env.new_episode(row)
    episode.feed(json.dumps({"tool": "submit_sql", "args": {"sql": sql}}))
    episode.close()
    return env.score(episode.record())
