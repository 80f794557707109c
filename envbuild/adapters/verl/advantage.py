"""The published advantages as a verl estimator: `algorithm.adv_estimator=envbuild`."""

from collections import defaultdict
from typing import Any

from envbuild.errors import MissingDependencyError
from envbuild.records.manifest import Recipe
from envbuild.reward.group import group_advantages

try:
    import torch
    from verl.trainer.ppo.core_algos import register_adv_est
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the verl adapter",
        str(e.name),
        "pip install torch, then pip install '.[verl]' in a checkout",
    ) from e

NAME = "envbuild"
PUBLISHED = Recipe(name="published", model="")
"""The clip and the weight are common to both published recipes."""


@register_adv_est(NAME)  # type: ignore[untyped-decorator]  # verl is absent where types are checked
def shaped_grpo(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Any, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns of shape (episodes, response length), one value an episode.

    Reward less its group's mean, clipped, negative ones weighted; `index` names the group.
    """
    scores = token_level_rewards.sum(dim=-1)
    members: defaultdict[Any, list[int]] = defaultdict(list)
    for place, group in enumerate(index):
        members[group].append(place)
    advantages = torch.zeros_like(scores)
    for places in members.values():
        shaped = group_advantages(
            [float(scores[place]) for place in places],
            clip=PUBLISHED.advantage_clip,
            negative_weight=PUBLISHED.negative_weight,
        )
        advantages[places] = torch.tensor(shaped, dtype=scores.dtype, device=scores.device)
    spread = advantages.unsqueeze(-1) * response_mask
    return spread, spread
