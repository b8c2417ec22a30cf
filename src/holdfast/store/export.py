"""Portable export: one file that holds a whole session, and can be imported into any store.

The file is text, one JSON object a line: a header, then the journal in order, each blob before the first record that
refers to it, and a last line that counts and hashes all that stands before. Every line ends with a checksum of itself
and of its number, so a file that was cut off, edited or reordered is refused with the line where that shows. The last
line may hold a signature of the hash: checksums tell accidents, and only a signature tells who wrote the file.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from holdfast.core.errors import HoldfastError, SessionExistsError
from holdfast.core.ids import check_id
from holdfast.core.limits import ERROR_PREVIEW_CHARS, MAX_VALUE_BYTES
from holdfast.core.records import Entry, Imported, StartedRecord
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.core.values import preview
from holdfast.store.codec import filled_size, has_marks, pack_blob, unpack_blob
from holdfast.store.commits import Commit
from holdfast.store.contract import Store
from holdfast.store.environment import SystemClock
from holdfast.store.errors import ExportFileError, SchemaVersionError
from holdfast.store.journal_rows import decode_body, encode_entry, without_large
from holdfast.store.signatures import SigningKey, is_signed_by

EXPORT_VERSION = 1

LEAST_UNPACKED_BYTES = 2 * MAX_VALUE_BYTES
"""Bytes that the records of any file may have once they are unpacked: as many as two of the largest."""

MOST_UNPACKING = 64
"""How many times as many bytes as its file the records of a larger session may have: packed text gives ten at most."""

LAST_TIME = 253_402_300_799_999
"""The last millisecond of the year 9999. No clock shows a later one."""


class _Header(msgspec.Struct, tag="session", tag_field="holdfast"):
    version: int
    session_id: str
    records: int


class _Blob(msgspec.Struct, tag="blob", tag_field="holdfast"):
    id: str
    packing: str
    bytes: int
    data: str


class _Line(msgspec.Struct, tag="record", tag_field="holdfast"):
    position: int
    at: int
    checksum: int
    record: msgspec.Raw


class _End(msgspec.Struct, tag="end", tag_field="holdfast", omit_defaults=True):
    lines: int
    sha256: str
    key: str = ""
    """The public key that signed the digest, if one did."""
    signature: str = ""


class ExportedSession(NamedTuple):
    """What is in an export file."""

    session_id: str
    entries: list[Entry]
    key: str | None = None
    """The public key that the file is signed with, if it is; the signature is right."""


class ImportReceipt(msgspec.Struct, frozen=True):
    """Proof that an imported session is durable; `replayed` if the store had exactly this session already."""

    session_id: str
    position: int
    replayed: bool = False
    state: str = ""
    """`imported`, until somebody adopts the session; or how it ended."""
    key: str | None = None
    """The public key that the file is signed with, if it is."""


# --- writing ---------------------------------------------------------------------------------------


async def export_lines(store: Store, session_id: str, key: SigningKey | None = None) -> AsyncIterator[bytes]:
    """The lines of a session's export file, read from the store a page at a time; signed, if there is a key."""
    row = await store.session(session_id)
    sealer = _Sealer(key)
    yield sealer.seal(_Header(EXPORT_VERSION, session_id, row.position))
    written: set[str] = set()
    async for entry in store.journal(session_id):
        if entry.position > row.position:
            break
        blobs: dict[str, bytes] = {}
        body = without_large(encode_entry(entry), blobs)
        for blob_id, content in blobs.items():
            if blob_id not in written:
                written.add(blob_id)
                packing, data = pack_blob(content)
                yield sealer.seal(_Blob(blob_id, packing, len(content), base64.b64encode(data).decode()))
        checksum = _checksum(session_id, entry.position, entry.at, body)
        yield sealer.seal(_Line(entry.position, entry.at, checksum, msgspec.Raw(body)))
    yield sealer.end()


async def export_session(
    store: Store, session_id: str, path: str | os.PathLike[str], key: SigningKey | None = None
) -> int:
    """Write a session's export file and give back its size in bytes. A file of that name is replaced at the end."""
    target = Path(path).resolve()
    if target.exists() and not target.is_file():  # a pipe or a device is written to, never replaced
        return await _write_through(export_lines(store, session_id, key), target)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            async for line in export_lines(store, session_id, key):
                file.write(line)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    return size


