"""Envelopes in a directory of JSON files, one for each session, that fluers and a text editor can read."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.agent.envelopes.store import (
    EnvelopeReport,
    EnvelopeStore,
    SessionEnvelope,
    brief,
    envelope_json,
    listing,
    read_envelope,
)
from holdfast.core.ids import check_id
from holdfast.core.values import Json, encode
from holdfast.store.errors import EnvelopeError, StoreUnavailableError

MAX_FILE_BYTES = 256 * 1024 * 1024
"""Bytes of one file: eight times the largest value, as indentation makes it larger; junk past that is not read."""

_SUFFIX = ".json"
_T = TypeVar("_T")


class DirectoryEnvelopes(EnvelopeStore):
    """Envelopes in `<directory>/<session id>.json`. The directory is created by the first save.

    Beyond the contract
    - A directory that cannot be written or listed raises `StoreUnavailableError`, a file that cannot be read
      `EnvelopeError`. If the disk fails in the last step of a save, which makes the new name durable, the new envelope
      is readable although the save has failed.
    - A writer that was killed may leave a `.saving-….tmp` file. It is never read or listed, and may be removed.
    - A call that is cancelled ends when its work on the file has ended, so no write lands after a later one.
    - Ids that differ only in case are the same file on some systems; nothing prevents that.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    async def save(self, session_id: str, envelope: SessionEnvelope) -> None:
        path = self._path(session_id)
        value = envelope_json(session_id, envelope)
        await _in_thread(lambda: self._guarded(lambda: _write(path, value)))

    async def load(self, session_id: str) -> SessionEnvelope | None:
        path = self._path(session_id)
        return await _in_thread(lambda: _read(path, session_id))

    async def list(self) -> EnvelopeReport:
        return await listing(self, await _in_thread(lambda: self._guarded(self._names)))

    async def delete(self, session_id: str) -> bool:
        path = self._path(session_id)
        return await _in_thread(lambda: self._guarded(lambda: _remove(path)))

    def _path(self, session_id: str) -> Path:
        return self.directory / (check_id(session_id, "session id") + _SUFFIX)

    def _names(self) -> set[str]:
        try:
            files = os.listdir(self.directory)
        except FileNotFoundError:
            return set()
        return {file.removesuffix(_SUFFIX) for file in files if file.endswith(_SUFFIX)}

    def _guarded(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except OSError as error:
            raise StoreUnavailableError(str(self.directory), str(error)) from error


async def _in_thread(work: Callable[[], _T]) -> _T:
    """Run `work` in a thread, and see it end even when cancelled."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # retrieved, so that asyncio does not warn
        raise cancelled
    return running.result()


def _write(path: Path, value: Json) -> None:
    compact = encode(value)
    pretty = msgspec.json.format(compact, indent=2)
    _make_directory(path.parent)
    handle, temporary = tempfile.mkstemp(prefix=".saving-", suffix=".tmp", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(pretty if len(pretty) <= MAX_FILE_BYTES else compact)
            file.flush()
            os.fsync(handle)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync(path.parent)


def _read(path: Path, session_id: str) -> SessionEnvelope | None:
    try:
        # Without O_NONBLOCK, opening a pipe that somebody put here would wait for ever.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise EnvelopeError(session_id, f"{path} is not a regular file")
            if found.st_size > MAX_FILE_BYTES:
                raise EnvelopeError(session_id, f"{path} has {found.st_size} bytes; at most {MAX_FILE_BYTES} are read")
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvelopeError(session_id, f"cannot be read: {error}") from error
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise EnvelopeError(session_id, f"{path} is not valid JSON: {brief(error)}") from None
    return read_envelope(session_id, value)


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    _sync(path.parent)
    return True


def _make_directory(directory: Path) -> None:
    if not directory.is_dir():
        _make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        _sync(directory.parent)


def _sync(directory: Path) -> None:
    """Make the names in a directory durable: without this, power loss could undo a rename."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
