"""The two pipes between the engine and a Lua worker, one for each direction.

Not a socket: whoever takes a message out of one wakes its sender, because there is room again. The sender waits for the
next message by then, so each step woke its worker once more for nothing, at a tenth of what the step took in all.
"""

from __future__ import annotations

import os
from typing import Self


class PipeEnds:
    """One side of the connection: the end that it reads from, and the end that it writes to."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self.writing = writing

    def set_nonblocking(self) -> None:
        """From now on, raise `BlockingIOError` instead of waiting."""
        os.set_blocking(self.reading, False)
        os.set_blocking(self.writing, False)

    def receive(self, most: int) -> bytes:
        """What has arrived, up to so many bytes; nothing if the other side is closed."""
        return os.read(self.reading, most)

    def send(self, data: bytes | bytearray) -> int:
        """Send as much as there is room for; says how many bytes that is."""
        return os.write(self.writing, data)

    def send_all(self, data: bytes) -> None:
        """Send all of it, however long the other side takes to read."""
        sent = os.write(self.writing, data)
        while sent < len(data):
            sent += os.write(self.writing, memoryview(data)[sent:])

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connected_pipes() -> tuple[PipeEnds, PipeEnds]:
    """Two sides that are connected with each other."""
    requests, replies = os.pipe(), os.pipe()
    return PipeEnds(replies[0], requests[1]), PipeEnds(requests[0], replies[1])
