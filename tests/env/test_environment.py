"""The environment over a manifest: the five lines, scripted policies, many episodes at once."""

import os
import signal
import threading
from pathlib import Path

import pytest

from envbuild.env.environment import Environment
from envbuild.errors import StateError, UnknownNameError
from envbuild.records.episode import Episode, Tier
from envbuild.testing.policies import POLICIES, make_policy
from tests.small_manifest import QUESTIONS


@pytest.fixture
def env(manifest: Path) -> Environment:
    return Environment.open(manifest)


def act(
    env: Environment, policy: str, row_id: str, *, candidate: int = 0, **options: int
) -> Episode:
    row = env.row(row_id)
    chosen = make_policy(policy, row, candidate=candidate)
    episode = env.new_episode(row, candidate=candidate, policy=policy, **options)
    while (request := episode.next_request()) is not None:
        episode.feed(chosen(request))
    episode.close()
    return episode.record()


def answered(env: Environment, row_id: str, sql: str) -> float:
    env.reset(row_id)
    env.step(f'{{"tool": "submit_sql", "args": {{"sql": "{sql}"}}}}')
    reward = env.reward().reward
    assert reward is not None
    return reward


def test_the_five_lines(manifest: Path) -> None:
    def generate(prompt: str, most_tokens: int) -> str:
        assert QUESTIONS[0].question in prompt and most_tokens == 2048
        return f'{{"tool": "submit_sql", "args": {{"sql": "{QUESTIONS[0].gold}"}}}}'

    env = Environment.open(str(manifest))
    env.reset("music/music/0")
    assert not env.step('{"tool": "list_tables", "args": {}}').done
    while (request := env.request) is not None:
        last = env.step(generate(request.context, request.max_new_tokens))
    breakdown = env.reward()
    assert last.done and last.breakdown == breakdown == env.score(env.episode())

    assert (breakdown.reward, breakdown.tier) == (3.0, Tier.EQUIVALENT)
    assert (breakdown.row_id, breakdown.episode_id) == ("music/music/0", "music/music/0/0")
    assert env.episode().reward_sha256 == breakdown.constants_sha256


def test_reset_leaves_nothing_of_the_episode_before(env: Environment) -> None:
    env.reset("music/music/1", candidate=3)
    env.step('{"tool": "run_query", "args": {"sql": "SELECT 7"}}')
    first = env.reset("music/music/0")
    fresh = Environment.open(env.manifest.root).reset("music/music/0")
    assert first == fresh
    for _ in range(6):
        env.step("no call")
    done = env.step("")
    assert done.done and env.episode().last_working_sql == ""
    assert env.episode().candidate == 0


def test_use_out_of_order(env: Environment) -> None:
    for early in (env.step, lambda _: env.reward(), lambda _: env.request):
        with pytest.raises(StateError):
            early("")  # type: ignore[operator]
    env.reset("music/music/0")
    with pytest.raises(StateError):
        env.reward()
    with pytest.raises(UnknownNameError):
        env.reset("music/music/nope")
    with pytest.raises(UnknownNameError, match="one-call"):
        Environment.open(env.manifest.root, settings="nope")


@pytest.mark.slow
def test_hundreds_of_episodes_leave_nothing_behind(env: Environment) -> None:
    names, rows = sorted(POLICIES), list(env.manifest.rows)

    def some(count: int) -> None:
        for n in range(count):
            row_id = rows[n % len(rows)].row_id
            env.score(act(env, names[n % len(names)], row_id, candidate=n))

    some(100)
    before = _open_descriptors(), threading.active_count()
    memory = _resident()
    some(600)
    assert (_open_descriptors(), threading.active_count()) == before
    assert _resident() - memory < 8 * 1024 * 1024


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_a_child_waits_for_no_thread_of_its_parent(env: Environment) -> None:
    """Every lock between a row's id and its reward is held elsewhere while the child is made."""
    answer = env.row("music/music/0").gold_sql
    with env.manifest.rows._lock:  # type: ignore[attr-defined]  # the lock is no interface
        child = os.fork()
        if child == 0:
            signal.alarm(300)
            os._exit(0 if answered(env, "music/music/0", answer) == 3.0 else 1)
    assert os.waitpid(child, 0)[1] == 0
