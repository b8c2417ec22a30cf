"""The stored form of entries and messages: JSON a person can read, with large values moved into blobs.

A record whose JSON is small is stored as it is. In a larger one, every value past `INLINE_VALUE_BYTES` is replaced by
`{"$blob": id, "bytes": n}`; what is left stays readable. An object of the user's own that has such a key is wrapped in
`{"$literal": …}`, so that nothing a program says can be taken for a reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.decide import Message
from holdfast.core.decide import decode_message as read_message
from holdfast.core.limits import MAX_VALUE_BYTES
from holdfast.core.values import Json, encode, encode_checked, fingerprint
from holdfast.store.commits import Snapshot
from holdfast.store.errors import CorruptSessionError, CorruptStateError
from holdfast.store.limits import INLINE_VALUE_BYTES
from holdfast.zstd import compress, decompress

_BLOB, _LITERAL = "$blob", "$literal"
_MARKS = (b'"$blob"', b'"$literal"')
DOLLAR = ord("$")


def references(body: bytes) -> set[str]:
    """Ids of the blobs that a stored body refers to."""
    if not has_marks(body):
        return set()
    found: set[str] = set()
    fill_in(msgspec.json.decode(body), _Collect(found))
    return found


def has_marks(body: bytes) -> bool:
    """Whether there may be references to blobs: a quick test, as a number is found much faster than a text."""
    return DOLLAR in body and b'"$' in body


class _Collect(dict[str, Json]):
    """Stands in for the blobs, and notes which were asked for."""

    def __init__(self, found: set[str]) -> None:
        self.found = found

    def __getitem__(self, blob_id: str) -> Json:
        self.found.add(blob_id)
        return None


class _Measure(dict[str, Json]):
    """Stands in for the blobs, and adds up how large those are that were asked for."""

    def __init__(self, blobs: Mapping[str, bytes]) -> None:
        self.blobs = blobs
        self.size = 0

    def __getitem__(self, blob_id: str) -> Json:
        self.size += len(self.blobs[blob_id])
        return None


def filled_size(value: Json, blobs: Mapping[str, bytes]) -> int:
    """How many bytes `fill_in` adds to a value; `KeyError` with the id of a blob that is not there.

    A blob may be referred to very often: what it adds up to is known before it is there.
    """
    measure = _Measure(blobs)
    fill_in(value, measure)
    return measure.size


def move_out(body: bytes, blobs: dict[str, bytes], outermost: bool = False) -> bytes:
    """The JSON of a value with whatever is large in it replaced by references, the innermost large parts first.

    What is small is not decoded: as much as there may be, it is cut out and put in as it is.
    """
    if len(body) <= INLINE_VALUE_BYTES and not any(mark in body for mark in _MARKS):
        return body
    inner: dict[str, bytes] = {}
    match body[:1]:
        case b"{":
            parts = _object_parts.decode(body)
            moved = [encode(key) + b":" + move_out(bytes(part), inner) for key, part in parts.items()]
            small = b"{%b}" % b",".join(moved)
            if not outermost and (_BLOB in parts or _LITERAL in parts):
                small = b'{"%b":%b}' % (_LITERAL.encode(), small)
        case b"[":
            small = b"[%b]" % b",".join([move_out(bytes(part), inner) for part in _list_parts.decode(body)])
        case _:
            small = body
    if not outermost and len(small) > INLINE_VALUE_BYTES:
        blob_id = blob_id_of(body)
        blobs[blob_id] = body
        return encode({_BLOB: blob_id, "bytes": len(body)})
    blobs |= inner
    return small


_object_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_parts = msgspec.json.Decoder(list[msgspec.Raw])


def fill_in(value: Json, blobs: Mapping[str, Json]) -> Json:
    """The value with its references replaced by what they refer to."""
    match value:
        case {"$literal": dict(own)} if len(value) == 1:
            return {key: fill_in(part, blobs) for key, part in own.items()}
        case {"$blob": str(blob_id)}:
            return blobs[blob_id]
        case dict():
            return {key: fill_in(part, blobs) for key, part in value.items()}
        case list():
            return [fill_in(part, blobs) for part in value]
        case _:
            return value


# --- blobs ---------------------------------------------------------------------------------------


def blob_id_of(data: bytes) -> str:
    """The id of a blob: the SHA-256 of its content, in hex."""
    return hashlib.sha256(data).hexdigest()


def pack_blob(data: bytes) -> tuple[str, bytes]:
    """A blob's stored bytes, with the name of how they are packed: `zstd`, or `raw` where that is not smaller."""
    packed = compress(data)
    return ("zstd", packed) if len(packed) < len(data) else ("raw", data)


def unpack_blob(blob_id: str, packing: object, size: object, stored: object) -> bytes | None:
    """A blob's content, or None if what is stored is not what was put."""
    if not isinstance(stored, (bytes, memoryview)) or not isinstance(size, int) or not 0 <= size <= MAX_VALUE_BYTES:
        return None
    data = bytes(stored)
    if packing == "zstd":
        try:
            data = decompress(data, size + 1)
        except (OverflowError, ValueError):
            return None
    return data if blob_id_of(data) == blob_id else None


# --- snapshots -----------------------------------------------------------------------------------


def decode_snapshot(reach: int, position: object, data: object) -> Snapshot | None:
    """A snapshot from its stored form, in a session whose journal ends at `reach`, or None if that is not one."""
    if isinstance(position, int) and isinstance(data, bytes) and 0 < position <= reach:
        return Snapshot(position, data)
    return None


# --- messages ------------------------------------------------------------------------------------


def encode_message(session_id: str, message: Message) -> str:
    """The stored form of a message."""
    return encode_checked(message, f"message to session '{session_id}'").decode()


def decode_message(session_id: str, number: int, body: str | bytes, mark: str) -> Message:
    """A message from its stored form, checked against the digest that was stored with it."""
    place = f"message {number}"
    try:
        message = read_message(body)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise CorruptSessionError(session_id, place, str(error)) from None
    if digest(message) != mark:
        raise CorruptSessionError(session_id, place, "the message was changed after it was sent")
    return message


def digest(message: Message) -> str:
    """What is remembered of a message after it was taken, to recognise it when it is sent again."""
    return fingerprint(message).hex()


def encode_value(value: Any) -> str:
    """The stored form of a state value that was checked before."""
    return encode(value).decode()


def decode_value(namespace: str, key: str, stored: str | bytes) -> Json:
    """A state value from its stored form."""
    try:
        return msgspec.json.decode(stored)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise CorruptStateError(namespace, key, str(error)) from None
