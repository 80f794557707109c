"""Named episode settings. The two published cards differ in how many calls a turn may hold."""

import msgspec

from envbuild.errors import UnknownNameError
from envbuild.records.episode import EpisodeSettings

PRESETS = {
    "default": EpisodeSettings(),
    "one-call": EpisodeSettings(preset="one-call", calls_a_turn=1),
}
"""The two published variants; everything else is common."""

OTHER_NAMES = {"several-calls": "default"}
"""The published variant with several calls a turn is the default; episodes record that name."""


def load_preset(name: str, **changes: object) -> EpisodeSettings:
    """The settings registered under `name`, or another name of theirs, with some fields changed.

    Raises UnknownNameError for another name.
    """
    found = PRESETS.get(OTHER_NAMES.get(name, name))
    if found is None:
        raise UnknownNameError("preset", name, (*PRESETS, *OTHER_NAMES))
    return msgspec.structs.replace(found, **changes)
