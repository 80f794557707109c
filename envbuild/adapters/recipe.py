"""Published recipes by name, or from a TOML file of the same form.

The two cards of one published model differ, so there are two recipes, never a mixture.
"""

from importlib import resources
from pathlib import Path

import msgspec

from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.records.manifest import Recipe

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
        folder = resources.files("envbuild.adapters") / "recipes"
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
