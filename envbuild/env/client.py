"""An async client of `/v1/completions`, and how an episode ends whose completion cannot be had."""

import asyncio
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any

import httpx
import msgspec

from envbuild.engine.seeds import completion_seed
from envbuild.env.episode import TextEpisode
from envbuild.errors import ConfigurationError, OperatorError, UnknownNameError
from envbuild.io.json_stream import decode_json
from envbuild.records.corpus import printable
from envbuild.records.episode import EVALUATION_SAMPLING, Completion, EndedBy, Sampling, TextRequest

# The raw prompt string goes out, so `<think>` stays in it. Two dialects: `vllm` sends what keeps
# special tokens in the text; `openai` sends the common fields alone, for servers that refuse the
# others (`transformers serve` answers 422 to them).

DIALECTS = ("vllm", "openai")
RETRIES = 5
FIRST_WAIT = 0.5
"""Seconds before the first retry; doubled each time, the server's own Retry-After goes first."""
MAX_SHORTENED = 16
"""Shorter token limits tried where a request does not fit; halving needs 12 for 4,096 tokens."""
MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Of one answer, unpacked: 4,096 tokens of the longest kind, escaped, are a fifth of that."""
MAX_ERROR_BYTES = 64 * 1024
"""Of an answer that is an error: no more of it is looked at."""
_ENCODINGS = frozenset(("", "identity", "gzip", "deflate"))
"""One layer of these unpacks at most a thousand times larger; others, or several, know no bound."""
_PASSING = frozenset((408, 409, 425, 429, 500, 502, 503, 504))
_OPERATOR = frozenset((401, 403, 404))
_VLLM_FIELDS = {
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "add_special_tokens": False,
}
_UNKNOWN = re.compile(r"unexpected|unrecognized|unknown|extra|not (?:permitted|supported)", re.I)
_WINDOW = re.compile(
    r"(?:maximum context length (?:is|of)|context length \(|available context size \("
    r"|max_model_len=)\s*(\d{1,9})"
)
"""How vLLM, SGLang and llama.cpp say it."""
_PROMPT = re.compile(
    r"\b(\d{1,9}) (?:tokens )?(?:in the (?:prompt|messages|input)|from the input|input tokens)"
    r"|(?:prompt is|input \(|request \()\s*(\d{1,9}) tokens"
)


class ServerUnreachableError(OperatorError):
    """No server answers, or it serves no such model or dialect: nothing a retry mends."""


class CompletionError(Exception):
    """One completion cannot be had: the server's failure; the episode ends as server_error."""


class WindowFullError(CompletionError):
    """The context so far fills the window: nothing more can be sampled, by no server's fault."""


def read_window(status: int, text: str) -> tuple[int, int | None] | None:
    """(tokens of the server's window, those of the prompt) of an answer that reports an overflow.

    None where it says something else, and for the prompt where it does not say. The status is 400
    (413 from some gateways), and the figures stand in the sentence.
    """
    window = _WINDOW.search(text) if status in (400, 413) else None
    if window is None:
        return None
    prompt = _PROMPT.search(text)
    return int(window[1]), int(prompt[1] or prompt[2]) if prompt else None


def shorter(limit: int, window: int, prompt: int | None) -> int:
    """A token limit below `limit` that may fit; 0 where the prompt leaves no room."""
    if prompt is None:
        return window - 1 if limit >= window else limit // 2
    return max(0, min(window - prompt, limit - 1))


Tokens = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Choice(msgspec.Struct):
    text: str | None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    completion_tokens: Tokens | None = None
    prompt_tokens: Tokens | None = None


