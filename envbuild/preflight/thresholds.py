"""Thresholds from a TOML file."""

from pathlib import Path

import msgspec

from envbuild.errors import ConfigurationError
from envbuild.records.preflight import Thresholds
from envbuild.records.signal import SignalThresholds


def read_thresholds(path: Path | None) -> Thresholds:
    """The thresholds of a TOML file, the built-in ones where it names none (or there is no file).

    Raises ConfigurationError, naming the keys that would be valid.
    """
    if path is None:
        return Thresholds()
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Thresholds)
    except OSError as e:
        raise ConfigurationError(f"cannot read {path}: {e.strerror}") from e
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        own = ", ".join(name for name in Thresholds.__struct_fields__ if name != "signal")
        signal = ", ".join(SignalThresholds.__struct_fields__)
        raise ConfigurationError(
            f"{path}: {e}; thresholds are {own}, and in the table [signal] {signal}"
        ) from e
