"""The words an agent reads: kept in TOML files, replaceable, their digest in every episode."""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec

from envbuild.errors import ConfigurationError


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
    return _checked(own, source=str(path))


def fill(template: str, **values: object) -> str:
    """`template` with each `{name}` of `values` replaced; any other brace stays."""
    return _PLACE.sub(lambda m: str(values[m[1]]) if m[1] in values else m[0], template)


_PLACE = re.compile(r"\{(\w+)\}")
_TEXTS = tuple(name for name in Prompts.__struct_fields__ if name != "sha256")


@cache
def _default_prompts() -> Prompts:
    content = files("envbuild.episode").joinpath("prompts/default.toml").read_bytes()
    texts = tomllib.loads(content.decode())
    return _digested(msgspec.convert(texts, Prompts))


def _digested(prompts: Prompts) -> Prompts:
    words = {name: getattr(prompts, name) for name in _TEXTS}
    encoded = msgspec.json.encode(words, order="sorted")
    return msgspec.structs.replace(prompts, sha256=hashlib.sha256(encoded).hexdigest())


def _checked(own: Mapping[str, object], *, source: str) -> Prompts:
    unknown = sorted(set(own) - set(_TEXTS))
    if unknown:
        raise ConfigurationError(
            f"{source} has unknown keys: {', '.join(unknown)}; known: {', '.join(_TEXTS)}"
        )
    for name, text in own.items():
        _check_places(name, str(text), source=source)
    merged = {**msgspec.to_builtins(_default_prompts()), **own}
    try:
        return _digested(msgspec.convert(merged, Prompts))
    except msgspec.ValidationError as e:
        raise ConfigurationError(f"{source}: {e}") from e


def _check_places(name: str, text: str, *, source: str) -> None:
    """The package's own texts use every {name} they are filled with: no other is known."""
    known = sorted(set(_PLACE.findall(getattr(_default_prompts(), name))))
    unknown = sorted(set(_PLACE.findall(text)) - set(known))
    if unknown:
        filled = ", ".join(f"{{{place}}}" for place in known) or "nothing"
        raise ConfigurationError(
            f"{source}: {name} has {{{unknown[0]}}}, but is filled with {filled}; a word in braces "
            "that is to stay is written with blanks inside them"
        )
