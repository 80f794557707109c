"""A completions server over real HTTP whose models are the scripted policies, for tests and demos.

    python -m envbuild.testing.server MANIFEST [--port 8765]

prints its URL and its models and serves until Ctrl-C: `envbuild rollout` and `ask` run against it
without a GPU. It knows a manifest, gold included, and finds a prompt's row by its question: a
stand-in for vLLM where the plumbing is what is tried. It keeps no state: a turn's completion hangs
on the prompt, and on the candidate, which a rollout's sampling seed tells.
"""

import argparse
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from envbuild.engine.seeds import candidate_of
from envbuild.env.episode import QWEN
from envbuild.errors import OperatorError
from envbuild.manifest.read import open_manifest
from envbuild.records.episode import TextRequest
from envbuild.testing.policies import POLICIES, make_policy

CHARACTERS_A_TOKEN = 4


class PolicyServer:
    """`with PolicyServer(manifest) as base_url:` serves until the block ends.

    `failures` maps a request's number (from 0) to the HTTP status that it gets instead, with
    `retry_after` as its header of that name; `window` is the context length in tokens past which a
    request is refused, as vLLM does.
    """

    def __init__(
        self,
        manifest: Path,
        *,
        port: int = 0,
        failures: dict[int, int] | None = None,
        retry_after: str = "",
        window: int | None = None,
    ) -> None:
        self.rows = list(open_manifest(manifest).rows)
        # a question that is part of another must not be found first
        self.rows.sort(key=lambda row: -len(row.question))
        self.failures = dict(failures or {})
        self.retry_after = retry_after
        self.window = window
        self.requests: list[dict[str, Any]] = []
        """Every payload received."""
        self.headers: list[dict[str, str]] = []
        """The headers of every request, their names as they came."""
        self._lock = threading.Lock()
        self._http = _QuietServer(("127.0.0.1", port), self._answers())
        self._http.daemon_threads = True

    @property
    def base_url(self) -> str:
        """What `--base-url` takes."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> str:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self.base_url

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, payload: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body for one request."""
        with self._lock:
            status = self.failures.get(len(self.requests), 200)
            self.requests.append(payload)
        if status != 200:
            return status, {"error": {"message": f"as asked: {status}"}}
        if payload.get("model") not in POLICIES:
            known = f"no model {payload.get('model')!r}; known: {', '.join(POLICIES)}"
            return 404, {"error": {"message": known}}
        prompt, limit = payload["prompt"], payload["max_tokens"]
        tokens = -(-len(prompt) // CHARACTERS_A_TOKEN)
        if self.window is not None and tokens + limit > self.window:
            message = (
                f"This model's maximum context length is {self.window} tokens. However, you "
                f"requested {tokens + limit} tokens ({tokens} in the prompt; {limit} for the "
                "completion)."
            )
            return 400, {"error": {"message": message}}
        text = self._complete(payload["model"], prompt, candidate_of(payload.get("seed") or 0))
        kept = text[: limit * CHARACTERS_A_TOKEN]
        choice = {"text": kept, "finish_reason": "stop" if kept == text else "length"}
        spent = -(-len(kept) // CHARACTERS_A_TOKEN)
        usage = {"prompt_tokens": tokens, "completion_tokens": spent}
        return 200, {"choices": [choice], "usage": usage}

    def _complete(self, model: str, prompt: str, candidate: int) -> str:
        row = next((row for row in self.rows if row.question in prompt), None)
        if row is None:
            return "I know no such question."
        before = prompt.count(f"{QWEN.message_start}{QWEN.assistant_role}") - 1
        policy = make_policy(model, row, candidate=candidate)
        last = prompt.rsplit(QWEN.message_start + QWEN.user_role, 1)[-1]
        kind = "tool" if before == 0 or _TURNS_LEFT.search(last) else "final"
        for _ in range(before):  # what it said in the turns before
            policy(TextRequest(context="", max_new_tokens=0, stop=(), kind="tool"))
        return policy(TextRequest(context="", max_new_tokens=0, stop=(), kind=kind))

    def _answers(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                server.headers.append(dict(self.headers))
                self._send(*server.answer(json.loads(self.rfile.read(length))))

            def _send(self, status: int, body: dict[str, Any]) -> None:
                encoded = json.dumps(body).encode()
                self.send_response(status)
                if status != 200 and server.retry_after:
                    self.send_header("Retry-After", server.retry_after)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            def log_message(self, *_: object) -> None:
                """Nothing: tests read stderr."""

        return Answers


class _QuietServer(ThreadingHTTPServer):
    """Without a traceback for each client that hangs up."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def main(arguments: list[str] | None = None) -> int:
    """Serves a manifest until Ctrl-C; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m envbuild.testing.server",
        description="A completions server whose models are scripted policies; no GPU needed.",
    )
    parser.add_argument("manifest", type=Path, help="a manifest folder")
    parser.add_argument("--port", type=int, default=8765, help="0: any free port; default 8765")
    given = parser.parse_args(arguments)
    try:
        server = PolicyServer(given.manifest, port=given.port)
    except OperatorError as e:
        sys.stderr.write(f"{parser.prog}: {e}\n")
        return 2
    except (OSError, OverflowError) as e:
        taken = f"cannot listen on port {given.port}: {e}; --port 0 takes a free one"
        sys.stderr.write(f"{parser.prog}: {taken}\n")
        return 2
    with server as base_url:
        sys.stdout.write(f"--base-url {base_url}\n--model {' | '.join(POLICIES)}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stderr.write("stopped\n")
    return 0


_TURNS_LEFT = re.compile(r"\[\d+ tool turns? left")


if __name__ == "__main__":
    sys.exit(main())
