"""The arguments of a call as a model wrote them: text that should be a JSON object, and sometimes is not."""

from __future__ import annotations

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json, check_value, repaired

RAW = "_raw"
"""The one key of arguments that could not be read; under it, what the model wrote."""


def read_arguments(text: str) -> dict[str, Json]:
    """The arguments in `text`; no text, and `null`, mean none.

    Text that is no JSON object, or holds what cannot be kept, is given back as `{"_raw": text}`. A call is not lost to
    that: the tool layer tells the model what it wrote and that it cannot be read, and the model writes it anew.
    """
    if not text.strip():
        return {}
    try:
        value = msgspec.json.decode(text)
        check_value(value, "arguments")
    except (msgspec.DecodeError, InvalidValueError, UnicodeError, RecursionError):
        return {RAW: repaired(text)}
    if value is None:
        return {}
    return value if isinstance(value, dict) else {RAW: text}
