"""Digests of what is evaluated, and where two values first differ."""

from __future__ import annotations

import contextlib
import hashlib

import msgspec

from holdfast.core.values import Json, preview

_encoder = msgspec.json.Encoder(order="deterministic")

DIGEST_CHARS = 8
"""Hex digits of the digest of an arm or a grader: 32 bits, for some dozens of each."""


def digest(value: object, chars: int = DIGEST_CHARS) -> str:
    """A fingerprint of a value, the same for equal values whatever the order of their keys."""
    return hashlib.sha256(_encoder.encode(value)).hexdigest()[:chars]


def first_difference(before: Json, now: Json, path: str = "") -> str | None:
    """Where two values first differ, in words; None if they are equal."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            if key not in before or key not in now:
                side, value = ("now", now[key]) if key in now else ("then", before[key])
                return f"{path}{key}: only {side}, {preview(value)}"
            if (found := first_difference(before[key], now[key], f"{path}{key}.")) is not None:
                return found
        return None
    if isinstance(before, list) and isinstance(now, list):
        for number, (old, new) in enumerate(zip(before, now, strict=False)):
            if (found := first_difference(old, new, f"{path}{number}.")) is not None:
                return found
        return None if len(before) == len(now) else f"{path.rstrip('.')}: {len(before)} items then, {len(now)} now"
    if before == now and type(before) is type(now):
        return None
    if isinstance(before, str) and isinstance(now, str):
        if before[:1] == now[:1] == "{":  # a source text with its settings
            with contextlib.suppress(msgspec.DecodeError):
                return first_difference(msgspec.json.decode(before), msgspec.json.decode(now), path)
        return _text_difference(before, now, path.rstrip("."))
    return f"{path.rstrip('.') or 'value'}: {preview(before)} then, {preview(now)} now"


def _text_difference(before: str, now: str, path: str) -> str:
    old, new = before.splitlines(), now.splitlines()
    for number, (first, second) in enumerate(zip(old, new, strict=False), 1):
        if first != second:
            line = f" line {number}" if len(old) > 1 or len(new) > 1 else ""
            return f"{path or 'text'}{line}: {preview(first)} then, {preview(second)} now"
    return f"{path or 'text'}: {len(old)} lines then, {len(new)} now"
