"""Published recipes by name or from a TOML file, and adaptive KL."""

from importlib import resources
from pathlib import Path

import msgspec

from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.records.manifest import Recipe

# Published recipes by name, or from a TOML file of the same form.
#
# The two cards of one published model differ, so there are two recipes, never a mixture.


RATIO_LEVELS = ("token", "sequence")


def load_recipe(name: str) -> Recipe:
    """The recipe called `name`, or the one in the TOML file at that path.

    Raises UnknownNameError where it is neither, ConfigurationError where a value cannot be.
    """
    if name.endswith(".toml"):
        try:
            text = Path(name).read_bytes()
        except OSError as e:
            raise ConfigurationError(f"cannot read the recipe {name}: {e.strerror}") from e
    else:
        folder = resources.files("envbuild.train") / "recipes"
        known = [entry.name.removesuffix(".toml") for entry in folder.iterdir()]
        if name not in known:
            raise UnknownNameError("recipe", name, [*known, "a path that ends in .toml"])
        text = (folder / f"{name}.toml").read_bytes()
    try:
        recipe = msgspec.toml.decode(text, type=Recipe)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise ConfigurationError(f"recipe {name}: {e}") from e
    if recipe.ratio_level not in RATIO_LEVELS:
        raise ConfigurationError(
            f"recipe {name}: ratio_level is token or sequence, not {recipe.ratio_level!r}"
        )
    return recipe


# Adaptive KL: β is steered so that the policy stays at a set distance from its reference.


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
