"""Values of variables outside the interpreter: made from their leaves, so that they can be passed in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from hashlib import blake2b
from itertools import chain
from typing import Any

import msgspec

from holdfast.agent.rlm.limits import PREVIEW_CHARS, SHOWN_DEPTH, SMALL_CHARS
from holdfast.agent.rlm.variables import Leaf
from holdfast.core.values import Json, repaired

TAG = "$"
"""The key of an object that stands for a value of another type."""

_SPECIAL = frozenset(["deque", "Counter", "defaultdict", "dataclass", "namedtuple", "set", "frozenset"])
"""Kinds that would come out as something else if they were passed in. Sets would have another order in each process,
and with it a cell that is run again would take another course."""


def digest_of(text: str) -> str:
    """A short digest of a value's JSON."""
    return blake2b(text.encode(), digest_size=12).hexdigest()


_ZEROS = bytes(ord("0") if chr(byte) in "0123456789" else byte for byte in range(128)) + bytes(range(128, 256))
"""All digits become zeros."""

_LARGE_INTEGER = b"0" * 19
"""Of the digits that no smaller integer has."""


def is_doubtful(text: str) -> bool:
    """Whether the JSON that the interpreter wrote may stand for something else than the value: it has large integers,
    numbers that are none, or objects that look like tags."""
    if f'"{TAG}":' in text or "NaN" in text or "Infinity" in text:
        return True
    return _LARGE_INTEGER in text.encode().translate(_ZEROS)


def is_tagged(text: str) -> bool:
    """Whether the JSON of a value may have objects that stand for values of other types."""
    return f'"{TAG}"' in text


def leaf_of(text: str, kind: str) -> Leaf:
    """The leaf of a value, from its JSON as the interpreter writes it."""
    is_small, has_tags = len(text) <= SMALL_CHARS, is_tagged(text)
    value: Json = msgspec.json.decode(text) if is_small or has_tags else None
    is_special = has_tags and _has_kind(value, _SPECIAL)
    begin = (
        _first(_pieces(value), PREVIEW_CHARS)
        if is_small or has_tags
        else _ESCAPED.sub(_unescaped, text[: 6 * PREVIEW_CHARS])
    )
    shown = repaired(" ".join(begin.split()))
    return Leaf(
        value=value if is_small else None,
        text="" if is_small else text,
        kind=kind,
        size=len(text.encode()),
        digest=digest_of(text),
        preview=shown[:PREVIEW_CHARS] + ("…" if len(shown) > PREVIEW_CHARS else ""),
        is_special=is_special,
    )


def bounded_repr(value: object, most: int) -> str:
    """The text of a value from the interpreter; of a long one, the first characters. A list that is in itself often has
    a text without end."""
    return _first(_repr_pieces(value, SHOWN_DEPTH), most)


def _repr_pieces(value: object, depth: int) -> Iterator[str]:
    attributes = getattr(value, "attributes", None)
    if depth == 0:
        yield "…"
    elif isinstance(value, list | tuple | set | frozenset) and value:
        opening, closing = _BRACKETS.get(type(value), (f"{type(value).__name__}(", ")"))
        yield opening
        yield from _joined(_repr_pieces(item, depth - 1) for item in value)
        yield ",)" if type(value) is tuple and len(value) == 1 else closing
    elif isinstance(value, dict):
        yield "{"
        parts = (chain(_repr_pieces(k, depth - 1), [": "], _repr_pieces(v, depth - 1)) for k, v in value.items())
        yield from _joined(parts)
        yield "}"
    elif isinstance(attributes, dict):  # an object of a class of the cell's own
        yield f"{getattr(value, 'name', type(value).__name__)}("
        yield from _joined(chain([f"{name}="], _repr_pieces(item, depth - 1)) for name, item in attributes.items())
        yield ")"
    else:
        yield repr(value)


_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}


def _first(pieces: Iterator[str], most: int) -> str:
    text: list[str] = []
    chars = 0
    for piece in pieces:
        text.append(piece)
        chars += len(piece)
        if chars > most:
            break
    return "".join(text)


def _pieces(value: Json) -> Iterator[str]:
    match value:
        case list():
            yield from _enclosed("[", value, "]")
        case {"$": "tuple" | "namedtuple", "v": list(items)}:
            yield from _enclosed(f"{value.get('c', '')}(", items, ",)" if len(items) == 1 and "c" not in value else ")")
        case {"$": "set", "v": list(items)} if items:
            yield from _enclosed("{", items, "}")
        case {"$": "set" | "frozenset" | "deque" as kind, "v": list(items)}:
            yield from _enclosed(f"{kind}([", items, "])")
        case {"$": "dict" | "Counter" | "defaultdict" as kind, "v": list(pairs)}:
            yield "{" if kind == "dict" else f"{kind}({{"
            yield from _joined(_pair(key, item) for key, item in pairs)
            yield "}" if kind == "dict" else "})"
        case {"$": "dataclass", "c": str(name), "v": list(fields)}:
            yield f"{name}("
            yield from _joined(chain([f"{field}="], _pieces(item)) for field, item in fields)
            yield ")"
        case {"$": _}:
            yield repr(value_of(value))
        case dict():
            yield "{"
            yield from _joined(_pair(key, item) for key, item in value.items())
            yield "}"
        case _:
            yield repr(value)


def _pair(key: Json, item: Json) -> Iterator[str]:
    return chain(_pieces(key), [": "], _pieces(item))


def _enclosed(begin: str, items: list[Json], end: str) -> Iterator[str]:
    yield begin
    yield from _joined(map(_pieces, items))
    yield end


def _joined(parts: Iterable[Iterator[str]]) -> Iterator[str]:
    for number, part in enumerate(parts):
        if number:
            yield ", "
        yield from part


_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))


def value_in(text: str) -> Any:
    """The value that the JSON of a leaf stands for; it has no special parts."""
    value: Json = msgspec.json.decode(text)
    return value_of(value) if is_tagged(text) else value


def value_of(value: Json) -> Any:
    """The value that a leaf stands for; it has no special parts."""
    if type(value) is list:
        return [value_of(item) for item in value]
    if type(value) is not dict:
        return value
    if TAG not in value:
        return {key: value_of(item) for key, item in value.items()}
    return _MADE[value[TAG]](value.get("v"))


def _has_kind(value: Json, kinds: frozenset[str]) -> bool:
    open_values: list[Json] = [value]
    while open_values:
        item = open_values.pop()
        if isinstance(item, list):
            open_values += item
        elif isinstance(item, dict):
            if item.get(TAG) in kinds:
                return True
            open_values += item.values()
    return False


def _items(raw: Json) -> list[Any]:
    return [value_of(item) for item in raw]


_MADE: dict[str, Callable[[Json], Any]] = {
    "int": int,
    "float": float,
    "bytes": bytes.fromhex,
    "complex": lambda raw: complex(*_items(raw)),
    "ellipsis": lambda raw: ...,
    "Decimal": Decimal,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "datetime": datetime.fromisoformat,
    "timedelta": lambda raw: timedelta(*raw),
    "timezone": lambda raw: timezone(timedelta(*raw)),
    "dict": lambda raw: {value_of(key): value_of(item) for key, item in raw},
    "tuple": lambda raw: tuple(_items(raw)),
}
"""How the values of each kind are made."""
