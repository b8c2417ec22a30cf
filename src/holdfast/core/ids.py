"""Ids: their grammar, how new ones are made, and how queries are numbered."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from holdfast.core.errors import InvalidIdError
from holdfast.core.limits import ERROR_PREVIEW_CHARS, MAX_ID_CHARS

DEFAULT_SERVICE = "default"
"""The service that sessions belong to, and that a process serves, unless it says otherwise."""

_GRAMMAR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+=-]*\Z")
_ALPHABET = b"0123456789abcdefghjkmnpqrstvwxyz"  # 32 characters; no i, l, o, u: safe to read aloud
_BY_BYTE = _ALPHABET * 8  # the character for each of 256 bytes
_SESSION_CHARS = 26  # 130 bits: cannot be guessed, cannot collide
_TURN_CHARS = 12  # 60 bits: enough for the turns and items of one session


def _system_bytes(size: int) -> bytes:
    from secrets import token_bytes  # not before it is needed: whoever only lists sessions does without

    return token_bytes(size)


def new_session_id(random_bytes: Callable[[int], bytes] = _system_bytes) -> str:
    """A fresh session id, `s-` and 26 characters, from the operating system's CSPRNG or another source of bytes."""
    return "s-" + random_bytes(_SESSION_CHARS).translate(_BY_BYTE).decode()


def new_turn_id(random_bytes: Callable[[int], bytes] = _system_bytes) -> str:
    """A fresh turn id: `t-` and 12 characters."""
    return "t-" + random_bytes(_TURN_CHARS).translate(_BY_BYTE).decode()


def new_item_id(random_bytes: Callable[[int], bytes] = _system_bytes) -> str:
    """A fresh id of an item of an inbox: `i-` and 12 characters."""
    return "i-" + random_bytes(_TURN_CHARS).translate(_BY_BYTE).decode()


@lru_cache(maxsize=4096)
def query_id(number: int) -> str:
    """The id of the session's n-th query, counted from 0 through its whole life. Kept: each is made several times."""
    return f"q-{number}"


def child_session_id(parent: str, asked: str) -> str:
    """The id of a child session: the same whenever its query is taken up again."""
    return f"{parent}.{asked}"


def query_number(text: str) -> int | None:
    """The number of a query from its id, or None if no query can have this id."""
    digits = text[2:]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _NUMBER_DIGITS):
        return None
    number = int(digits)
    return number if text == f"q-{number}" else None


_NUMBER_DIGITS = 18  # as many as always fit into 64 bits


def check_id(text: object, what: str) -> str:
    """Give back `text` if it is an id, or raise `InvalidIdError` saying what is wrong with it.

    Ids are safe as file names, URL segments, SQL text and shell words: 1 to `MAX_ID_CHARS` characters, letters, digits
    and `. _ : @ + = -`, beginning with a letter or digit.
    """
    if text.__class__ is str and _is_id(text):
        return text
    if not isinstance(text, str):
        raise InvalidIdError(what, f"of type {type(text).__name__}", "expected text")
    if not text:
        raise InvalidIdError(what, "''", "it is empty")
    if len(text) > MAX_ID_CHARS:
        why = f"it has {len(text)} characters, and at most {MAX_ID_CHARS} are allowed"
        raise InvalidIdError(what, ascii(text[:ERROR_PREVIEW_CHARS]) + "…", why)
    why = "use letters, digits and . _ : @ + = - only, beginning with a letter or digit"
    raise InvalidIdError(what, ascii(text), why)


@lru_cache(maxsize=4096)
def _is_id(text: str) -> bool:
    """Kept for the ids in use: the same few are checked again and again."""
    return len(text) <= MAX_ID_CHARS and _GRAMMAR.match(text) is not None