async def _write_through(lines: AsyncIterator[bytes], target: Path) -> int:
    size = 0
    with target.open("wb", buffering=0) as file:
        async for line in lines:
            size += len(line)
            file.write(line)
    return size


class _Sealer:
    def __init__(self, key: SigningKey | None) -> None:
        self.lines = 0
        self.hash = hashlib.sha256()
        self._key = key

    def seal(self, line: Any) -> bytes:
        self.lines += 1
        text = msgspec.json.encode(line)[:-1]
        sealed = text + b',"crc":%d}\n' % _line_crc(self.lines, text)
        self.hash.update(sealed)
        return sealed

    def end(self) -> bytes:
        digest = self.hash.hexdigest()
        if self._key is None:
            return self.seal(_End(self.lines, digest))
        return self.seal(_End(self.lines, digest, self._key.public, self._key.sign(digest)))


def _checksum(session_id: str, position: int, at: int, body: bytes) -> int:
    """Tells a record that was edited, or moved from where it belongs."""
    return crc32(body, crc32(b"%b/%d/%d/" % (session_id.encode(), position, at)))


def _line_crc(number: int, text: bytes) -> int:
    return crc32(text, crc32(b"%d:" % number))


# --- reading ---------------------------------------------------------------------------------------


async def import_session(store: Store, path: str | os.PathLike[str], session_id: str | None = None) -> ImportReceipt:
    """Add the session in an export file to a store, under its own id or another; all of it, or nothing.

    Unless it has ended, it is `imported` there, and does nothing until somebody adopts it. One that is there already
    with the same journal, or was imported before and has gone on, is left as it is; one with another journal raises
    `SessionExistsError`.
    """
    exported = await asyncio.to_thread(read_export, path)
    target = check_id(session_id, "session id") if session_id is not None else exported.session_id
    return await add_exported(store, exported, target)


async def add_exported(store: Store, exported: ExportedSession, target: str) -> ImportReceipt:
    """As `import_session`, from a file that was read already, under the id `target`."""
    key = exported.key
    entries = _with_origin(exported.entries, Imported(len(exported.entries), SystemClock().now(), key))
    try:
        session = Session.fold(target, entries)
    except HoldfastError as error:
        raise ExportFileError(1, f"the journal does not hold together: {error}") from None
    commit = Commit(
        session_id=target, expected=0, entries=entries, summary=summarize(session), owner="import", hold_ms=0
    )
    try:
        receipt = await store.append(commit)
    except SessionExistsError:
        present = await store.load(target)
        if not await _has_begun_as(store, target, entries):
            raise
        return ImportReceipt(target, present.position, True, present.state, key)
    return ImportReceipt(target, receipt.position, False, session.state, key)


def _with_origin(entries: list[Entry], imported: Imported | None) -> list[Entry]:
    """A journal whose first record says where it came from."""
    first = entries[0]
    if not isinstance(first.record, StartedRecord):
        return entries
    started = msgspec.structs.replace(first.record, imported=imported)
    return [msgspec.structs.replace(first, record=started), *entries[1:]]


async def _has_begun_as(store: Store, session_id: str, entries: list[Entry]) -> bool:
    """Whether a session is this journal, or was imported from it and has gone on."""
    present = await store.entries(session_id)
    started = present[0].record
    if not isinstance(started, StartedRecord):
        return False
    if started.imported is not None:
        present = present[: started.imported.position]
    return _with_origin(present, None) == _with_origin(entries, None)


def read_export(path: str | os.PathLike[str]) -> ExportedSession:
    """As `parse_export`, from a file."""
    with open(path, "rb") as file:
        return parse_export(file)


def parse_export(lines: Iterable[bytes]) -> ExportedSession:
    """The session in an export file; `ExportFileError` with the line if anything is wrong, also with its signature."""
    opened = _open_lines(lines)
    number, header = next(opened, (1, None))
    if not isinstance(header, _Header):
        raise ExportFileError(number, "this is not an export of a session")
    blobs: dict[str, bytes] = {}
    entries: list[Entry] = []
    unpacking = _Unpacking()
    for number, line in opened:
        match line:
            case _Blob():
                unpacking.add(number, len(line.data), line.bytes)
                blobs[line.id] = _unpack(number, line)
            case _Line():
                unpacking.add(number, len(bytes(line.record)), _unpacked_size(number, line, blobs))
                entries.append(_entry(number, header, line, len(entries) + 1, blobs))
            case _End():
                if len(entries) != header.records:
                    raise ExportFileError(number, f"{header.records} records were announced, {len(entries)} are here")
                next(opened, None)  # raises if anything comes after the last line
                if (line.key or line.signature) and not is_signed_by(line.key, line.signature, line.sha256):
                    raise ExportFileError(number, "the signature is not that of the key it names")
                return ExportedSession(header.session_id, entries, line.key or None)
            case _:
                raise ExportFileError(number, "a second header")
    raise ExportFileError(number + 1, "the file is cut off: its last line is missing")


