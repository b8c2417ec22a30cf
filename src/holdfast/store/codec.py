"""The stored form of entries and messages: JSON a person can read, with large values moved into blobs.

A record whose JSON is small is stored as it is. In a larger one, every value past `INLINE_VALUE_BYTES` is replaced by
`{"$blob": id, "bytes": n}`; what is left stays readable. An object of the user's own that has such a key is wrapped in
`{"$literal": …}`, so that nothing a program says can be taken for a reference.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any
from zlib import crc32

import msgspec

from holdfast.core.decide import Message
from holdfast.core.decide import decode_message as read_message
from holdfast.core.limits import ERROR_PREVIEW_CHARS
from holdfast.core.records import Entry, StartedRecord, decode_record
from holdfast.core.values import Json, check_number, encode, encode_checked, fingerprint
from holdfast.store.commits import Commit, Snapshot
from holdfast.store.errors import CorruptSessionError, CorruptStateError
from holdfast.store.limits import INLINE_VALUE_BYTES, ZSTD_LEVEL

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
    written_by: str | None = None
    """The session that wrote it, where a fork reads it."""


def encode_entry(session_id: str, entry: Entry, body: bytes | None = None) -> StoredEntry:
    """The stored form of an entry; `body` is the JSON of its record, if that was checked before."""
    if body is None:
        check_number(entry.at, "time of an entry")
        body = encode_checked(entry.record, "record")
    text = body.decode()
    blobs: dict[str, bytes] = {}
    if len(body) > INLINE_VALUE_BYTES or ("$" in text and '"$' in text):  # a single character is found much faster
        body = encode(move_out(msgspec.json.decode(body), blobs, outermost=True))
        text = body.decode()
    crc = _checksum(session_id, entry.position, entry.at, body)
    return StoredEntry(entry.position, entry.at, crc, text, blobs)


def encode_entries(commit: Commit) -> list[StoredEntry]:
    """The stored form of a commit's entries; `InvalidValueError` for a record that JSON cannot hold."""
    stored = []
    bodies = commit.bodies or [None] * len(commit.entries)
    for entry, body in zip(commit.entries, bodies, strict=True):
        stored.append(encode_entry(commit.session_id, entry, body))
    return stored


def checksum(session_id: str, position: int, at: int, body: str) -> int:
    """Tells a record that was edited, or moved from where it belongs."""
    return _checksum(session_id, position, at, body.encode())


def _checksum(session_id: str, position: int, at: int, body: bytes) -> int:
    return crc32(b"%b/%d/%d/%b" % (session_id.encode(), position, at, body))


def check_stored(session_id: str, stored: StoredEntry, expected: int) -> None:
    """Raise `CorruptSessionError` unless this is the entry that was written at position `expected`."""
    place = f"position {expected}"
    if stored.position != expected:
        raise CorruptSessionError(session_id, place, f"the record is missing; the next one is {stored.position}")
    try:
        writer = stored.written_by or session_id
        fits = checksum(writer, stored.position, stored.at, stored.body) == stored.checksum
    except (AttributeError, TypeError, UnicodeEncodeError):
        fits = False
    if not fits:
        raise CorruptSessionError(session_id, place, "the record was changed after it was written")


def check_page(session_id: str, entries: Sequence[StoredEntry], after: int, expected_last: int) -> None:
    """Raise `CorruptSessionError` unless these are the entries after one position up to another."""
    for expected, stored in enumerate(entries, after + 1):
        check_stored(session_id, stored, expected)
    if after + len(entries) < expected_last:
        missing = after + len(entries) + 1
        raise CorruptSessionError(session_id, f"position {missing}", "the record is missing")


def references(body: str | bytes) -> set[str]:
    """Ids of the blobs that a stored body refers to."""
    if not _has_marks(body):
        return set()
    found: set[str] = set()
    fill_in(msgspec.json.decode(body), _Collect(found))
    return found


def _has_marks(body: str | bytes) -> bool:
    """Whether there may be references to blobs: a quick test that nearly every body fails."""
    return '"$' in body if isinstance(body, str) else b'"$' in body


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
        if '"$' in stored.body:
            values = {ref: msgspec.json.decode(blobs[ref]) for ref in references(stored.body)}
            record = decode_record(encode(fill_in(msgspec.json.decode(stored.body), values)))
        else:
            record = decode_record(stored.body)
        if isinstance(record, StartedRecord) and record.program.source is not None:
            # Many sessions have the same source, which may be long: it is kept in memory once.
            shared = msgspec.structs.replace(record.program, source=sys.intern(record.program.source))
            record = msgspec.structs.replace(record, program=shared)
        return Entry(stored.position, stored.at, record)
    except KeyError as error:
        raise CorruptSessionError(session_id, place, f"its blob {error.args[0]} is missing") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptSessionError(session_id, place, str(error)[: 4 * ERROR_PREVIEW_CHARS]) from None


def move_out(value: Json, blobs: dict[str, bytes], outermost: bool = False) -> Json:
    """The value with whatever is large in it replaced by references, the innermost large parts first."""
    plain = encode(value)
    if len(plain) <= INLINE_VALUE_BYTES and not any(mark in plain for mark in _MARKS):
        return value
    inner: dict[str, bytes] = {}
    match value:
        case dict():
            small: Json = {key: move_out(part, inner) for key, part in value.items()}
            if not outermost and (_BLOB in value or _LITERAL in value):
                small = {_LITERAL: small}
        case list():
            small = [move_out(part, inner) for part in value]
        case _:
            small = value
    if not outermost and len(encode(small)) > INLINE_VALUE_BYTES:
        blob_id = blob_id_of(plain)
        blobs[blob_id] = plain
        return {_BLOB: blob_id, "bytes": len(plain)}
    blobs |= inner
    return small


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
    packed = _zstd().compress(data, ZSTD_LEVEL)
    return ("zstd", packed) if len(packed) < len(data) else ("raw", data)


def unpack_blob(blob_id: str, packing: object, size: object, stored: object) -> bytes | None:
    """A blob's content, or None if what is stored is not what was put."""
    if not isinstance(stored, (bytes, memoryview)) or not isinstance(size, int):
        return None
    data = bytes(stored)
    if packing == "zstd":
        zstd = _zstd()
        try:
            data = zstd.ZstdDecompressor().decompress(data, max_length=size + 1)
        except (zstd.ZstdError, OverflowError, ValueError):
            return None
    return data if blob_id_of(data) == blob_id else None


def _zstd() -> Any:
    """The zstd module: in the standard library from 3.14 on. Imported when the first blob is met."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


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
