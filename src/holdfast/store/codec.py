"""The stored form of entries and messages: JSON a person can read, with large values moved into blobs.

A record whose JSON is small is stored as it is. In a larger one, every value past `INLINE_VALUE_BYTES` is replaced by
`{"$blob": id, "bytes": n}`; what is left stays readable. An object of the user's own that has such a key is wrapped in
`{"$literal": …}`, so that nothing a program says can be taken for a reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import msgspec

from holdfast.core.decide import Message
from holdfast.core.errors import InvalidValueError
from holdfast.core.limits import ERROR_PREVIEW_CHARS
from holdfast.core.records import Entry, Record, decode_record, type_of
from holdfast.core.values import Json, encode
from holdfast.store.errors import CorruptSessionError
from holdfast.store.limits import INLINE_VALUE_BYTES, MAX_RECORD_BYTES, ZSTD_LEVEL

_BLOB, _LITERAL = "$blob", "$literal"
_MARKS = (b'"$blob"', b'"$literal"')


class StoredEntry(msgspec.Struct, frozen=True):
    """An entry as it lies in a store."""

    position: int
    at: int
    checksum: int
    body: str
    blobs: dict[str, bytes]
    """The content of the blobs that the body refers to, by id. Filled when writing, empty when read back."""


def encode_entry(session_id: str, entry: Entry) -> StoredEntry:
    """The stored form of an entry."""
    body = _encode(entry.record)
    blobs: dict[str, bytes] = {}
    if len(body) > INLINE_VALUE_BYTES or any(mark in body for mark in _MARKS):
        if len(body) > MAX_RECORD_BYTES:
            what = f"{type_of(entry.record)} record of session '{session_id}'"
            raise InvalidValueError(what, f"{len(body)} bytes of JSON, and at most {MAX_RECORD_BYTES} are kept")
        body = encode(_move_out(msgspec.json.decode(body), blobs, outermost=True))
    text = body.decode()
    return StoredEntry(entry.position, entry.at, checksum(session_id, entry.position, entry.at, text), text, blobs)


def _encode(record: Record) -> bytes:
    try:
        return encode(record)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidValueError(f"{type_of(record)} record", str(error)) from None


def checksum(session_id: str, position: int, at: int, body: str) -> int:
    """Tells a record that was edited, or moved from where it belongs."""
    return crc32(body.encode(), crc32(f"{session_id}/{position}/{at}/".encode()))


def check_stored(session_id: str, stored: StoredEntry, expected: int) -> None:
    """Raise `CorruptSessionError` unless this is the entry that was written at position `expected`."""
    place = f"position {expected}"
    if stored.position != expected:
        raise CorruptSessionError(session_id, place, f"the record is missing; the next one is {stored.position}")
    try:
        fits = checksum(session_id, stored.position, stored.at, stored.body) == stored.checksum
    except (AttributeError, TypeError, UnicodeEncodeError):
        fits = False
    if not fits:
        raise CorruptSessionError(session_id, place, "the record was changed after it was written")


def references(body: str) -> set[str]:
    """Ids of the blobs that a stored body refers to."""
    if '"$blob"' not in body:
        return set()
    found: set[str] = set()
    _fill_in(msgspec.json.decode(body), _Collect(found))
    return found


class _Collect(dict[str, Json]):
    """Stands in for the blobs, and notes which were asked for."""

    def __init__(self, found: set[str]) -> None:
        self.found = found

    def __getitem__(self, blob_id: str) -> Json:
        self.found.add(blob_id)
        return None


def decode_entry(session_id: str, stored: StoredEntry, blobs: Mapping[str, bytes]) -> Entry:
    """An entry from its stored form and the content of its blobs."""
    place = f"position {stored.position}"
    try:
        if '"$blob"' in stored.body or '"$literal"' in stored.body:
            values = {blob_id: msgspec.json.decode(data) for blob_id, data in blobs.items()}
            body = encode(_fill_in(msgspec.json.decode(stored.body), values))
        else:
            body = stored.body.encode()
        return Entry(stored.position, stored.at, decode_record(body))
    except KeyError as error:
        raise CorruptSessionError(session_id, place, f"its blob {error.args[0]} is missing") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptSessionError(session_id, place, str(error)[: 4 * ERROR_PREVIEW_CHARS]) from None


def _move_out(value: Json, blobs: dict[str, bytes], outermost: bool = False) -> Json:
    """The value with whatever is large in it replaced by references, the innermost large parts first."""
    plain = encode(value)
    if len(plain) <= INLINE_VALUE_BYTES and not any(mark in plain for mark in _MARKS):
        return value
    inner: dict[str, bytes] = {}
    match value:
        case dict():
            small: Json = {key: _move_out(part, inner) for key, part in value.items()}
            if not outermost and (_BLOB in value or _LITERAL in value):
                small = {_LITERAL: small}
        case list():
            small = [_move_out(part, inner) for part in value]
        case _:
            small = value
    if not outermost and len(encode(small)) > INLINE_VALUE_BYTES:
        blob_id = blob_id_of(plain)
        blobs[blob_id] = plain
        return {_BLOB: blob_id, "bytes": len(plain)}
    blobs |= inner
    return small


def _fill_in(value: Json, blobs: Mapping[str, Json]) -> Json:
    match value:
        case {"$literal": dict(own)} if len(value) == 1:
            return {key: _fill_in(part, blobs) for key, part in own.items()}
        case {"$blob": blob_id}:
            return blobs[blob_id]
        case dict():
            return {key: _fill_in(part, blobs) for key, part in value.items()}
        case list():
            return [_fill_in(part, blobs) for part in value]
        case _:
            return value


# --- blobs ---------------------------------------------------------------------------------------


def blob_id_of(data: bytes) -> str:
    """The id of a blob: the SHA-256 of its content, in hex."""
    return hashlib.sha256(data).hexdigest()


def pack_blob(data: bytes) -> tuple[str, bytes]:
    """A blob's stored bytes, with the name of how they are packed: `zstd`, or `raw` where that is not smaller."""
    import zstandard

    packed = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)
    return ("zstd", packed) if len(packed) < len(data) else ("raw", data)


def unpack_blob(blob_id: str, packing: str, size: int, stored: bytes) -> bytes | None:
    """A blob's content, or None if the stored bytes are not what was put."""
    if packing == "zstd":
        import zstandard

        try:
            data = zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)
        except zstandard.ZstdError:
            return None
    else:
        data = bytes(stored)
    return data if blob_id_of(data) == blob_id else None


# --- messages ------------------------------------------------------------------------------------

_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode_message(session_id: str, message: Message) -> str:
    """The stored form of a message."""
    try:
        body = encode(message)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidValueError(f"message to session '{session_id}'", str(error)) from None
    if len(body) > MAX_RECORD_BYTES:
        why = f"{len(body)} bytes of JSON, and at most {MAX_RECORD_BYTES} are kept"
        raise InvalidValueError(f"message to session '{session_id}'", why)
    return body.decode()


def decode_message(session_id: str, number: int, body: str) -> Message:
    """A message from its stored form."""
    try:
        return _message_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptSessionError(session_id, f"message {number}", str(error)) from None


def digest(body: str) -> str:
    """What is remembered of a message after it was taken, to recognise it when it is sent again."""
    return hashlib.sha256(body.encode()).hexdigest()


def encode_value(value: Any) -> str:
    """The stored form of a state value that was checked before."""
    return encode(value).decode()
