"""Questions over your own SQLite files, answered by a served model.

vllm serve MODEL                        # or any server with /v1/completions
python server_agent.py http://127.0.0.1:8000/v1 MODEL shop.sqlite "How many orders did Ann make?"

All questions go on together: each round of turns is sent at once, which the server batches.
Run as it stands against a CPU build of vLLM 0.32.0 with a tiny Qwen3 model; not run on a GPU.
"""

import os
import sys
from collections.abc import Sequence

from envbuild import Agent, EnvbuildError, ServerGenerate


def main(base_url: str, model: str, database: str, questions: Sequence[str]) -> None:
    generate = ServerGenerate(
        base_url,
        model,
        dialect=os.environ.get("DIALECT", "vllm"),  # "openai" where vLLM's own fields are refused
        api_key=os.environ.get("OPENAI_API_KEY", ""),
    )
    agent = Agent(generate, policy=model)
    try:
        episodes = agent.run_many([(question, database) for question in questions])
    except EnvbuildError as e:  # no server there, no such model, no such file
        sys.exit(str(e))
    for episode in episodes:
        print(episode.sql or f"no answer: {episode.ended_by.value} {episode.error}".strip())


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit("usage: python server_agent.py BASE_URL MODEL DATABASE QUESTION...")
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
