"""Presence on one machine: a lock on a file beside the database, which the kernel frees when a process dies.

Leases carry the number of the lock: the place of one byte in that file, which stays empty (see `sqlite.byte_locks`).
Where there are no such locks, the directory cannot be written, or the file system does not keep them, leases end by
time alone.

The upper half of the number is taken from the file's inode: in a file that was made anew, or copied with the database,
a free lock proves nothing. So no lease has the first byte, which those lock who listen (see `sqlite.file_listeners`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading

from holdfast.store.sqlite import byte_locks

_INODE_BITS = 0x3FFF_FFFF


def holders_file(database: str) -> str:
    """The file beside a database whose bytes stand for those who use it."""
    return f"{os.path.realpath(database)}-holders"


class SqlitePresence:
    """The lock of one open store, taken when it is first needed. Used by all its threads; never fails."""

    def __init__(self, database: str) -> None:
        self._path = holders_file(database)
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
            return lock >> 32 == self._mark() and byte_locks.is_free(self._descriptor, lock)
        return False

    def _open(self, flags: int) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDWR | flags, 0o666)

    def _mark(self) -> int:
        return os.fstat(self._descriptor).st_ino & _INODE_BITS

    def _take(self) -> int | None:
        self._open(os.O_CREAT)
        while True:
            number = self._mark() << 32 | int.from_bytes(os.urandom(4), "big")
            if byte_locks.lock(self._descriptor, number):
                break
        other = os.open(self._path, os.O_RDWR)
        try:
            return None if byte_locks.is_free(other, number) else number  # free: locks are not kept here
        finally:
            os.close(other)
