"""Noticing that another process changed a SQLite file.

While anybody listens (see `sqlite.file_listeners`), every writer touches the file after its commit, and the kernel
tells us so (inotify, on Linux). Elsewhere, and for a writer that died between commit and touch, the listener looks by
itself from time to time.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import struct
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from holdfast.store.limits import NOTIFY_POLL_MS, POLL_MS
from holdfast.store.patience import pause
from holdfast.store.sqlite import statements as sql
from holdfast.store.sqlite.file_listeners import KNOWN_S, FileListeners
from holdfast.store.watch import Watches

T = TypeVar("T")

_IN_ATTRIB = 0x00000004
_IN_CLOEXEC = 0o2000000
_IN_NONBLOCK = 0o4000
_EVENT_BYTES = struct.calcsize("iIII")


OWN_REST_MS = (pause(5), pause(80))
"""Milliseconds for which we do not listen after a touch that was our own; twice as long each time, up to the second.
Where others listen as well, and one process does all the work, that one mostly hears itself: a twentieth of its time.
"""


class FileWatch:
    """Calls back in the event loop whenever a file was touched, by any process.

    `touched` says whether that was somebody else. While it is only ourselves, the file is looked at more seldom.
    """

    @classmethod
    def on(cls, path: str, touched: Callable[[], bool]) -> FileWatch | None:
        """A signal for a file, or None where the system has none to give."""
        if sys.platform != "linux":
            return None
        try:
            return cls(path, touched)
        except OSError:
            return None

    def __init__(self, path: str, touched: Callable[[], bool]) -> None:
        import ctypes  # not before a file is watched: whoever only lists sessions does without

        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        if self._descriptor < 0 or libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_ATTRIB) < 0:
            code = ctypes.get_errno()
            self._close()
            raise OSError(code, os.strerror(code))
        self._touched = touched
        self._rest_ms = OWN_REST_MS[0]
        self._loop = asyncio.get_running_loop()
        self._hear()

    def _hear(self) -> None:
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._read)

    def _read(self) -> None:
        try:
            os.read(self._descriptor, 64 * _EVENT_BYTES)  # if there are more, this is called again
        except BlockingIOError:
            return
        if self._touched():
            self._rest_ms = OWN_REST_MS[0]
            return
        self._loop.remove_reader(self._descriptor)
        self._loop.call_later(self._rest_ms / 1000, self._hear)
        self._rest_ms = min(2 * self._rest_ms, OWN_REST_MS[1])

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _RunRead(Protocol):
    """Does work with a connection that reads."""

    def __call__(self, work: Callable[[sqlite3.Connection], T]) -> Awaitable[T]: ...


async def follow_changes(
    path: str, watches: Watches, listeners: FileListeners, read: _RunRead, others_wrote: Callable[[], bool]
) -> None:
    """Tell watches what other processes commit, until there have been none for a while.

    `others_wrote` tells, without a look at the tables, whether anybody else can have written since it was asked last.
    """
    touched = asyncio.Event()

    def look() -> bool:
        if others_wrote():
            touched.set()
            return True
        return False

    signal = FileWatch.on(path, look)
    next_look_s = 2 * KNOWN_S if signal and listeners.join() else 0.0
    try:
        seen = await read(sql.changes_until)
        watches.notify_all()  # for what happened between the first watch and here
        watches.notify_of_others()
        while True:
            try:
                async with asyncio.timeout(next_look_s):
                    await touched.wait()
            except TimeoutError:
                look()
                is_told = signal is not None and listeners.join()
                next_look_s = (pause(NOTIFY_POLL_MS) if is_told else POLL_MS) / 1000
            was_touched = touched.is_set()
            touched.clear()
            if not watches:
                if was_touched:
                    continue
                break
            seen, changed = await read(partial(sql.changes_since, seen=seen))
            if was_touched or changed:
                watches.notify_of_others()
            if was_touched and not changed:
                watches.notify_all()  # a commit without entries, or one of our own thread
            for session_id in changed:
                watches.notify(session_id)
    finally:
        listeners.leave()
        if signal is not None:
            signal.close()
