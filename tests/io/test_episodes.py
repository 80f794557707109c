"""The episodes folder survives a kill, resumes, and reads back what was written."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from envbuild.errors import ConfigurationError, CorpusFolderError, OutputError, StateError
from envbuild.io.episodes import JOURNAL, PARQUET, EpisodeJournal, iter_episodes, read_index
from envbuild.io.parquet import parquet_metadata
from envbuild.records.episode import EndedBy, Episode, ToolCall, Turn

CONFIGURATION: dict[str, object] = {"model": "m", "seed": 0}


def episode(key: str, *, text: str = "{}") -> Episode:
    call = ToolCall(tool="run_query", sql="SELECT 1", outcome="ok", result="1")
    turn = Turn(index=0, kind="tool", completion=text, calls=(call,), observation="Tool result:")
    return Episode(
        episode_id=key,
        row_id=key.split("/")[0],
        ended_by=EndedBy.SUBMIT_SQL,
        turns=(turn,),
        response_ids=(1, 2),
        response_mask=(1, 0),
    )


def test_round_trip_and_order(tmp_path: Path) -> None:
    with pytest.raises(CorpusFolderError, match="no episodes in"):
        list(iter_episodes(tmp_path))
    with EpisodeJournal(tmp_path, configuration=CONFIGURATION) as journal:
        journal.add(episode("b/0", text="<think>\u2028ü\n</think>"))
        journal.add(episode("a/0"))
        assert journal.seal() == 2
    assert [e.episode_id for e in iter_episodes(tmp_path)] == ["a/0", "b/0"]
    assert list(iter_episodes(tmp_path))[1] == episode("b/0", text="<think>\u2028ü\n</think>")
    assert read_index(tmp_path).configuration == CONFIGURATION
    assert sorted(p.name for p in tmp_path.iterdir()) == ["episodes.json", PARQUET]


def test_a_kill_loses_nothing_finished(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path;"
        "from tests.io.test_episodes import episode, CONFIGURATION;"
        "from envbuild.io.episodes import EpisodeJournal;"
        f"j = EpisodeJournal(Path({str(tmp_path)!r}), configuration=CONFIGURATION);"
        "j.add(episode('a/0')); j.add(episode('b/0'));"
        'j._stream.write(b\'{"episode_id": "c\'); j._stream.flush(); os.kill(os.getpid(), 9)'
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    with EpisodeJournal(tmp_path, configuration=CONFIGURATION) as journal:
        assert journal.finished == {"a/0", "b/0"}
        journal.add(episode("c/0"))
        assert journal.seal() == 3


def test_another_configuration_is_refused_by_key_and_a_version_in_figures(tmp_path: Path) -> None:
    made = {"envbuild": "0.1.0", "sqlite": "3.49.1"}
    with EpisodeJournal(tmp_path, configuration=CONFIGURATION | made) as journal:
        journal.add(episode("a/0"))
        journal.seal()
    metadata = parquet_metadata(tmp_path / PARQUET)
    assert {key: metadata[key] for key in made} == made
    with pytest.raises(ConfigurationError, match="another model, seed: choose another --out"):
        EpisodeJournal(tmp_path, configuration={**made, "model": "n", "seed": 1})
    with pytest.raises(ConfigurationError, match=r"another sqlite \(3.49.1 then, 3.50.0 now\):"):
        EpisodeJournal(tmp_path, configuration=CONFIGURATION | made | {"sqlite": "3.50.0"})
    EpisodeJournal(tmp_path, configuration=CONFIGURATION | made).close()  # the folder is free


def test_a_second_writer_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with EpisodeJournal(tmp_path, configuration=CONFIGURATION) as journal:
        journal.add(episode("a/0"))
        for other in (CONFIGURATION, {"model": "another"}):
            with pytest.raises(OutputError, match=f"another run is writing {tmp_path}: wait"):
                EpisodeJournal(tmp_path, configuration=other)
        journal.add(episode("b/0"))
        assert [e.episode_id for e in iter_episodes(tmp_path)] == ["a/0", "b/0"]
        assert journal.seal() == 2
        with EpisodeJournal(tmp_path, configuration=CONFIGURATION) as later:  # sealed: free
            with pytest.raises(StateError):
                journal.add(episode("c/0"))
            journal.close()
            with pytest.raises(OutputError):
                EpisodeJournal(tmp_path, configuration=CONFIGURATION)
            later.add(episode("c/0"))
            assert later.seal() == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["episodes.json", PARQUET]


def test_a_forked_child_neither_keeps_the_folder_nor_gives_it_away(tmp_path: Path) -> None:
    """The parent is killed while its child lives on: only then is the folder free."""
    program = (
        "import os, sys, time; from pathlib import Path;"
        "from tests.io.test_episodes import episode, CONFIGURATION;"
        "from envbuild.io.episodes import EpisodeJournal;"
        f"j = EpisodeJournal(Path({str(tmp_path)!r}), configuration=CONFIGURATION);"
        "j.add(episode('a/0')); closed, told = os.pipe(); child = os.fork();"
        "child or (j.close(), os.write(told, b'.'), time.sleep(999));"
        "os.read(closed, 1); print(child, flush=True); time.sleep(999)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())  # which has closed its own by now
        try:
            with pytest.raises(OutputError, match="another run"):
                EpisodeJournal(tmp_path, configuration=CONFIGURATION)
            parent.kill()
            parent.wait()
            os.kill(child, 0)  # still there
            with EpisodeJournal(tmp_path, configuration=CONFIGURATION) as journal:
                assert journal.finished == {"a/0"}
        finally:
            os.kill(child, 9)


def test_a_folder_in_which_nothing_was_kept_takes_any_configuration(tmp_path: Path) -> None:
    EpisodeJournal(tmp_path, configuration=CONFIGURATION).close()
    assert (tmp_path / JOURNAL).exists()
    other = CONFIGURATION | {"model": "n"}
    with EpisodeJournal(tmp_path, configuration=other) as journal:
        journal.add(episode("a/0"))
        journal.seal()
    assert read_index(tmp_path).configuration == other


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_goes_while_it_is_written_is_said(tmp_path: Path, replaced: bool) -> None:
    folder = tmp_path / "episodes"
    journal = EpisodeJournal(folder, configuration=CONFIGURATION)
    journal.add(episode("a/0"))
    shutil.rmtree(folder)
    with contextlib.ExitStack() as stack:
        if replaced:
            other = stack.enter_context(EpisodeJournal(folder, configuration=CONFIGURATION))
            other.add(episode("b/0"))
        for late in (lambda: journal.add(episode("c/0")), journal.seal):
            with pytest.raises(OutputError, match="removed or replaced while it was written"):
                late()
        journal.close()
        if replaced:
            other.add(episode("d/0"))
            assert other.seal() == 2
            assert [e.episode_id for e in iter_episodes(folder)] == ["b/0", "d/0"]
        else:
            assert not folder.exists()


def test_a_journal_of_any_length_is_read_and_sealed_in_bounded_memory(tmp_path: Path) -> None:
    """160 MB of episodes: reading and sealing them takes a small part of that."""
    with (tmp_path / JOURNAL).open("wb") as stream:
        for number in range(3200):
            key = f"r{number * 7919 % 3200}/0"
            stream.write(msgspec.json.encode(episode(key, text=f"{number:05}" * 10_000)) + b"\n")
    program = (
        "import resource; from pathlib import Path;"
        "from tests.io.test_episodes import CONFIGURATION;"
        "from envbuild.io.episodes import EpisodeJournal, iter_episodes;"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024;"
        f"folder = Path({str(tmp_path)!r}); before = peak();"
        "j = EpisodeJournal(folder, configuration=CONFIGURATION); j.seal();"
        "ids = [e.episode_id for e in iter_episodes(folder)];"
        "assert ids == sorted(ids) and len(set(ids)) == 3200;"
        "print(peak() - before)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) < 300, f"{found.stdout} MiB"


def test_the_journal_is_read_in_the_order_of_ids_whatever_its_own(tmp_path: Path) -> None:
    with EpisodeJournal(tmp_path, configuration=CONFIGURATION) as journal:
        journal.add(episode("b/0"))
        journal.seal()
    with EpisodeJournal(tmp_path, configuration=CONFIGURATION) as journal:
        for key in ("c/0", "a/0", "b/0"):
            journal.add(episode(key, text="later"))
    read = list(iter_episodes(tmp_path))
    assert [e.episode_id for e in read] == ["a/0", "b/0", "c/0"]
    assert read[1] == episode("b/0"), "a sealed one that is finished stands"
