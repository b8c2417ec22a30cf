"""Cursors: where a watcher is in a session, as a text that it keeps and brings back. What is in it is not its business.

A cursor names a place, and gives no right to anything; its check sum finds what was cut off or mistyped.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.errors import HoldfastError

VERSION = "c1"

_CHECK_BYTES = 6


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """A place in a session."""

    session_id: str
    born: int
    """When the session began (unix ms). Another session may have the same id in another store, or after a loss."""
    position: int = 0
    """Everything up to here was seen,"""
    part: int = 0
    """and so many of the events of the entry after it."""
    ring: str = ""
    """Whose live events were seen since; empty if none were."""
    live: int = 0
    """How far in those."""


Wrong: TypeAlias = Literal["garbled", "version", "other_session", "future"]


class InvalidCursorError(HoldfastError):
    """A cursor is none of this session."""

    session_id: str
    why: Wrong
    detail: str
    kind = "invalid_cursor"

    def __str__(self) -> str:
        return f"session '{self.session_id}': {self.detail}; start again with the cursor of its current observation"


def cursor_text(cursor: Cursor) -> str:
    """A cursor as watchers keep it: letters, digits, `-` and `_`."""
    body = msgspec.json.encode(cursor)
    return f"{VERSION}-{base64.urlsafe_b64encode(_check(body) + body).rstrip(b'=').decode()}"


def read_cursor(text: str, session_id: str) -> Cursor:
    """The place that a text names. Raises `InvalidCursorError` unless it is one of this session."""
    version, dash, rest = text.partition("-")
    if dash and version != VERSION and version[:1] == "c" and version[1:].isdecimal():
        raise InvalidCursorError(session_id, "version", f"the cursor is of version '{version}', and not '{VERSION}'")
    try:
        data = base64.b64decode(rest + "=" * (-len(rest) % 4), altchars=b"-_", validate=True)
        check, body = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
        if version != VERSION or check != _check(body):
            raise ValueError("check sum")
        cursor = msgspec.json.decode(body, type=Cursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise InvalidCursorError(session_id, "garbled", "that is no cursor, or not the whole of one") from None
    if cursor.session_id != session_id:
        raise InvalidCursorError(session_id, "other_session", f"the cursor is of session '{cursor.session_id}'")
    if min(cursor.position, cursor.part, cursor.live) < 0:
        raise InvalidCursorError(session_id, "garbled", "the cursor names no place")
    return cursor


def _check(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECK_BYTES, person=b"holdfast-cursor").digest()
