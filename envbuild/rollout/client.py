"""An async client of `/v1/completions`: the raw prompt string goes out, so `<think>` stays in it.

Two dialects: `vllm` sends what keeps special tokens in the text; `openai` sends the common fields
alone, for servers that refuse the others (`transformers serve` answers 422 to them).
"""

import asyncio
import re
from typing import Any

import httpx

from envbuild.engine.seeds import completion_seed
from envbuild.errors import ConfigurationError, OperatorError, UnknownNameError
from envbuild.records.episode import TextRequest
from envbuild.records.rollout import Completion, Sampling
from envbuild.rollout.window import read_overflow

DIALECTS = ("vllm", "openai")
RETRIES = 5
FIRST_WAIT = 0.5
"""Seconds before the first retry; doubled each time, the server's own Retry-After goes first."""
MOST_SHORTENED = 16
"""Shorter token limits tried where a request does not fit; halving needs 12 for 4,096 tokens."""
_PASSING = frozenset((408, 409, 425, 429, 500, 502, 503, 504))
_OPERATOR = frozenset((401, 403, 404))
_VLLM_FIELDS = {
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "add_special_tokens": False,
}
_UNKNOWN = re.compile(r"unexpected|unrecognized|unknown|extra|not (?:permitted|supported)", re.I)


class ServerUnreachableError(OperatorError):
    """No server answers, or it serves no such model or dialect: nothing a retry mends."""


class CompletionError(Exception):
    """One completion cannot be had: the server's failure; the episode ends as server_error."""


class WindowFullError(CompletionError):
    """The context so far fills the window: nothing more can be sampled, by no server's fault."""


class CompletionsClient:
    """Completions of one model behind one base URL; use as an async context manager."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        sampling: Sampling,
        dialect: str = "vllm",
        api_key: str = "",
        seconds: float = 600.0,
        connections: int = 256,
        retries: int = RETRIES,
    ) -> None:
        """`seconds` bounds one request.

        `api_key` goes out as a bearer token, and into no message or record, whatever the server
        says. Raises UnknownNameError for another dialect, ConfigurationError for a key that no
        request can carry.
        """
        if dialect not in DIALECTS:
            raise UnknownNameError("dialect", dialect, DIALECTS)
        self._key = api_key.strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise ConfigurationError("the API key holds characters that no HTTP header can carry")
        self.base_url = base_url.rstrip("/")
        self.model = model
        self.sampling = sampling
        self.dialect = dialect
        self.retries = retries
        self._answered = False
        """A server that never answered is not waited for as long as one that went away."""
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(seconds, connect=10.0),
            limits=httpx.Limits(max_connections=connections),
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
        )

    async def __aenter__(self) -> "CompletionsClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def complete(self, request: TextRequest, *, seed: int) -> Completion:
        """The completion of one request.

        Raises WindowFullError where the context leaves no room, CompletionError once the retries
        are spent or the server refuses this request, and ServerUnreachableError where no request
        could succeed.
        """
        limit = request.max_new_tokens
        attempt = shortened = 0
        while True:
            wait = FIRST_WAIT * 2**attempt
            payload = self._payload(request, limit, seed)
            try:
                response = await self._http.post(f"{self.base_url}/completions", json=payload)
            except httpx.ConnectError as e:
                last = f"no server at {self.base_url}: {e}"
                if attempt >= min(self.retries, self.retries if self._answered else 1):
                    raise ServerUnreachableError(last) from e
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as e:
                raise ServerUnreachableError(
                    f"--base-url {self.base_url!r} is no http:// or https:// URL: {e}"
                ) from e
            except httpx.RequestError as e:  # broken off, too slow, or not to be decoded
                last = f"{type(e).__name__}: {e}".rstrip(": ")
            else:
                self._answered = True
                if response.status_code == 200:
                    return self._completion(response)
                last = f"status {response.status_code}: {self._said(response)}"
                self._refuse_lasting(response, last)
                if overflow := read_overflow(response.status_code, response.text):
                    limit, shortened = overflow.shorter(limit), shortened + 1
                    if limit and shortened <= MOST_SHORTENED:
                        continue
                    raise WindowFullError(
                        f"the server's window of {overflow.window} tokens is full"
                    )
                if response.status_code not in _PASSING:
                    raise CompletionError(last)
                wait = _retry_after(response) or wait
            if attempt == self.retries:
                raise CompletionError(f"{last} (after {self.retries} retries)")
            await asyncio.sleep(wait)
            attempt += 1

    def _refuse_lasting(self, response: httpx.Response, said: str) -> None:
        """Raises ServerUnreachableError for an answer that every request would get."""
        if response.status_code in _OPERATOR:
            raise ServerUnreachableError(f"{self.base_url} refuses model {self.model!r}, {said}")
        if self._refuses_dialect(response):
            raise ServerUnreachableError(
                f"{self.base_url} refuses fields of dialect vllm: try openai ({said})"
            )

    def _completion(self, response: httpx.Response) -> Completion:
        try:
            body = response.json()
            choice = body["choices"][0]
            usage = body.get("usage") or {}
            return Completion(
                text=choice["text"] or "",
                completion_tokens=usage.get("completion_tokens"),
                context_tokens=usage.get("prompt_tokens"),
                truncated=choice.get("finish_reason") == "length",
            )
        except (ValueError, LookupError, TypeError, AttributeError):
            said = f"the server's answer is no completion: {self._said(response)}"
        raise CompletionError(said)

    def _said(self, response: httpx.Response) -> str:
        """What an answer begins with; a server that repeats the key is not."""
        text = response.text
        return (text.replace(self._key, "[the API key]") if self._key else text)[:300]

    def _payload(self, request: TextRequest, limit: int, seed: int) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "model": self.model,
            "prompt": request.context,
            "max_tokens": limit,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "stop": list(request.stop),
            "seed": seed % 2**31,
        }
        if self.dialect == "vllm":
            payload |= {"top_k": self.sampling.top_k, **_VLLM_FIELDS}
        return payload

    def _refuses_dialect(self, response: httpx.Response) -> bool:
        """True where the server knows no field that only this dialect sends."""
        return (
            self.dialect == "vllm"
            and response.status_code in (400, 422)
            and _UNKNOWN.search(response.text) is not None
            and any(field in response.text for field in ("top_k", *_VLLM_FIELDS))
        )


def sampling_seed(seed: int, request: TextRequest) -> int:
    """The seed of one completion: its own for every episode and turn of a run."""
    return completion_seed(seed, request.episode_id, request.turn)


def _retry_after(response: httpx.Response) -> float:
    """Seconds that the server asks to wait, at most a minute; 0 where it does not say."""
    try:
        return min(60.0, max(0.0, float(response.headers.get("Retry-After", 0))))
    except ValueError:
        return 0.0
