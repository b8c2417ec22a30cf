"""Locks on single bytes of a file, which the kernel frees when a process dies. The bytes need not exist.

They are those that belong to an open file (`F_OFD_SETLK`, on Linux): the older ones of POSIX are lost when anyone in
the process closes it. A lock never stands in the way of its own descriptor. Elsewhere, all of this raises `OSError`.
"""

from __future__ import annotations

import os
import struct
import sys

if sys.platform == "linux":
    import fcntl

    _FLOCK = "hhqqi4x"

    def _flock(kind: int, offset: int) -> bytes:
        return struct.pack(_FLOCK, kind, os.SEEK_SET, offset, 1, 0)

    def lock(descriptor: int, offset: int) -> bool:
        """Take a byte for this descriptor alone; False if others have it."""
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, offset))
        except BlockingIOError:
            return False
        return True

    def share(descriptor: int, offset: int) -> None:
        """Take a byte beside others who share it."""
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_RDLCK, offset))

    def unlock(descriptor: int, offset: int) -> None:
        """Give a byte back."""
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, offset))

    def is_free(descriptor: int, offset: int) -> bool:
        """Whether no other descriptor has a byte."""
        kind, *_ = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, offset)))
        return bool(kind == fcntl.F_UNLCK)

else:

    def lock(descriptor: int, offset: int) -> bool:
        """Take a byte for this descriptor alone; False if others have it."""
        raise OSError(_NONE)

    def share(descriptor: int, offset: int) -> None:
        """Take a byte beside others who share it."""
        raise OSError(_NONE)

    def unlock(descriptor: int, offset: int) -> None:
        """Give a byte back."""
        raise OSError(_NONE)

    def is_free(descriptor: int, offset: int) -> bool:
        """Whether no other descriptor has a byte."""
        raise OSError(_NONE)

    _NONE = "this system has no locks that belong to an open file"
