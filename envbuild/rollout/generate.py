"""An OpenAI-compatible server as the `generate` of an Agent."""

import asyncio
from collections.abc import Sequence

from envbuild.episode.running import QWEN
from envbuild.records.episode import EVALUATION_SAMPLING, Completion, Sampling, TextRequest
from envbuild.rollout.client import CompletionError, CompletionsClient, sampling_seed
from envbuild.rollout.loops import run_to_end

DEFAULT_TOKENS = 2048


class ServerGenerate:
    """Completions of a served model, all prompts of a call at once.

    Each has a seed of its own, derived from `seed` by its episode and turn.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        sampling: Sampling = EVALUATION_SAMPLING,
        dialect: str = "vllm",
        api_key: str = "",
        seed: int = 0,
    ) -> None:
        self.base_url, self.model, self.sampling = base_url, model, sampling
        self.dialect, self.api_key, self.seed = dialect, api_key, seed
        self._calls = 0

    def __call__(
        self, prompts: list[str], max_new_tokens: Sequence[int] | None = None
    ) -> list[str]:
        """One completion a prompt, up to the chat's stop texts.

        `max_new_tokens`: the most tokens of each; 2,048 where it is not given. Seeds are derived by
        place and by call, as if the calls were turns. Raises CompletionError where one cannot be
        had.
        """
        limits = max_new_tokens or [DEFAULT_TOKENS] * len(prompts)
        requests = [
            TextRequest(
                context=prompt,
                max_new_tokens=limit,
                stop=QWEN.stop,
                episode_id=str(place),
                turn=self._calls,
            )
            for place, (prompt, limit) in enumerate(zip(prompts, limits, strict=True))
        ]
        self._calls += 1
        texts = []
        for found in self.complete_all(requests):
            if isinstance(found, CompletionError):
                raise found
            texts.append(found.text)
        return texts

    def complete_all(self, requests: Sequence[TextRequest]) -> list[Completion | CompletionError]:
        """One completion a request within its own limits, or why it cannot be had.

        Works inside a running event loop, too, which waits meanwhile. Raises
        ServerUnreachableError where no request could succeed.
        """
        return run_to_end(self._complete_all(requests))

    async def _complete_all(
        self, requests: Sequence[TextRequest]
    ) -> list[Completion | CompletionError]:
        async with CompletionsClient(
            self.base_url,
            self.model,
            sampling=self.sampling,
            dialect=self.dialect,
            api_key=self.api_key,
        ) as client:
            return list(await asyncio.gather(*(self._one(client, r) for r in requests)))

    async def _one(
        self, client: CompletionsClient, request: TextRequest
    ) -> Completion | CompletionError:
        try:
            return await client.complete(request, seed=sampling_seed(self.seed, request))
        except CompletionError as e:
            return e
