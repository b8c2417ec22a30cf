"""Reads server-sent events from bytes as they arrive."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Bytes of one event: more than any delta, and more than a whole reply with an image."""

_BOM = b"\xef\xbb\xbf"


class TooLargeError(ValueError):
    """An event exceeds the limit."""


class ServerEvent(msgspec.Struct, frozen=True):
    """One event: its data, its name if it has one, and the id to go on from if it has one."""

    data: bytes
    name: bytes = b""
    id: str | None = None


class ServerEventReader:
    """Yields the events of a stream as soon as they are complete, wherever the bytes were split.

    A line ends with LF, CRLF or CR. A CR ends it at once, and an LF at the start of the next piece belongs to it:
    waiting for that piece would delay the event until the server sends more.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._id: str | None = None
        self._line_bytes = 0
        self._data_bytes = 0
        self._after_cr = False
        self._is_first_line = True

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that this piece completes. Raises `TooLargeError`."""
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        for line in piece.splitlines(keepends=True):
            self._line.append(line)
            self._line_bytes += len(line)
            if self._data_bytes + self._line_bytes > self._max:
                raise TooLargeError(f"an event of more than {self._max} bytes")
            event = self._take_line() if line.endswith((b"\n", b"\r")) else None
            if event is not None:
                yield event
        self._after_cr = self._after_cr or piece.endswith(b"\r")

    def close(self) -> ServerEvent | None:
        """The last event, if the stream ended without the empty line after it."""
        last = self._take_line()
        return last or self._end_event()

    def _take_line(self) -> ServerEvent | None:
        line = b"".join(self._line).rstrip(b"\r\n")
        self._line.clear()
        self._line_bytes = 0
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._end_event()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
        elif field == b"event":
            self._name = value
        elif field == b"id":
            self._id = value.decode("utf-8", "replace")
        return None

    def _end_event(self) -> ServerEvent | None:
        event = ServerEvent(b"\n".join(self._data), self._name, self._id) if self._data else None
        self._data.clear()
        self._name, self._id, self._data_bytes = b"", None, 0
        return event
