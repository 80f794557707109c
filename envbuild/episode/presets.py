"""Named episode settings. The two published cards differ in how many calls a turn may hold."""

import msgspec

from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.records.episode import EpisodeSettings

PRESETS = {
    "default": EpisodeSettings(),
    "one-call": EpisodeSettings(preset="one-call", calls_a_turn=1),
}
"""The two published variants; everything else is common."""

OTHER_NAMES = {"several-calls": "default"}
"""The published variant with several calls a turn is the default; episodes record that name."""

SCHEMAS = ("withheld", "full")
"""What the prompt may say of the schema."""
_LEAST = {
    "tool_turns": 1,
    "tool_turn_tokens": 1,
    "final_turn_tokens": 1,
    "episode_tokens": 1,
    "failing_queries": 1,
    "calls_a_turn": 1,
    "calls": 1,
    "shown_rows": 1,
    "most_rows": 1,
    "cell_characters": 1,
    "observation_characters": 1,
    "gate_steps": 0,
}
"""The least value of each number."""
_TOLD_ELSEWHERE = frozenset(("preset", "schema", "gate_steps", "evaluation"))
"""Fields that an episode records by themselves: the last two as its gate's probability."""


def load_preset(name: str, **changes: object) -> EpisodeSettings:
    """The settings registered under `name`, or another name of theirs, with some fields changed.

    Raises UnknownNameError for another name or field, ConfigurationError for a value that no
    episode can have.
    """
    found = PRESETS.get(OTHER_NAMES.get(name, name))
    if found is None:
        raise UnknownNameError("preset", name, (*PRESETS, *OTHER_NAMES))
    for field in changes:
        if field not in EpisodeSettings.__struct_fields__:
            raise UnknownNameError("episode setting", field, EpisodeSettings.__struct_fields__)
    return check_settings(msgspec.structs.replace(found, **changes))


def check_settings(settings: EpisodeSettings) -> EpisodeSettings:
    """These settings, if an episode can have them.

    Raises UnknownNameError for a schema that is none, ConfigurationError for a value that is
    of another type, or too small.
    """
    if settings.schema not in SCHEMAS:
        raise UnknownNameError("schema", str(settings.schema), SCHEMAS)
    for field, least in _LEAST.items():
        value = getattr(settings, field)
        may_be_none = field == "calls_a_turn"
        if may_be_none and value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            none = ", or None for as many as a turn holds" if may_be_none else ""
            raise ConfigurationError(
                f"the episode setting {field} is {value!r}; it must be a whole number of at least "
                f"{least}{none}"
            )
    if not isinstance(settings.evaluation, bool):
        raise ConfigurationError(
            f"the episode setting evaluation is {settings.evaluation!r}; it must be true or false"
        )
    return settings


def preset_name(settings: EpisodeSettings) -> str:
    """The preset's name, and behind it in brackets each rule that was changed from the preset's.

    A name of the user's own is compared with the default.
    """
    base = PRESETS.get(settings.preset, PRESETS["default"])
    changed = [
        f"{field}={getattr(settings, field)}"
        for field in EpisodeSettings.__struct_fields__
        if field not in _TOLD_ELSEWHERE and getattr(settings, field) != getattr(base, field)
    ]
    return f"{settings.preset} ({', '.join(changed)})" if changed else settings.preset
