"""Large values: which ones are too large to be handled at once, and how they are handled piece by piece.

One call of the JSON library is a single step for every thread of the process, however long it takes. A large value is
therefore not handed to it whole but in pieces, and whoever has an event loop does that in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

import msgspec

LARGE_NODES = 2_000
"""Values in a value, itself included, past which it is large: to check and to encode as many takes about 5 ms."""

LARGE_CHARS = 256 * 1024
"""Characters of text in a value past which it is large: to encode, hash and compress as many takes about 5 ms."""

PIECE_ITEMS = 500
"""Items of a large list or object that are handled at once."""

_NUMBERS = frozenset((int, float, bool, type(None)))

S = TypeVar("S", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()


def is_large(value: object) -> bool:
    """Whether a value, or a struct with values, is large. It is looked at no further than to see that."""
    nodes, chars, open_items = 1, 0, [value]
    while open_items:
        item = open_items.pop()
        if type(item) is str or isinstance(item, (str, bytes)):
            chars += len(item)
        elif type(item) in _NUMBERS:
            continue
        elif isinstance(item, dict):
            nodes += len(item)
            open_items += islice(item.values(), LARGE_NODES)
        elif isinstance(item, (list, tuple)):
            nodes += len(item)
            open_items += islice(item, LARGE_NODES)
        elif isinstance(item, msgspec.Struct):
            open_items += msgspec.structs.astuple(item)
        if nodes > LARGE_NODES or chars > LARGE_CHARS:
            return True
    return False


def in_pieces(value: Any, convert: Callable[[Any], Any]) -> Any:
    """What `convert` makes of a JSON value. It is called for pieces that are not large, where there are such pieces."""
    if not is_large(value):
        return convert(value)
    if isinstance(value, dict):
        converted: dict[Any, Any] = {}
        for batch in _batches(iter(value.items())):
            piece = dict(batch)
            if is_large(piece):
                converted |= {key: in_pieces(part, convert) for key, part in piece.items()}
            else:
                converted |= convert(piece)
        return converted
    if isinstance(value, (list, tuple)):
        items: list[Any] = []
        for batch in _batches(iter(value)):
            items += [in_pieces(part, convert) for part in batch] if is_large(batch) else convert(batch)
        return items
    return convert(value)


def encode_in_pieces(value: Any) -> bytes:
    """The JSON of a value, or of a struct with values."""
    if not is_large(value):
        return _encoder.encode(value)
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return _encoder.encode(msgspec.structs.replace(value, **_with_large_encoded(fields)))
    if isinstance(value, dict):
        pieces = (dict(batch) for batch in _batches(iter(value.items())))
        return b"{%b}" % b",".join(_inside(_with_large_encoded(piece)) for piece in pieces)
    if isinstance(value, (list, tuple)):
        return b"[%b]" % b",".join(
            b",".join(map(encode_in_pieces, batch)) if is_large(batch) else _inside(batch)
            for batch in _batches(iter(value))
        )
    return _encoder.encode(value)


def _with_large_encoded(parts: dict[str, Any]) -> dict[str, Any]:
    if not is_large(parts):
        return parts
    return {key: msgspec.Raw(encode_in_pieces(part)) if is_large(part) else part for key, part in parts.items()}


def _inside(batch: Any) -> bytes:
    """The JSON of a list or an object without its brackets."""
    return _encoder.encode(batch)[1:-1]


def _batches(items: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(items, PIECE_ITEMS)):
        yield batch


def without_large_values(struct: S) -> S:
    """A struct with the large lists and objects of plain values in it emptied: only its types are left to check."""
    return msgspec.structs.replace(
        struct, **{name: _emptied(getattr(struct, name)) for name in struct.__struct_fields__}
    )


def _emptied(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return without_large_values(value)
    if not isinstance(value, (dict, list, tuple)) or not is_large(value):
        return value
    parts = value.values() if isinstance(value, dict) else value
    if not any(isinstance(part, msgspec.Struct) for part in islice(parts, PIECE_ITEMS)):
        return type(value)()
    return {key: _emptied(part) for key, part in value.items()} if isinstance(value, dict) else [*map(_emptied, value)]
