"""Makes hostile inputs out of valid samples: JSON, bytes and text with something changed, cut, doubled or swapped.

Changed samples reach deeper than random bytes: most of such an input is right, so it is not refused at its first byte.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import hypothesis.strategies as st

from holdfast.core.values import Json

Draw: TypeAlias = st.DrawFn

DEEP = "@deep@"
"""A text that `encoded` replaces with lists in lists, deeper than any reader may follow."""

NESTED = "@nested@"
"""As `DEEP`, but just as deep as some readers can follow and others cannot."""

_DEPTHS = {DEEP: 100_000, NESTED: 600}

ODD_TEXTS = (
    "",
    " ",
    "\0",
    "\n",
    "\r\n",
    "\u2028",
    "\ufeff",
    "\ud800",
    "a\udfffb",
    "\U0001f600",
    "e\u0301",
    "\u202eabc",
    "..",
    "../../etc/passwd",
    "/",
    "%s{0}{x}",
    "null",
    "NaN",
    "1e999",
    "q-0",
    "q-99999999999999999999",
    "__proto__",
    "__class__",
    "$blob",
    "\x1b[31m",
    "'; --",
    "[" * 2_000,
    '{"a":' * 2_000,
    "x" * 300,
    "é" * 3_000,
)

ODD_NUMBERS = (
    *(0, 1, -1, 2, 127, 255, 65_536, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**40),
    *(0.0, -0.0, 0.5, 1.0, 1e-320, 1.7e308, float("nan"), float("inf"), float("-inf")),
)

ODD_VALUES: tuple[Json, ...] = (
    *(
        None,
        True,
        False,
        [],
        {},
        [None],
        [[]],
        {"": None},
        {"a": {"a": {}}},
        [0] * 300,
        {str(n): n for n in range(300)},
    ),
    *(*ODD_TEXTS, *ODD_NUMBERS, DEEP, NESTED),
)

_ODD_BYTES = (
    *(b"", b"\0", b"\n", b"\r", b"\r\n\r\n", b" ", b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b",", b":", b"#", b"--"),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf4\x90\x80\x80", b"\x80", b"\\ud800", b"\\u0000"),
    *(b"null", b"NaN", b"-", b"1e999", b"9" * 30, b"9" * 5_000, b"[" * 2_000, b'{"a":' * 2_000, b"x" * 5_000),
)


def encoded(value: Json, *, ascii_only: bool = True) -> bytes:
    """The JSON of a value, with what no JSON library writes: nesting without end, NaN, halves of characters."""
    text = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))
    for mark, depth in _DEPTHS.items():
        if mark in text:
            text = text.replace(f'"{mark}"', "[" * depth + "]" * depth)
    return text.encode("utf-8", "surrogatepass")


# --- JSON values ---------------------------------------------------------------------------------------


@st.composite
def changed_json(draw: Draw, samples: Sequence[Json], most: int = 3) -> Json:
    """A sample with one to `most` changes, each anywhere in it."""
    value = copy.deepcopy(samples[draw(st.integers(0, len(samples) - 1))])
    for _ in range(draw(st.integers(1, most))):
        value = _changed_once(draw, value, samples)
    return value


def _changed_once(draw: Draw, value: Json, samples: Sequence[Json]) -> Json:
    root = [value]
    slots = _slots(root)
    if draw(st.booleans()):  # most places hold others, and what they hold is where the odd values are read
        slots = [(held, name) for held, name in slots if not isinstance(held[name], dict | list)] or slots
    holder, key = slots[draw(st.integers(0, len(slots) - 1))]
    match draw(st.sampled_from(["odd", "odd", "odd", "drop", "double", "near", "swap", "rename", "wrap", "other"])):
        case "odd":
            holder[key] = copy.deepcopy(
                draw(st.sampled_from(_odd_for(holder[key]) if draw(st.booleans()) else ODD_VALUES))
            )
        case "drop" if holder is not root:
            del holder[key]
        case "double" if isinstance(holder, list) and holder is not root:
            holder.insert(key, copy.deepcopy(holder[key]))
        case "near":
            holder[key] = _near(draw, holder[key])
        case "swap":
            other, there = slots[draw(st.integers(0, len(slots) - 1))]
            holder[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(holder[key])
        case "rename" if isinstance(holder, dict):
            name = draw(st.sampled_from([*ODD_TEXTS, *holder]))
            holder[name] = holder.pop(key)
        case "wrap":
            holder[key] = draw(st.sampled_from([[holder[key]], {"value": holder[key]}, json.dumps(holder[key])]))
        case "other":
            there = _slots([samples[draw(st.integers(0, len(samples) - 1))]])
            found, place = there[draw(st.integers(0, len(there) - 1))]
            holder[key] = copy.deepcopy(found[place])
        case _:
            pass
    return root[0]


def _slots(root: list[Json]) -> list[tuple[Any, Any]]:
    """Every place in a value: what holds it, and under which key or number."""
    found: list[tuple[Any, Any]] = [(root, 0)]
    for holder, key in found:
        inner = holder[key]
        if isinstance(inner, dict):
            found += [(inner, name) for name in inner]
        elif isinstance(inner, list):
            found += [(inner, number) for number in range(len(inner))]
    return found


def _odd_for(value: Json) -> Sequence[Json]:
    """Odd values of the same type, which pass the first check."""
    match value:
        case str():
            return (*ODD_TEXTS, f"{value}\ud800", f"{value}\0", value * 50)
        case int() | float():
            return ODD_NUMBERS
        case _:
            return ODD_VALUES


def _near(draw: Draw, value: Json) -> Json:
    """Something of the same type as a value, and a little different."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + draw(st.sampled_from([-1, 1, 0.5, -value, value]))
        case str():
            return draw(changed_text([value], most=1))
        case list():
            return value[::-1] if draw(st.booleans()) else [*value, *value]
        case dict():
            return dict(reversed(value.items()))
        case _:
            return draw(st.sampled_from([0, "", [], {}]))


