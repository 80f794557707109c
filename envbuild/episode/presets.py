"""Named episode settings. The two published cards differ in how many calls a turn may hold."""

import msgspec

from envbuild.errors import UnknownNameError
from envbuild.records.episode import EpisodeSettings

PRESETS = {
    "default": EpisodeSettings(),
    "several-calls": EpisodeSettings(preset="several-calls"),
    "one-call": EpisodeSettings(preset="one-call", calls_a_turn=1),
}
"""`several-calls` and `one-call` are the two published variants; everything else is common."""


def load_preset(name: str, **changes: object) -> EpisodeSettings:
    """The settings registered under `name`, with some fields changed.

    Raises UnknownNameError for another name.
    """
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS)
    return msgspec.structs.replace(PRESETS[name], **changes)
