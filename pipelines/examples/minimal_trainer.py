"""An adapter for a trainer of your own: groups of episodes as token sequences with advantages.

`envbuild export manifest/ --to trl --out data/` writes the rows. `sample(request)` is your model:
it continues `request.context` by at most `request.max_new_tokens` ids, stops at
`request.stop_ids`, and returns the ids and their log-probabilities (or None). `tokenizer` has
`encode(text)` and `decode(ids)`, delimiters as single ids and nothing added.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envbuild import Episode, EpisodeSpec, TokenRequest, TrainerEnv

Sample = Callable[[TokenRequest], tuple[list[int], list[float] | None]]


def play_rows(
    rows: Iterable[Mapping[str, Any]], manifest: Path, tokenizer: Any, sample: Sample, size: int
) -> Iterator[list[tuple[Episode, float]]]:
    """One group of `size` episodes a row of the export, each with its advantage.

    An episode has `prompt_ids`, `response_ids`, `response_mask` and `response_logprobs`; its
    advantage, reward less the group's mean, is for the tokens whose mask is 1.
    """
    env = TrainerEnv(manifest)
    for row in rows:
        spec = EpisodeSpec.from_json(row["env_json"])
        group = [env.start_tokens(spec, tokenizer=tokenizer, candidate=n) for n in range(size)]
        for episode in group:
            while (request := episode.next_request()) is not None:
                episode.feed(*sample(request))
        scored = env.finish_group(group)
        # None: the gold cannot be scored, so the episode teaches nothing
        rewards = [r for one in scored if (r := one.breakdown.reward) is not None]
        mean = sum(rewards) / max(1, len(rewards))
        advantages = [0.0 if (r := one.breakdown.reward) is None else r - mean for one in scored]
        yield [(one.episode, value) for one, value in zip(scored, advantages, strict=True)]
