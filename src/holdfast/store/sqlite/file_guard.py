"""`FileGuard`: notices that a SQLite file was removed, replaced, or brought to a newer layout under a running process.

SQLite goes on writing to a file that has been deleted: it is there as long as somebody has it open, and nobody else
sees it. So before every commit, the file at the path has to be the one that was opened.
What is inside the file, and its write-ahead log, are looked at a few times a second, in the transaction that is about
to write.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import struct

from holdfast.store.errors import StoreReplacedError
from holdfast.store.patience import patience
from holdfast.store.sqlite.schema import check_version

log = logging.getLogger("holdfast.store")

LOOK_S = patience(0.2)
"""Seconds between looks at the version of the file, and at its log."""


_INDEX_BYTES = 100
"""Bytes at the beginning of the index of a log (`-shm`) that say how much the log held; see SQLite's WAL format."""


def warn_of_lost_log(path: str, url: str) -> None:
    """Log an error if a file is about to be opened whose write-ahead log was removed, with commits that only it had.

    The last process to close a file removes the index first and then the log. One that was killed leaves both. So an
    index without a log means that somebody removed the log; and the index tells how much of it was not in the file yet.
    """
    if not os.path.exists(f"{path}-shm") or os.path.exists(f"{path}-wal"):
        return
    try:
        with open(f"{path}-shm", "rb") as file:
            index = file.read(_INDEX_BYTES)
        ((page_bytes, pages), (copied,)) = struct.unpack_from("=HI", index, 14), struct.unpack_from("=I", index, 96)
    except (OSError, struct.error):
        return
    if pages > copied:
        page_bytes = (page_bytes & 0xFE00) + ((page_bytes & 1) << 16)
        log.error(
            "%s: its write-ahead log (-wal) was removed. Commits that had been acknowledged are lost with it: %d pages,"
            " %d KB. If you still have that file, end all processes, put it back, and open the store again.",
            *(url, pages - copied, (pages - copied) * page_bytes // 1024),
        )


class FileGuard:
    """One open file. Used by all threads of its store."""

    def __init__(self, path: str, url: str) -> None:
        self._path = os.fsencode(path)
        self._log_path = os.fsencode(f"{path}-wal")
        self._url = url
        self._identity = self._identity_of(self._path)
        self._log_identity: tuple[int, int] | None = None
        self.next_look_s = 0.0
        """When to look at the contents again, by the monotonic clock."""

    @staticmethod
    def _identity_of(path: bytes) -> tuple[int, int] | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def check_file(self) -> None:
        """Raise `StoreReplacedError` unless the file at the path is the one that was opened."""
        try:
            found = os.stat(self._path)
        except OSError:
            raise StoreReplacedError(self._url, "it was removed") from None
        if (found.st_dev, found.st_ino) != self._identity:
            raise StoreReplacedError(self._url, "another file was put in its place")

    def check_contents(self, connection: sqlite3.Connection, now_s: float) -> None:
        """Look, inside a transaction, whether the file is still of a layout that is known here. Due at `next_look_s`.

        Raises `SchemaVersionError` if a newer Holdfast has changed it, and `StoreReplacedError` if it or its log is
        gone.
        """
        self.check_file()
        check_version(connection, self._url)
        log = self._identity_of(self._log_path)
        if self._log_identity is not None and log != self._log_identity:
            raise StoreReplacedError(self._url, "its write-ahead log (-wal) was removed or replaced")
        self._log_identity = log
        self.next_look_s = now_s + LOOK_S
