"""Who listens to a SQLite file: only where another process does has each commit to be told.

Whoever listens shares a lock on the first byte of the file of holders (see `sqlite.presence`), which the kernel frees
when the process dies. Whoever writes asks every few milliseconds whether anybody has it. So a listener is heard of that
much later, and looks once more when everybody knows of it: until then, commits may have gone by in silence.

A commit is told by touching the database, which the kernel tells its listeners (see `sqlite.notify`). A touch changes
the inode, just when the commit has emptied the caches of the processor: it took a tenth of a round trip.
"""

from __future__ import annotations

import contextlib
import os
import threading

from holdfast.store.patience import pause
from holdfast.store.sqlite import byte_locks
from holdfast.store.sqlite.presence import holders_file

KNOWN_S = pause(0.02)
"""Seconds for which an answer holds: asking takes some microseconds."""

_LISTENING = 0


class FileListeners:
    """Those who listen to one file in other open stores, of any process. Used by all threads of a store."""

    def __init__(self, database: str) -> None:
        self._database = os.fsencode(database)
        self._path = holders_file(database)
        self._guard = threading.Lock()
        self._descriptor = _NOT_OPEN
        self._is_there = True
        self._asked_s = -KNOWN_S

    def tell(self, now_s: float) -> None:
        """Let everybody who listens know of a commit that was over at `now_s`, by the monotonic clock."""
        if now_s - self._asked_s >= KNOWN_S:
            self._is_there, self._asked_s = self._look(), now_s
        if self._is_there:
            with contextlib.suppress(OSError):
                os.utime(self._database)

    def join(self) -> bool:
        """Listen as well: `KNOWN_S` from now, whoever commits knows it. False if nobody can be told so.

        Nothing is changed by listening twice, but that a file of holders that was removed is made anew.
        """
        try:
            with self._guard:
                self._open(os.O_CREAT)
                byte_locks.share(self._descriptor, _LISTENING)
            other = os.open(self._path, os.O_RDONLY)
            try:
                return not byte_locks.is_free(other, _LISTENING)  # free: locks are not kept here
            finally:
                os.close(other)
        except OSError:
            return False

    def leave(self) -> None:
        """Listen no more."""
        with self._guard, contextlib.suppress(OSError):
            if self._descriptor != _NOT_OPEN:
                byte_locks.unlock(self._descriptor, _LISTENING)

    def close(self) -> None:
        """The store is not used any more."""
        with self._guard:
            self._close()

    def _look(self) -> bool:
        try:
            with self._guard:
                self._open(0)
                return not byte_locks.is_free(self._descriptor, _LISTENING)
        except FileNotFoundError:
            return False  # whoever listens has made it
        except OSError:
            return True

    def _open(self, flags: int) -> None:
        if self._descriptor != _NOT_OPEN:
            if os.fstat(self._descriptor).st_nlink:
                return
            self._close()
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | flags, 0o666)
        except PermissionError:
            self._descriptor = os.open(self._path, os.O_RDONLY)

    def _close(self) -> None:
        closed, self._descriptor = self._descriptor, _NOT_OPEN
        if closed != _NOT_OPEN:
            os.close(closed)


_NOT_OPEN = -1
