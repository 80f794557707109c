"""A step's 144 episodes open at once: each costs a bounded amount of memory, whatever the view."""

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from envbuild.env.episode import TextEpisode
from envbuild.env.views import ViewCache
from tests.env.shop import TASK, call, query, submit

MiB = 1024 * 1024
EPISODES = 144
LARGEST = 2.5 * MiB
"""Bytes an open episode may cost: measured are 1.0 (an image of 0.4 MiB) and 1.5 (a file)."""
TOTAL = "SELECT count(*), sum(length(b)) FROM t"


def is_image(cache: ViewCache) -> bool:
    memory, disk = cache.kept_bytes
    return disk == 0 and memory > 0.3 * MiB


def is_file(cache: ViewCache) -> bool:
    memory, disk = cache.kept_bytes
    return memory == 0 and disk > 10 * MiB


@pytest.mark.parametrize(("rows", "kept_as"), [(3_500, is_image), (110_000, is_file)])
def test_144_episodes_open_at_once_stay_within_memory(
    tmp_path: Path, rows: int, kept_as: Callable[[ViewCache], bool]
) -> None:
    path = tmp_path / "t.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous = OFF; CREATE TABLE t (a, b); CREATE TABLE u (a)")
    connection.execute("CREATE TABLE hidden (a); INSERT INTO hidden VALUES (1); BEGIN")
    connection.executemany("INSERT INTO t VALUES (?, ?)", ((n, f"{n:096d}") for n in range(rows)))
    connection.execute("COMMIT")
    connection.close()

    cache = ViewCache()
    warm = TextEpisode(TASK, cache.open(path, ("t", "u")))
    assert f"{rows} | {96 * rows}" in warm.feed(query(TOTAL))
    assert kept_as(cache)
    before = resident()
    episodes = [
        TextEpisode(TASK, cache.open(path, ("t", "u")), candidate=n) for n in range(EPISODES)
    ]
    for episode in episodes:  # all stay open; each has read its whole view
        assert f"{rows} | {96 * rows}" in episode.feed(query(TOTAL))
        assert "t\nu" in episode.feed(call("list_tables"))
    grown = resident() - before
    assert grown < EPISODES * LARGEST, f"{grown / EPISODES / MiB:.2f} MiB an episode"
    for episode in episodes:
        episode.feed(submit(TOTAL))
        assert episode.record().sql == TOTAL
        episode.close()
    warm.close()


def resident() -> int:
    """This process's resident bytes, by the kernel."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")
