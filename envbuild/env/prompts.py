"""The words an agent reads, and named episode settings with their submit gate (CONTRACT 10)."""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec

from envbuild.engine.seeds import derived_random
from envbuild.errors import ConfigurationError, UnknownNameError
from envbuild.records.episode import EpisodeSettings
from envbuild.sql.tokens import iter_code

# The submit gate: early in training an answer must have run before it may be submitted.


def gate_probability(step: int | None, settings: EpisodeSettings) -> float:
    """How likely an episode of this training step is gated: 1.0 at step 0, 0.0 from `gate_steps`.

    Without a step, and at evaluation, never.
    """
    if step is None or settings.evaluation or settings.gate_steps <= 0:
        return 0.0
    return min(1.0, max(0.0, 1.0 - step / settings.gate_steps))


def draw_gate(probability: float, *, seed: int, row_id: str, candidate: int) -> bool:
    """Whether this episode is gated: drawn once, the same on every machine."""
    return derived_random(seed, f"{row_id}/{candidate}", "submit_gate").random() < probability


def normalised(sql: str) -> tuple[str, ...]:
    """The query's tokens: equal for two texts that differ in blanks, comments and a trailing `;`.

    Blanks inside a literal or a quoted name are part of it and count.
    """
    tokens = [token.text for token in iter_code(sql)]
    while tokens and tokens[-1] == ";":
        tokens.pop()
    return tuple(tokens)


# The words an agent reads: kept in TOML files, replaceable, their digest in every episode.


class Prompts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every text of the protocol; `prompts/default.toml` says where each is used."""

    system: str
    several_calls: str
    limited_calls: str
    one_call: str
    user: str
    evidence: str
    schema: str
    result: str
    numbered_result: str
    turns_left: str
    turn_left: str
    no_call: str
    unfinished_thinking: str
    extra_calls: str
    calls_spent: str
    errors_spent: str
    not_run: str
    unread: str
    gate: str
    final: str
    last_query: str
    sha256: str = ""
    """Over every text above as it is used: the same words have the same digest in any version."""


def load_prompts(path: Path | None = None) -> Prompts:
    """The prompts of a TOML file; the package's own without one.

    A key that the file lacks is the package's own. Raises ConfigurationError for a file that is
    missing, no TOML, or has a key that does not exist or a {name} that its text is not filled with.
    """
    if path is None:
        return _default_prompts()
    try:
        own = tomllib.loads(Path(path).read_bytes().decode())
    except OSError as e:
        raise ConfigurationError(f"cannot read the prompts file {path}: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigurationError(f"{path} is not TOML: {e}") from e
    if unknown := sorted(set(own) - set(_TEXTS)):
        raise ConfigurationError(
            f"{path} has unknown keys: {', '.join(unknown)}; known: {', '.join(_TEXTS)}"
        )
    for name, text in own.items():  # the package's own texts use every {name} they are filled with
        known = sorted(set(_PLACE.findall(getattr(_default_prompts(), name))))
        if others := sorted(set(_PLACE.findall(str(text))) - set(known)):
            filled = ", ".join(f"{{{place}}}" for place in known) or "nothing"
            raise ConfigurationError(
                f"{path}: {name} has {{{others[0]}}}, but is filled with {filled}; a word in "
                "braces that is to stay is written with blanks inside them"
            )
    try:
        return _digested({**msgspec.structs.asdict(_default_prompts()), **own})
    except msgspec.ValidationError as e:
        raise ConfigurationError(f"{path}: {e}") from e


def fill(template: str, **values: object) -> str:
    """`template` with each `{name}` of `values` replaced; any other brace stays."""
    return _PLACE.sub(lambda m: str(values[m[1]]) if m[1] in values else m[0], template)


_PLACE = re.compile(r"\{(\w+)\}")
_TEXTS = tuple(name for name in Prompts.__struct_fields__ if name != "sha256")


@cache
def _default_prompts() -> Prompts:
    content = files("envbuild.env").joinpath("prompt_files/default.toml").read_bytes()
    return _digested(tomllib.loads(content.decode()))


def _digested(texts: Mapping[str, object]) -> Prompts:
    prompts = msgspec.convert(texts, Prompts)
    words = {name: getattr(prompts, name) for name in _TEXTS}
    encoded = msgspec.json.encode(words, order="sorted")
    return msgspec.structs.replace(prompts, sha256=hashlib.sha256(encoded).hexdigest())


# Named episode settings. The two published cards differ in how many calls a turn may hold.


PRESETS = {
    "default": EpisodeSettings(),
    "one-call": EpisodeSettings(preset="one-call", calls_a_turn=1),
}
"""The two published variants; everything else is common."""

OTHER_NAMES = {"several-calls": "default"}
"""The published variant with several calls a turn is the default; episodes record that name."""

SCHEMAS = ("withheld", "full")
"""What the prompt may say of the schema."""
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
    try:
        return msgspec.convert(msgspec.structs.asdict(settings), EpisodeSettings)
    except msgspec.ValidationError as e:
        raise ConfigurationError(f"no episode can have these settings: {e}") from e


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
