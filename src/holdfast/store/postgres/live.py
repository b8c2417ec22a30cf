"""Live messages through PostgreSQL: what one process publishes, packed into notifications, and unpacked in others.

What is published about a session within a few moments goes out as one *frame*. A notification holds less than 8,000
bytes of text, so a frame is cut into as many as it needs; all are sent by one statement, and the server delivers what
one transaction has sent together and in order. Sessions are spread over channels, so that a process gets little that
nobody there listens to.
"""

from __future__ import annotations

import asyncio
import binascii
import secrets
import zlib
from collections.abc import Callable, Iterable

import msgspec

from holdfast.store.limits import LIVE_BYTES
from holdfast.store.watch import LiveItem, LiveStream, LiveStreams, MissedMessages

CHANNELS = 64
"""Channels that sessions are spread over: a server looks through them for every notification, so not thousands."""

FRAME_PAUSE_MS = 20
"""Milliseconds between two frames of a session: hardly seen by who reads along, and one statement for many tokens."""

FRAME_BYTES = 256 * 1024
"""Bytes sent by one statement; the rest has to wait for the next. About a millisecond of work here, and there."""

OUTGOING_BYTES = 2 * 1024 * 1024
"""Bytes that wait to be sent while the server is slow or away. Past that the oldest are lost."""

OVERHEAD_BYTES = 64
"""What a payload takes in memory beside its own bytes: a million empty ones must not go unnoticed."""

PIECE_CHARS = 7_500
"""Characters of a frame in one notification: with what stands before them, they stay below the server's 8,000."""

_MOST_PIECES = (FRAME_BYTES + LIVE_BYTES) * 2 // PIECE_CHARS
"""No frame has more: one that claims so is not ours."""

SEND = "select pg_notify(channel, piece) from unnest($1::text[], $2::text[]) as n (channel, piece)"


class _Frame(msgspec.Struct, frozen=True, array_like=True):
    session_id: str
    payloads: list[bytes | None]
    """In order; None where some were lost."""


_decoder = msgspec.msgpack.Decoder(_Frame)


_NAMES = [f"holdfast_live_{number:02x}" for number in range(CHANNELS)]
CHANNEL_NAMES = frozenset(_NAMES)


def channel_of(session_id: str) -> str:
    return _NAMES[zlib.crc32(session_id.encode()) % CHANNELS]


class ChannelStreams(LiveStreams):
    """The streams of a store, with the channels that they need."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: dict[str, set[LiveStream]] = {}

    def add(self, session_id: str) -> LiveStream:
        stream = super().add(session_id)
        self.channels.setdefault(channel_of(session_id), set()).add(stream)
        return stream

    def _remove(self, session_id: str, gone: LiveStream) -> None:
        super()._remove(session_id, gone)
        channel = channel_of(session_id)
        streams = self.channels.get(channel, set())
        streams.discard(gone)
        if not streams:
            self.channels.pop(channel, None)

    def miss(self, channel: str) -> None:
        """All that came through a channel was lost."""
        for stream in self.channels.get(channel, ()):
            stream.put(MissedMessages())


class OutgoingFrames:
    """Collects what is published here until it is sent. Belongs to one event loop."""

    def __init__(self, due: Callable[[], None]) -> None:
        self.sender = secrets.token_hex(8)
        """Stands on every piece, so that the sender does not get its own messages a second time."""
        self._due = due
        self._waiting: dict[str, list[bytes | None]] = {}
        self._bytes = 0
        self._frames = 0
        self._taken: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, session_id: str, item: LiveItem) -> None:
        waiting = self._waiting.setdefault(session_id, [])
        if not isinstance(item, MissedMessages):
            waiting.append(item)
            self._bytes += len(item) + OVERHEAD_BYTES
        elif not waiting or waiting[-1] is not None:
            waiting.append(None)
        while self._bytes > OUTGOING_BYTES:
            self._lose(next(each for each, payloads in self._waiting.items() if payloads != [None]))
        self._set_timer()

    def _lose(self, session_id: str) -> None:
        self._bytes -= _size(self._waiting.pop(session_id))
        self._waiting[session_id] = [None]  # after all others, so that the next to lose something is found at once

    def _set_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FRAME_PAUSE_MS / 1000, self._due)

    def take(self) -> tuple[list[str], list[str]]:
        """Channels and pieces, to be sent now with `SEND`. If that fails, say so with `lost`."""
        self._timer, self._taken = None, []
        channels, pieces, room = list[str](), list[str](), FRAME_BYTES
        while self._waiting and room > 0:
            session_id, payloads = next(iter(self._waiting.items()))
            count = 0
            while count < len(payloads) and room > 0:
                room -= _size(payloads[count : count + 1])
                count += 1
            self._bytes -= _size(payloads[:count])
            cut = self._cut(_Frame(session_id, payloads[:count]))
            channels += [channel_of(session_id)] * len(cut)
            pieces += cut
            self._taken.append(session_id)
            del self._waiting[session_id]
            if count < len(payloads):
                self._waiting[session_id] = payloads[count:]
        if self._waiting:
            self._set_timer()
        return channels, pieces

    def lost(self) -> None:
        """What was taken last did not arrive."""
        for session_id in self._taken:
            self._waiting[session_id] = [None, *self._waiting.get(session_id, [])]
        self._set_timer()

    def _cut(self, frame: _Frame) -> list[str]:
        text = binascii.b2a_base64(msgspec.msgpack.encode(frame), newline=False).decode()
        self._frames += 1
        cuts = range(0, len(text), PIECE_CHARS)
        return [
            f"{self.sender} {self._frames} {number} {len(cuts)} {text[at : at + PIECE_CHARS]}"
            for number, at in enumerate(cuts)
        ]


def _size(payloads: Iterable[bytes | None]) -> int:
    return sum(len(payload) + OVERHEAD_BYTES for payload in payloads if payload is not None)


class IncomingFrames:
    """Puts the pieces of others' frames together, and passes them on to those who listen here."""

    def __init__(self, streams: LiveStreams, sender: str) -> None:
        self._streams = streams
        self._own = sender
        self._begun: tuple[str, list[str]] = ("", [])
        """The frame of which some pieces have come, and those. A transaction's come together, so there is one only."""

    def add_piece(self, piece: str) -> None:
        """A notification. Anyone who may connect to the database can send one: what is no frame of ours is ignored."""
        sender, frame, number, count, text = (*piece.split(" ", 4), "", "", "", "", "")[:5]
        if sender == self._own or not (number.isdecimal() and count.isdecimal()) or max(len(number), len(count)) > 6:
            return
        name, pieces = self._begun if number != "0" else (f"{sender} {frame}", [])
        self._begun = ("", [])
        if name != f"{sender} {frame}" or int(number) != len(pieces) or int(count) > _MOST_PIECES:
            return  # its beginning came before we listened
        pieces.append(text)
        if len(pieces) < int(count):
            self._begun = (name, pieces)
        else:
            self._pass_on("".join(pieces))

    def _pass_on(self, text: str) -> None:
        try:
            frame = _decoder.decode(binascii.a2b_base64(text))
        except (ValueError, msgspec.MsgspecError):
            return
        for payload in frame.payloads:
            self._streams.put(frame.session_id, MissedMessages() if payload is None else payload)