# --- bytes and text ------------------------------------------------------------------------------------


@st.composite
def changed_bytes(draw: Draw, samples: Sequence[bytes], most: int = 3, words: Sequence[bytes] = ()) -> bytes:
    """A sample with one to `most` places cut, doubled, overwritten, swapped, or filled with odd bytes or words."""
    data = samples[draw(st.integers(0, len(samples) - 1))]
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.sampled_from([0, 1, 2, 5, 20, 100, 1_000])))
        match draw(st.sampled_from(["insert", "insert", "replace", "cut", "drop", "double", "flip", "splice", "swap"])):
            case "insert":
                data = data[:at] + draw(st.sampled_from([*words, *_ODD_BYTES])) + data[at:]
            case "replace":
                data = data[:at] + draw(st.sampled_from([*words, *_ODD_BYTES])) + data[end:]
            case "cut":
                data = data[:at] if draw(st.booleans()) else data[at:]
            case "drop":
                data = data[:at] + data[end:]
            case "double":
                data = data[:end] + data[at:end] * draw(st.sampled_from([1, 2, 50])) + data[end:]
            case "flip" if at < len(data):
                data = data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
            case "splice":
                other = samples[draw(st.integers(0, len(samples) - 1))]
                there = draw(st.integers(0, len(other)))
                data = data[:at] + other[there : there + draw(st.sampled_from([1, 20, 1_000]))] + data[end:]
            case "swap":
                later = draw(st.integers(end, len(data)))
                data = data[:at] + data[end:later] + data[at:end] + data[later:]
            case _:
                pass
    return data


@st.composite
def changed_text(draw: Draw, samples: Sequence[str], most: int = 3, words: Sequence[str] = ()) -> str:
    """As `changed_bytes`, for text; the result may hold odd characters, and is always text."""
    text = samples[draw(st.integers(0, len(samples) - 1))]
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.sampled_from([0, 1, 2, 5, 20, 100])))
        match draw(st.sampled_from(["insert", "replace", "cut", "drop", "double", "splice", "swap"])):
            case "insert":
                text = text[:at] + draw(st.sampled_from([*words, *ODD_TEXTS])) + text[at:]
            case "replace":
                text = text[:at] + draw(st.sampled_from([*words, *ODD_TEXTS])) + text[end:]
            case "cut":
                text = text[:at] if draw(st.booleans()) else text[at:]
            case "drop":
                text = text[:at] + text[end:]
            case "double":
                text = text[:end] + text[at:end] * draw(st.sampled_from([1, 2, 200])) + text[end:]
            case "splice":
                other = samples[draw(st.integers(0, len(samples) - 1))]
                there = draw(st.integers(0, len(other)))
                text = text[:at] + other[there : there + draw(st.sampled_from([1, 20, 1_000]))] + text[end:]
            case "swap":
                later = draw(st.integers(end, len(text)))
                text = text[:at] + text[end:later] + text[at:end] + text[later:]
    return text


@st.composite
def changed_document(draw: Draw, samples: Sequence[Json], most: int = 3) -> bytes:
    """A JSON document whose value was changed, and now and then its bytes too."""
    document = encoded(draw(changed_json(samples, most)), ascii_only=draw(st.booleans()))
    return draw(changed_bytes([document], most=2)) if draw(st.integers(0, 4)) == 0 else document
