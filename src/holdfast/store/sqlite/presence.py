"""Presence on one machine: a lock on a file beside the database, which the kernel frees when a process dies.

Leases carry the number of the lock: the place of one byte in that file, which stays empty. The locks are those that
belong to an open file (`F_OFD_SETLK`, on Linux): the older ones of POSIX are lost when anyone in the process closes it.
Where there are none, the directory cannot be written, or the file system does not keep them, leases end by time alone.

The upper half of the number is taken from the file's inode: in a file that was made anew, or copied with the database,
a free lock proves nothing.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import sys
import threading

if sys.platform == "linux":
    import fcntl

_FLOCK = "hhqqi4x"
_INODE_BITS = 0x3FFF_FFFF


class SqlitePresence:
    """The lock of one open store, taken when it is first needed. Used by all its threads; never fails."""

    def __init__(self, database: str) -> None:
        self._path = f"{os.path.realpath(database)}-holders"
        self._guard = threading.Lock()
        self._descriptor = -1
        self._own: int | None = None
        self._tried = False

    def register(self, connection: sqlite3.Connection) -> None:
        """Let the statements of a connection ask `own_lock()` and `holder_gone(lock)`."""
        connection.create_function("own_lock", 0, self._own_lock)
        connection.create_function("holder_gone", 1, self._is_gone)

    def close(self) -> None:
        """Free the lock: the leases that carry it have ended."""
        with self._guard:
            self._close()
            self._own, self._tried = None, False

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _own_lock(self) -> int | None:
        if self._own is not None:  # part of every commit that holds a session
            return self._own
        with self._guard:
            if not self._tried:
                self._tried = True
                with contextlib.suppress(OSError):
                    self._own = self._take()
            return self._own

    def _is_gone(self, lock: object) -> bool:
        if lock == self._own or not isinstance(lock, int):
            return False
        with self._guard, contextlib.suppress(OSError):
            self._open(0)
            return lock >> 32 == self._mark() and _is_free(self._descriptor, lock)
        return False

    def _open(self, flags: int) -> None:
        if sys.platform != "linux":
            raise OSError("no such locks here")
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDWR | flags, 0o666)

    def _mark(self) -> int:
        return os.fstat(self._descriptor).st_ino & _INODE_BITS

    def _take(self) -> int | None:
        self._open(os.O_CREAT)
        while True:
            number = self._mark() << 32 | int.from_bytes(os.urandom(4), "big")
            if _lock(self._descriptor, number):
                break
        other = os.open(self._path, os.O_RDWR)
        try:
            return None if _is_free(other, number) else number  # free: locks are not kept here
        finally:
            os.close(other)


if sys.platform == "linux":

    def _lock(descriptor: int, number: int) -> bool:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0))
        except BlockingIOError:
            return False
        return True

    def _is_free(descriptor: int, number: int) -> bool:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
        kind, *_ = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
        return bool(kind == fcntl.F_UNLCK)
