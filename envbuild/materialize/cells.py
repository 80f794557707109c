"""One payload cell as a value SQLite can take, and what was changed to make it one."""

import json
import math
from collections.abc import Callable
from typing import Any

from envbuild.io.packed import UndecodableText, unpack_value

PLAIN_TYPES = frozenset((int, float, str, bool, type(None)))
"""Types that are bound as they are, unless they came through the lenient decoder."""
INT64 = range(-(2**63), 2**63)
Report = Callable[[str], None]
"""Takes the reason code of what a cell lost."""


def bindable(value: Any, *, packed: bool, report: Report) -> Any:
    """`value` as None, int, float, str, bytes or UndecodableText.

    Objects and arrays become JSON text (packed ones their value), booleans 0 or 1, integers past
    64 bits their digits, NaN becomes NULL (`nan_to_null`), a lone surrogate U+FFFD
    (`invalid_unicode`).
    """
    if isinstance(value, str):
        return value if _encodable(value) else _replace_surrogates(value, report)
    if value is None or isinstance(value, bytes | UndecodableText):
        return value
    if isinstance(value, bool | int):
        return int(value) if value in INT64 else str(value)
    if isinstance(value, float):
        if math.isnan(value):
            report("nan_to_null")
            return None
        return value
    if packed and isinstance(value, dict):
        return unpack_value(value)
    text = json.dumps(value)
    return text if _encodable(text) else _replace_surrogates(text, report)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _replace_surrogates(text: str, report: Report) -> str:
    """Pairs written as two escapes are one character; what stays alone becomes U+FFFD."""
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if "\ufffd" in joined:
        report("invalid_unicode")
    return joined
