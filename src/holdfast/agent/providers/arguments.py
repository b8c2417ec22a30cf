"""Reads the arguments of a tool call as a model wrote them: text that should be a JSON object, and sometimes is not."""

from __future__ import annotations

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json, check_value, repaired

RAW = "_raw"
"""The only key of arguments that could not be parsed; its value is what the model wrote."""


def read_arguments(text: str) -> dict[str, Json]:
    """The arguments in `text`; empty text and `null` mean none.

    Text that is not a JSON object, or cannot be stored, is returned as `{"_raw": text}`. The call is not lost: the tool
    layer tells the model that its arguments cannot be parsed, and the model tries again.
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
