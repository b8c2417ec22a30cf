"""JSON values: which ones are kept, how they are written down, and how they are quoted in messages.

A value is refused rather than changed: NaN, integers past 64 bits, lone surrogates, keys that are not text, and
anything that JSON has no form for raise `InvalidValueError` with the path to the offending place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.limits import (
    ERROR_PREVIEW_CHARS,
    MAX_INTEGER,
    MAX_VALUE_BYTES,
    MAX_VALUE_DEPTH,
    MIN_INTEGER,
)

Json = Any
"""None, bool, int, float, str, list of these, or dict from str to these; checked by `check_value`."""

_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="deterministic")


def check_value(value: object, what: str) -> None:
    """Raise `InvalidValueError` unless `value` can be kept as JSON exactly, within the limits."""
    size = 0
    path: list[str | int] = []
    open_items: list[Iterator[tuple[str | int, object]]] = [iter([("", value)])]
    while open_items:
        try:
            key, item = next(open_items[-1])
        except StopIteration:
            open_items.pop()
            continue
        del path[len(open_items) - 1 :]
        path.append(key)
        match item:
            case None | True | False:
                size += 5
            case str():
                size += _text_bytes(item, what, path) + 3
            case int():
                if not MIN_INTEGER <= item <= MAX_INTEGER:
                    raise InvalidValueError(what, "an integer past 64 bits; send it as text", _show(path))
                size += 2
            case float():
                if not math.isfinite(item):
                    raise InvalidValueError(what, f"{item} is not a JSON number", _show(path))
                size += 4
            case list() | tuple():
                size += 2
                open_items.append(iter(enumerate(item)))
            case dict():
                size += 2
                for name in item:
                    if not isinstance(name, str):
                        why = f"a key of type {type(name).__name__}; JSON keys are text"
                        raise InvalidValueError(what, why, _show(path))
                    size += _text_bytes(name, what, path) + 3
                open_items.append(iter(item.items()))
            case _:
                raise InvalidValueError(what, f"{type(item).__name__} has no JSON form", _show(path))
        if size > MAX_VALUE_BYTES:
            raise InvalidValueError(what, f"larger than {MAX_VALUE_BYTES} bytes of JSON")
        if len(open_items) > MAX_VALUE_DEPTH + 1:
            raise InvalidValueError(what, f"nested deeper than {MAX_VALUE_DEPTH} levels", _show(path))


def _show(path: Sequence[str | int]) -> str:
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{ascii(step)[1:-1]}" for step in path[1:])
    return steps if len(steps) <= ERROR_PREVIEW_CHARS else steps[:ERROR_PREVIEW_CHARS] + "…"


def _text_bytes(text: str, what: str, path: Sequence[str | int]) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        why = f"the text holds a lone surrogate (character {error.start}) and is not valid Unicode"
        raise InvalidValueError(what, why, _show(path)) from None


def encode(value: object) -> bytes:
    """JSON of a value or struct that was checked before."""
    return _encoder.encode(value)


def fingerprint(value: object) -> bytes:
    """Canonical JSON (keys sorted): equal exactly when two values mean the same."""
    return _canonical.encode(value)


def preview(value: object) -> str:
    """A value quoted for a message, cut short."""
    if isinstance(value, str):
        value = value[: ERROR_PREVIEW_CHARS + 1]
    text = _encoder.encode(value).decode()
    return text if len(text) <= ERROR_PREVIEW_CHARS else text[:ERROR_PREVIEW_CHARS] + "…"


def value_bytes(value: object) -> tuple[int, int]:
    """Characters and UTF-8 bytes of an answer, as counted in the metrics: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return len(value), len(value) if value.isascii() else len(value.encode())
    encoded = _encoder.encode(value)
    return len(encoded.decode()), len(encoded)
