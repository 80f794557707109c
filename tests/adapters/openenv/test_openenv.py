"""The OpenEnv server over real sockets: tasks, many sessions at once, and the command."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("openenv.core", reason="tests/adapters/run.sh openenv")

import httpx
from openenv.core.generic_client import GenericEnvClient

from tests.adapters.questions import make_manifest, right_answer, wrong_answer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    manifest = make_manifest(tmp_path_factory.mktemp("openenv") / "manifest")
    command = [sys.executable, "-m", "envbuild", "serve", str(manifest), "--openenv"]
    process = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    address = next(line for line in process.stderr if " on http://" in line).split()[-1]
    again = [*command, "--port", address.rpartition(":")[2]]
    refused = subprocess.run(again, capture_output=True, text=True, timeout=600, check=False)
    assert refused.returncode == 2 and "cannot listen on 127.0.0.1" in refused.stderr
    assert "serving" not in refused.stderr and "Traceback" not in refused.stderr
    for _ in range(6000):
        try:
            httpx.get(f"{address}/health")
            break
        except httpx.TransportError:
            time.sleep(0.1)
    yield address
    process.send_signal(signal.SIGINT)
    assert process.wait(600) in (0, 130)


def test_tasks_are_listed_and_chosen_by_split_and_index(server: str) -> None:
    assert "train" in httpx.get(f"{server}/envbuild/splits").text
    answer = httpx.post(f"{server}/envbuild/task", json={"split": "train", "index": 1}).json()
    assert "towns/q1" in str(answer) and "SELECT" not in str(answer)
    with GenericEnvClient(base_url=server).sync() as client:
        opened = client.reset(split="train", index=1)
        assert "How many shops" in opened.observation["messages"][1]["content"]
        assert opened.observation["max_new_tokens"] == 2048


def test_thirty_two_sessions_at_once_do_not_mix(server: str) -> None:
    def play(number: int) -> float:
        row_id = f"towns/q{number % 4}"
        lines = right_answer(row_id) if number % 3 else wrong_answer("SELEC")
        with GenericEnvClient(base_url=server).sync() as client:
            client.reset(row_id=row_id, candidate=number)
            result = [client.step({"text": line}) for line in lines][-1]
            assert result.done and result.observation["group_seen"] is False
            return float(result.reward)

    with ThreadPoolExecutor(16) as pool:
        rewards = list(pool.map(play, range(32)))
    assert rewards == [3.0 if number % 3 else 0.0 for number in range(32)]
