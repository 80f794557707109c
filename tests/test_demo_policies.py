"""Scripted policies over the demo corpora: the oracle is always paid in full, the hacker never."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.environment import Environment
from envbuild.records.reward import RewardBreakdown
from envbuild.testing.policies import POLICIES, hacks, make_policy

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo")
    envbuild("demo", "--out", str(root), "--quiet")
    synsql = str(root / "corpus" / "demo_synsql")
    envbuild("manifest", synsql, "--variants", "1", "--out", str(root / "hidden"), "--quiet")
    return root


def envbuild(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "envbuild", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr


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


def test_the_demo_as_one_document(demo: Path) -> None:
    command = [sys.executable, "-m", "envbuild", "demo", "--out", str(demo), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["format"] == "envbuild.demo/1"
    names = [stage["name"] for stage in document["stages"]]
    assert names == ["materialize", "preflight", "buckets", "manifest"]
    assert document["rows_per_table"]["demo_synsql"]["median"] == 2
    assert document["rows"] == len(Environment.open(document["manifest"]).manifest.rows)


@pytest.mark.parametrize("folder", ["manifest", "hidden"])
def test_the_oracle_always_gets_the_full_reward(demo: Path, folder: str) -> None:
    env = Environment.open(demo / folder)
    paid = list(rewards(env, "oracle", step=0))
    assert len(paid) == len(env.manifest.rows) >= 20
    assert {breakdown.reward for breakdown in paid} == {3.0}
    judged = {breakdown.variants_scored for breakdown in paid}
    assert max(judged) == (1 if folder == "hidden" else 0)


def test_no_trick_is_paid_like_an_answer(demo: Path) -> None:
    env = Environment.open(demo / "hidden")
    tricks = max(len(hacks(row)) for row in env.manifest.rows)
    worst = max(breakdown.reward or 0.0 for breakdown in rewards(env, "hacker", candidates=tricks))
    assert worst <= 2.1, "right on the sparse visible database alone, at most"


def test_tricks_are_paid_only_where_preflight_found_an_empty_gold(demo: Path) -> None:
    env = Environment.open(demo / "manifest")
    tricks = max(len(hacks(row)) for row in env.manifest.rows)
    paid = {b.row_id for b in rewards(env, "hacker", candidates=tricks) if b.reward == 3.0}
    assert paid, "the demo's SynSQL is nearly empty, as the real one"
    assert all("empty_gold" in env.row(row_id).findings for row_id in paid)


def test_tricks_earn_less_than_honest_partial_credit_unless_preflight_warned(demo: Path) -> None:
    """Honest: the gold's rows but one. `SELECT *` may beat that on tables of two or three rows."""
    env = Environment.open(demo / "manifest")
    rows = [row for row in env.manifest.rows if row.gold_rows >= 2]
    beaten = set()
    for row in rows:
        gold = row.gold_sql.rstrip().rstrip(";")
        honest = answered(env, row.row_id, f"SELECT * FROM ({gold}) LIMIT {row.gold_rows - 1}")
        assert 1.0 < honest < 3.0
        if max(answered(env, row.row_id, trick) for trick in hacks(row)) >= honest:
            beaten.add(row.row_id)
    assert len(rows) >= 50 and len(beaten) <= 3
    assert all({"weak_signal", "no_signal"} & set(env.row(one).findings) for one in beaten)


def answered(env: Environment, row_id: str, sql: str) -> float:
    episode = env.new_episode(env.row(row_id))
    episode.feed(json.dumps({"tool": "submit_sql", "args": {"sql": sql}}))
    episode.close()
    return env.score(episode.record()).reward or 0.0


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_ends_every_episode(demo: Path, policy: str) -> None:
    env = Environment.open(demo / "manifest")
    paid = list(rewards(env, policy))
    assert len(paid) == len(env.manifest.rows)
    assert all(breakdown.reward is not None for breakdown in paid)
