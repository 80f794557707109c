"""What verl loads through the entry-point group `verl.plugins`: importing it registers both.

The reward function is not here: verl loads it by path, which would register these twice.
"""

from envbuild.train.verl import EpisodeAgentLoop, shaped_grpo

__all__ = ["EpisodeAgentLoop", "shaped_grpo"]