def _open_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, _Header | _Blob | _Line | _End]]:
    digest = hashlib.sha256()
    ended = False
    for number, sealed in enumerate(lines, 1):
        if ended:
            raise ExportFileError(number, "there is something after the last line")
        text, mark, seal = sealed.rpartition(b',"crc":')
        if not mark or not sealed.endswith(b"}\n"):
            if number == 1:
                raise ExportFileError(1, "this is not an export of a session")
            raise ExportFileError(number, "the file is cut off within this line, or was edited")
        if seal != b"%d}\n" % _line_crc(number, text):
            raise ExportFileError(number, "this line was changed after it was written")
        line = _parse(number, text + b"}")
        if isinstance(line, _End):
            ended = True
            if line.lines != number - 1 or line.sha256 != digest.hexdigest():
                raise ExportFileError(number, "the lines before do not add up to what was written")
        digest.update(sealed)
        yield number, line


def _parse(number: int, text: bytes) -> _Header | _Blob | _Line | _End:
    try:
        if number == 1:
            _check_version(text)
        return _line_decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ExportFileError(number, str(error)[: 4 * ERROR_PREVIEW_CHARS]) from None


class _Version(msgspec.Struct):
    version: int = 0


_line_decoder: msgspec.json.Decoder[_Header | _Blob | _Line | _End] = msgspec.json.Decoder(
    _Header | _Blob | _Line | _End
)
_version_decoder = msgspec.json.Decoder(_Version)


def _check_version(text: bytes) -> None:
    found = _version_decoder.decode(text).version
    if found > EXPORT_VERSION:
        raise SchemaVersionError("export file", found, EXPORT_VERSION)


class _Unpacking:
    """Keeps what is unpacked in proportion to what was read: a small file may hold very much of the same."""

    def __init__(self) -> None:
        self._read = 0
        self._unpacked = 0

    def add(self, number: int, read: int, unpacked: int) -> None:
        """Before so many bytes of a line are unpacked to so many; `ExportFileError` if that is too much."""
        self._read += read
        self._unpacked += unpacked
        if self._unpacked > max(LEAST_UNPACKED_BYTES, MOST_UNPACKING * self._read):
            why = f"it unpacks to {self._unpacked} bytes or more, far more than the export of a session would"
            raise ExportFileError(number, why)


def _unpacked_size(number: int, line: _Line, blobs: dict[str, bytes]) -> int:
    body = bytes(line.record)
    try:
        return len(body) + (filled_size(msgspec.json.decode(body), blobs) if has_marks(body) else 0)
    except KeyError as error:
        raise ExportFileError(number, f"blob {preview(error.args[0])} is missing") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ExportFileError(number, str(error)[: 4 * ERROR_PREVIEW_CHARS]) from None


def _unpack(number: int, line: _Blob) -> bytes:
    try:
        content = unpack_blob(line.id, line.packing, line.bytes, base64.b64decode(line.data, validate=True))
    except ValueError as error:
        raise ExportFileError(number, str(error)) from None
    if content is None:
        raise ExportFileError(number, f"blob {preview(line.id)} is not what its id says")
    return content


def _entry(number: int, header: _Header, line: _Line, expected: int, blobs: dict[str, bytes]) -> Entry:
    body = bytes(line.record)
    if line.position != expected:
        raise ExportFileError(number, f"the record at position {expected} is missing; the next one is {line.position}")
    if _checksum(header.session_id, line.position, line.at, body) != line.checksum:
        raise ExportFileError(number, f"the record at position {expected} was changed after it was written")
    if not 0 <= line.at <= LAST_TIME:
        raise ExportFileError(number, f"the time of the record at position {expected} is {line.at}, which is no date")
    try:
        return Entry(line.position, line.at, decode_body(body, blobs))
    except KeyError as error:
        raise ExportFileError(number, f"blob {preview(error.args[0])} is missing") from None
    except (HoldfastError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ExportFileError(number, str(error)[: 4 * ERROR_PREVIEW_CHARS]) from None
