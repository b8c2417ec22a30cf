"""JSON values: which ones are kept, how they are written down, and how they are quoted in messages.

A value is refused rather than changed: NaN, integers past 64 bits, lone surrogates, keys that are not text, and
anything that JSON has no form for raise `InvalidValueError` with the path to the offending place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.large import encode_in_pieces, in_pieces, is_large, without_large_values
from holdfast.core.limits import (
    ERROR_PREVIEW_CHARS,
    MAX_INTEGER,
    MAX_VALUE_BYTES,
    MAX_VALUE_DEPTH,
    MIN_INTEGER,
)

Json = Any
"""None, bool, int, float, str, list of these, or dict from str to these; checked by `check_value`."""

T = TypeVar("T", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="deterministic")


def check_value(value: object, what: str) -> None:
    """Raise `InvalidValueError` unless `value` can be kept as JSON exactly, within the limits."""
    _check(value, what, structs=False)


def _check(value: object, what: str, structs: bool) -> None:
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
        kind = type(item)
        if isinstance(item, str) and kind is str:
            size += _text_bytes(item, what, path) + 3
        elif item is None or kind is bool:
            size += 5
        elif isinstance(item, int) and kind is int:
            if not MIN_INTEGER <= item <= MAX_INTEGER:
                raise InvalidValueError(what, "an integer past 64 bits; send it as text", _show(path))
            size += 2
        elif isinstance(item, float) and kind is float:
            if not math.isfinite(item):
                raise InvalidValueError(what, f"{item} is not a JSON number", _show(path))
            size += 4
        elif isinstance(item, dict):
            size += 2
            for name in item:
                if type(name) is not str:
                    why = f"a key of type {type(name).__name__}; JSON keys are text"
                    raise InvalidValueError(what, why, _show(path))
                size += _text_bytes(name, what, path) + 3
            open_items.append(iter(item.items()))
        elif isinstance(item, (list, tuple)):
            size += 2
            open_items.append(iter(enumerate(item)))
        elif structs and isinstance(item, msgspec.Struct):
            size += 2
            open_items.append(iter([(name, getattr(item, name)) for name in item.__struct_fields__]))
        else:
            raise InvalidValueError(what, f"{kind.__name__} has no JSON form", _show(path))
        if size > MAX_VALUE_BYTES:
            raise InvalidValueError(what, f"larger than {MAX_VALUE_BYTES} bytes of JSON")
        if len(open_items) > MAX_VALUE_DEPTH + 1:
            raise InvalidValueError(what, f"nested deeper than {MAX_VALUE_DEPTH} levels", _show(path))
    # The sum above leaves out escapes and long numbers, so what may be near the limit is measured.
    if size * _MOST_SWELLING > MAX_VALUE_BYTES and len(encode_in_pieces(value)) > MAX_VALUE_BYTES:
        raise InvalidValueError(what, f"larger than {MAX_VALUE_BYTES} bytes of JSON")


_MOST_SWELLING = 10
"""How much larger JSON can be than what `check_value` adds up: a long integer against the two bytes booked for it."""


def checked(struct: T, what: str) -> T:
    """Give back `struct` if it can be stored and read back as it is; raise `InvalidValueError` if not."""
    encode_checked(struct, what)
    return struct


def encode_checked(struct: msgspec.Struct, what: str) -> bytes:
    """The JSON of a struct that can be stored and read back as it is; `InvalidValueError` if it cannot."""
    body = encode_sound(struct)
    if body is not None:
        return body
    _check(struct, what, structs=True)
    typed = without_large_values(struct) if is_large(struct) else struct
    try:
        msgspec.convert(msgspec.to_builtins(typed), type(struct))
        return encode_in_pieces(struct)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidValueError(what, str(error)[: 2 * ERROR_PREVIEW_CHARS]) from None


def encode_sound(struct: msgspec.Struct) -> bytes | None:
    """The JSON of a struct that is sound at a glance: small, flat enough, and equal to what is read back.

    None says nothing yet: such a struct has to be checked value by value.
    """
    try:
        body = _encoder.encode(struct)
        if (
            len(body) <= _PLAIN_BYTES
            and body.count(b"[") + body.count(b"{") <= MAX_VALUE_DEPTH
            and _LONG_NUMBER not in body.translate(_DIGITS)
            and _decoders[type(struct)].decode(body) == struct
        ):
            return body
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    return None


def encode_plain(struct: msgspec.Struct) -> bytes | None:
    """The JSON of a struct whose types leave no place for an object, a list or a number that JSON cannot keep.

    Whoever calls it has looked at the types; the encoder itself refuses text that is not valid Unicode. None, as with
    `encode_sound`, says that the struct has to be looked through.
    """
    try:
        body = _encoder.encode(struct)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return body if len(body) <= _PLAIN_BYTES else None


_PLAIN_BYTES = 64 * 1024
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19  # as many digits as a 64-bit integer has


class Decoder(Protocol):
    """What reads a struct back from its JSON."""

    def decode(self, body: bytes, /) -> Any: ...


class _Decoders(dict[type[msgspec.Struct], Decoder]):
    """A decoder for each type of struct, made when it is first asked for."""

    def __missing__(self, kind: type[msgspec.Struct]) -> Decoder:
        decoder = self[kind] = msgspec.json.Decoder(kind)
        return decoder


_decoders = _Decoders()


def decode_with(kind: type[msgspec.Struct], decoder: Decoder) -> None:
    """Read structs of a type with this decoder: its fields can be of types that msgspec does not find by itself."""
    _decoders[kind] = decoder


def own_copy(value: Json) -> Json:
    """A value that shares nothing changeable with the given one, in the form it has when it is read back."""
    if type(value) is str:  # as most answers
        return value
    return in_pieces(value, _copied) if isinstance(value, (dict, list, tuple)) else value


def _copied(value: Json) -> Json:
    return msgspec.json.decode(_encoder.encode(value))


def own_copy_of(struct: T) -> T:
    """A struct that shares nothing changeable with the given one, as it is when it is read back."""
    copied: T = _decoders[type(struct)].decode(_encoder.encode(struct))
    return copied


def check_number(number: object, what: str, least: int = MIN_INTEGER) -> None:
    """Raise `InvalidValueError` unless `number` is an integer from `least` to 64 bits."""
    if type(number) is not int or not least <= number <= MAX_INTEGER:
        raise InvalidValueError(what, f"must be an integer from {least} to {MAX_INTEGER}")


def repaired(text: str) -> str:
    """Text with whatever is not valid Unicode replaced: for messages that must not be lost to their own content."""
    return text.encode("utf-8", "replace").decode()


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
    """A short digest that is equal exactly when two values mean the same, in any process."""
    if value.__class__ is str:
        return blake2b(b"text:" + value.encode(), digest_size=16).digest()
    return blake2b(_canonical.encode(value), digest_size=16).digest()


def preview(value: object) -> str:
    """A value quoted for a message, cut short."""
    if isinstance(value, str):
        value = repaired(value[: ERROR_PREVIEW_CHARS + 1])
    try:
        text = _encoder.encode(value).decode()
    except (TypeError, ValueError, OverflowError):
        text = ascii(value)
    except RecursionError:
        text = f"{type(value).__name__} that is nested too deeply"
    return text if len(text) <= ERROR_PREVIEW_CHARS else text[:ERROR_PREVIEW_CHARS] + "…"


def value_bytes(value: object) -> tuple[int, int]:
    """Characters and UTF-8 bytes of an answer, as counted in the metrics: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return len(value), len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    encoded = _encoder.encode(value)
    return len(encoded.decode()), len(encoded)