class _Answer(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: _Usage | None = None


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
        """`seconds` bounds one request, from its start to the last byte of its answer.

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
        self.dialect = dialect
        self.retries = retries
        self.seconds = seconds
        self._fields: dict[str, Any] = {
            "model": model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if dialect == "vllm":
            self._fields |= {"top_k": sampling.top_k, **_VLLM_FIELDS}
        self._free = asyncio.Semaphore(connections)
        """Waiting for a connection is no part of a request's time."""
        self._answered = False
        """A server that never answered is not waited for as long as one that went away."""
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(seconds, connect=10.0),
            limits=httpx.Limits(max_connections=connections),
            headers={"Accept-Encoding": "gzip, deflate"}
            | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
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
        asked = {"prompt": request.context, "stop": list(request.stop), "seed": seed % 2**31}
        limit = request.max_new_tokens
        attempt = shortened = 0
        while True:
            wait = FIRST_WAIT * 2**attempt
            try:
                response, content = await self._post(self._fields | asked | {"max_tokens": limit})
            except TimeoutError:
                last = f"no whole answer within {self.seconds:g} seconds"
            except httpx.ConnectError as e:
                last = f"no server at {self.base_url}: {self._shown(str(e))}"
                if attempt == self.retries or (attempt and not self._answered):
                    raise ServerUnreachableError(last) from e
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as e:
                raise ServerUnreachableError(
                    f"--base-url {self.base_url!r} is no http:// or https:// URL: {e}"
                ) from e
            except httpx.RequestError as e:  # broken off, too slow, or not to be decoded
                last = self._shown(f"{type(e).__name__}: {e}").rstrip(": ")
            else:
                self._answered = True
                if response.status_code == 200:
                    return self._completion(content)
                said = content[:MAX_ERROR_BYTES].decode(errors="replace")
                last = f"status {response.status_code}: {self._shown(said)}"
                if full := read_window(response.status_code, said):
                    limit, shortened = shorter(limit, *full), shortened + 1
                    if limit and shortened <= MAX_SHORTENED:
                        continue
                    raise WindowFullError(f"the server's window of {full[0]} tokens is full")
                self._refuse_lasting(response.status_code, said, last)
                wait = _retry_after(response) or wait
            if attempt == self.retries:
                raise CompletionError(f"{last} (after {self.retries} retries)")
            await asyncio.sleep(wait)
            attempt += 1

    async def _post(self, payload: dict[str, Any]) -> tuple[httpx.Response, bytes]:
        """The answer and its body. Raises CompletionError for one too large to be a completion."""
        content = bytearray()
        url = f"{self.base_url}/completions"
        async with (
            self._free,
            asyncio.timeout(self.seconds),
            self._http.stream("POST", url, json=payload) as response,
        ):
            encoding = response.headers.get("Content-Encoding", "").strip().lower()
            if encoding not in _ENCODINGS:
                raise CompletionError(
                    f"the server's answer is packed as {self._shown(encoding)}, which was not "
                    "asked for"
                )
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    raise CompletionError(
                        f"the server's answer is longer than {MAX_ANSWER_BYTES:,} bytes"
                    )
        return response, bytes(content)

    def _refuse_lasting(self, status: int, text: str, said: str) -> None:
        """Raises for an answer that this request would get again, or every request."""
        if status in _OPERATOR:
            raise ServerUnreachableError(f"{self.base_url} refuses model {self.model!r}, {said}")
        named = [field for field in ("top_k", *_VLLM_FIELDS) if field in text]
        if self.dialect == "vllm" and status in (400, 422) and named and _UNKNOWN.search(text):
            raise ServerUnreachableError(
                f"{self.base_url} refuses fields of dialect vllm: try openai ({said})"
            )
        if status not in _PASSING:
            raise CompletionError(said)

    def _completion(self, content: bytes) -> Completion:
        try:
            answer = msgspec.convert(decode_json(content), _Answer)
        except (ValueError, RecursionError) as e:
            said = self._shown(content[:MAX_ERROR_BYTES].decode(errors="replace"))
            why = self._shown(str(e))
            raise CompletionError(f"the server's answer is no completion, {why}: {said}") from None
        choice, usage = answer.choices[0], answer.usage or _Usage()
        return Completion(
            text=self._without_key(choice.text or ""),
            completion_tokens=usage.completion_tokens,
            context_tokens=usage.prompt_tokens,
            truncated=choice.finish_reason == "length",
        )

    def _shown(self, text: str) -> str:
        """What the server said, as a message may show it: its beginning, without the key."""
        return printable(self._without_key(text))[:300]

    def _without_key(self, text: str) -> str:
        """`text` without the API key, spelled as it is or as JSON and Python escape it."""
        if self._key:
            escaped = json.dumps(self._key)[1:-1]
            for spelled in (escaped.replace("/", "\\/"), escaped, repr(self._key)[1:-1], self._key):
                text = text.replace(spelled, "[the API key]")
        return text


def _retry_after(response: httpx.Response) -> float:
    """Seconds that the server asks to wait, at most a minute; 0 where it does not say."""
    try:
        return min(60.0, max(0.0, float(response.headers.get("Retry-After", 0))))
    except ValueError:
        return 0.0


def sampling_seed(seed: int, request: TextRequest) -> int:
    """The seed of one completion: its own for every episode and turn of a run."""
    return completion_seed(seed, request.episode_id, request.turn)


def record_generation_failure(episode: TextEpisode, error: Exception) -> None:
    """Ends an episode whose next completion cannot be had; `error` goes into the record.

    A window that the turns filled is a spent token budget, and the last working query is the
    answer. Anything else, a first prompt that does not fit too, is the server's failure, or the
    engine's: it says nothing about the policy.
    """
    filled = isinstance(error, WindowFullError) and episode.turns
    ended_by = EndedBy.TOKEN_BUDGET if filled else EndedBy.SERVER_ERROR
    episode.fail(str(error) or type(error).__name__, ended_by=ended_by)


class ServerGenerate:
    """A served model as the `generate` of an Agent: all requests of a call at once.

    Each has a seed of its own, derived from `seed` by its episode and turn.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        sampling: Sampling = EVALUATION_SAMPLING,
        seed: int = 0,
        **options: Any,
    ) -> None:
        """`options`: `dialect`, `api_key` and the others of a CompletionsClient."""
        self.seed = seed
        self._client = partial(CompletionsClient, base_url, model, sampling=sampling, **options)

    def complete_all(self, requests: Sequence[TextRequest]) -> list[Completion | CompletionError]:
        """One completion a request within its own limits, or why it cannot be had.

        Works inside a running event loop, too (notebooks), which waits meanwhile. Raises
        ServerUnreachableError where no request could succeed.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._complete_all(requests))
        thread = ThreadPoolExecutor(1)  # which has no event loop yet
        try:
            return thread.submit(asyncio.run, self._complete_all(requests)).result()
        finally:
            thread.shutdown(wait=False)  # an interrupt waits for no answer

    async def _complete_all(
        self, requests: Sequence[TextRequest]
    ) -> list[Completion | CompletionError]:
        async with self._client() as client:

            async def one(request: TextRequest) -> Completion | CompletionError:
                try:
                    return await client.complete(request, seed=sampling_seed(self.seed, request))
                except CompletionError as e:
                    return e

            return list(await asyncio.gather(*map(one, requests)))
