"""Adaptive KL: β is steered so that the policy stays at a set distance from its reference."""

import msgspec

from envbuild.records.manifest import Recipe

FACTOR = 1.5
"""Our choice, the cards are silent: β moves by this, and only where KL is off by more than it."""


class AdaptiveKL:
    """β from the measured KL of each update, within its bounds."""

    def __init__(self, recipe: Recipe) -> None:
        self.target = recipe.kl_target
        self.least, self.most = recipe.kl_beta, recipe.kl_beta_most
        self.beta = recipe.kl_beta

    def update(self, measured: float) -> float:
        """The next β, after an update whose mean KL per token was `measured`."""
        if measured > self.target * FACTOR:
            self.beta = min(self.most, self.beta * FACTOR)
        elif measured < self.target / FACTOR:
            self.beta = max(self.least, self.beta / FACTOR)
        return self.beta

    def state(self) -> bytes:
        """What a checkpoint keeps, as JSON."""
        return msgspec.json.encode({"beta": self.beta})

    def restore(self, state: bytes) -> None:
        """Takes up what `state` wrote."""
        self.beta = msgspec.json.decode(state, type=dict[str, float])["beta"]
