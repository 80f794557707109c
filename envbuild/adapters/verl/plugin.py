"""What verl loads through the entry-point group `verl.plugins`: importing it registers both.

The reward function is not here: verl loads it by path, which would register these twice.
"""

from envbuild.adapters.verl.advantage import shaped_grpo
from envbuild.adapters.verl.agent_loop import EpisodeAgentLoop

__all__ = ["EpisodeAgentLoop", "shaped_grpo"]
