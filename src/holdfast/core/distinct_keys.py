"""Repeated keys of JSON objects: refused, because readers differ in which of the two they follow.

`{"decision": "deny", "decision": "approve"}` is a denial to whoever shows the first, and an approval to a parser that
keeps the last. Whatever comes from outside as JSON text is looked at here before it is acted on.
"""

from __future__ import annotations

import json

from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json, preview


def check_distinct_keys(text: str | bytes, what: str) -> None:
    """Raise `InvalidValueError` if a key stands twice in an object of a JSON text, however it is spelled.

    Nothing is said of text that is not JSON: whoever reads it says what is wrong. Numbers are not read, since a number
    that one reader refuses must not keep the keys from being looked at.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:
            return
    if text.count(":") < 2:
        return
    try:
        _decoder.decode(text)
    except _RepeatedKeyError as error:
        raise InvalidValueError(what, repeated_key(error.key)) from None
    except RecursionError:
        raise InvalidValueError(what, "nested too deeply") from None
    except ValueError:
        return


def distinct(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object, as an `object_pairs_hook` makes it; `ValueError` if one of its keys stands in it twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        for key, _ in pairs:  # those that are still there have not been met before
            if found.pop(key, _GONE) is _GONE:
                raise _RepeatedKeyError(key)
    return found


def repeated_key(key: str) -> str:
    """What is wrong with a repeated key, in words."""
    return f"the key {preview(key)} stands in one object more than once; send it once"


_GONE = object()


class _RepeatedKeyError(ValueError):
    """A key that stands in one object twice."""

    def __init__(self, key: str) -> None:
        super().__init__(repeated_key(key))
        self.key = key


def _unread(number: str) -> None:
    """A number that is not looked at."""


_decoder = json.JSONDecoder(
    object_pairs_hook=distinct, parse_int=_unread, parse_float=_unread, parse_constant=_unread, strict=False
)
