"""verl's reward function, for a run that does not use the agent loop: `custom_reward_function`.

verl loads this file by its path, so nothing here registers anything. It scores one completion by
itself: no tools, no group, hence no consensus bonus.
"""

from typing import Any

from envbuild.train.completions import reward_record, score_completion
from envbuild.train.trainer_env import shared_trainer_env


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> dict[str, Any]:
    """The reward of a completion and its parts; the gold comes from the manifest.

    `extra_info` must hold the export's `env_json`; $ENVBUILD_MANIFEST names the manifest.
    """
    breakdown = score_completion(shared_trainer_env(), solution_str, extra_info["env_json"])
    return reward_record(breakdown)
