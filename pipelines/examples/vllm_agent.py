"""Questions over your own SQLite files, answered by a vLLM engine inside this process.

pip install . vllm    # in a checkout of envbuild
python vllm_agent.py MODEL shop.sqlite "How many orders did Ann make?" "And Bob?"

All questions go on together: each round of turns is one call of the engine, which batches it.
Run as it stands on a CPU build of vLLM 0.32.0 with a tiny Qwen3 model; not run on a GPU.
"""

import sys
from collections.abc import Sequence

from vllm import LLM, SamplingParams, TokensPrompt

from envbuild import Agent, Completion, TextRequest, WindowFullError


class EngineGenerate:
    """The `generate` of an Agent; `complete_all` gets requests with their limits and stop texts."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.tokenizer = llm.get_tokenizer()
        self.window = llm.llm_engine.model_config.max_model_len

    def complete_all(self, requests: Sequence[TextRequest]) -> list[Completion | Exception]:
        """One completion a request; an exception for a context that fills the model's window."""
        full = WindowFullError(f"the model's window of {self.window} tokens is full")
        found: list[Completion | Exception] = [full] * len(requests)
        places, prompts, sampling = [], [], []
        for place, request in enumerate(requests):
            ids = self.tokenizer.encode(request.context, add_special_tokens=False)
            if len(ids) >= self.window:
                continue
            places.append(place)
            prompts.append(TokensPrompt(prompt_token_ids=ids))
            sampling.append(
                SamplingParams(
                    temperature=0.6,
                    top_p=0.95,
                    top_k=20,
                    max_tokens=min(request.max_new_tokens, self.window - len(ids)),
                    stop=list(request.stop),
                    skip_special_tokens=False,  # else <think> is lost where it is a special token
                    spaces_between_special_tokens=False,
                )
            )
        if prompts:
            answers = self.llm.generate(prompts, sampling, use_tqdm=False)
            for place, prompt, answer in zip(places, prompts, answers, strict=True):
                sampled = answer.outputs[0]
                found[place] = Completion(
                    text=sampled.text,
                    completion_tokens=len(sampled.token_ids),
                    context_tokens=len(prompt["prompt_token_ids"]),
                    truncated=sampled.finish_reason == "length",
                )
        return found


def main(model: str, database: str, questions: Sequence[str]) -> None:
    agent = Agent(EngineGenerate(LLM(model)), policy=model)
    for episode in agent.run_many([(question, database) for question in questions]):
        print(episode.sql or f"no answer: {episode.ended_by.value}")


if __name__ == "__main__":  # vLLM starts processes that import this file
    if len(sys.argv) < 4:
        sys.exit("usage: python vllm_agent.py MODEL DATABASE QUESTION...")
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
