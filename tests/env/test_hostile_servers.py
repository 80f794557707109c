"""Servers that never end, answer nonsense or attack the terminal: an unscored episode each."""

import asyncio
import gzip
import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from envbuild.env.client import (
    MAX_ANSWER_BYTES,
    CompletionError,
    CompletionsClient,
)
from envbuild.errors import OperatorError
from envbuild.records.episode import Completion, Sampling, TextRequest

KEY = 'sk-SECRET-\\q"k/9'
ESCAPES = "\x1b[2J\x1b]0;pwned\x07 \x9b31mred"


@contextmanager
def serving(status: int, *parts: bytes, drip: bytes = b"", packed: str = "") -> Iterator[str]:
    """A server that answers all requests alike, and goes on with `drip` until it is hung up on."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            if packed:
                self.send_header("Content-Encoding", packed)
            if not drip:
                self.send_header("Content-Length", str(sum(map(len, parts))))
            self.end_headers()
            with_drips = itertools.chain(parts, itertools.repeat(drip) if drip else ())
            try:
                for part in with_drips:
                    self.wfile.write(part)
                    if len(drip) == 1:
                        self.wfile.flush()
                        time.sleep(0.05)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def ask(base_url: str, *, seconds: float = 60.0) -> Completion:
    async def one() -> Completion:
        async with CompletionsClient(
            base_url, "m", sampling=Sampling(), api_key=KEY, seconds=seconds, retries=0
        ) as client:
            return await client.complete(
                TextRequest(context="p", max_new_tokens=10, stop=()), seed=1
            )

    return asyncio.run(one())


def test_a_request_is_bounded_as_a_whole() -> None:
    with (
        serving(200, drip=b" ") as base_url,
        pytest.raises(CompletionError, match=r"no whole answer within 0\.5 seconds"),
    ):
        ask(base_url, seconds=0.5)


@pytest.mark.parametrize("status", [200, 500])
def test_a_body_is_capped(status: int) -> None:
    with (
        serving(status, drip=b"x" * 65536) as base_url,
        pytest.raises(CompletionError, match="longer than 16,777,216 bytes"),
    ):
        ask(base_url)


def test_a_packed_body_is_capped_as_it_unpacks() -> None:
    good = json.dumps({"choices": [{"text": "SELECT 1"}]}).encode()
    with serving(200, gzip.compress(good), packed="gzip") as base_url:
        assert ask(base_url).text == "SELECT 1"
    bomb = gzip.compress(b" " * (4 * MAX_ANSWER_BYTES))
    with serving(200, bomb, packed="gzip") as base_url, pytest.raises(CompletionError, match="lon"):
        ask(base_url)
    with (
        serving(200, gzip.compress(bomb), packed="gzip, gzip") as base_url,
        pytest.raises(CompletionError, match="packed as gzip, gzip"),
    ):
        ask(base_url)


@pytest.mark.parametrize(
    "body",
    [
        '{"choices":[{"text":5}]}',
        '{"choices":[{"finish_reason":"stop"}]}',
        '{"choices":[{"text":"a","finish_reason":["length"]}]}',
        '{"choices":[{"text":"a"}],"usage":[1]}',
        '{"choices":[{"text":"a"}],"usage":{"completion_tokens":"many"}}',
        '{"choices":[{"text":"a"}],"usage":{"completion_tokens":-5}}',
        '{"choices":[{"text":"a"}],"usage":{"completion_tokens":99999999999999999999999}}',
        '{"choices":[]}',
        '{"choices":[{"text":"SELE',
        "null",
        "[]",
        "",
        "[" * 200_000,
        "\x00\xff<html>",
    ],
)
def test_an_answer_of_wrong_types_is_no_completion(body: str) -> None:
    with (
        serving(200, body.encode("latin-1")) as base_url,
        pytest.raises(CompletionError, match="no completion") as found,
    ):
        ask(base_url)
    assert len(str(found.value)) < 1000


@pytest.mark.parametrize("status", [401, 500])
@pytest.mark.parametrize(
    "spelled", [KEY, json.dumps(KEY)[1:-1], json.dumps(KEY)[1:-1].replace("/", "\\/"), repr(KEY)]
)
def test_no_message_holds_the_key_or_controls_a_terminal(status: int, spelled: str) -> None:
    said = f"bad key Bearer {spelled} {ESCAPES}".encode()
    with (
        serving(status, said) as base_url,
        pytest.raises((CompletionError, OperatorError)) as found,
    ):
        ask(base_url)
    message = str(found.value)
    assert "Bearer [the API key]" in message or "Bearer '[the API key]'" in message
    assert "SECRET" not in message and "\\x1b[2J" in message
    assert not set(message) & set("\x1b\x07\x9b")
