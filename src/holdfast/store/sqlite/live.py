"""Live messages between processes that share a SQLite file: each listener has a socket, and publishers send to all.

A process that listens binds a datagram socket in a directory beside the file (`chat.db-live/`). One that publishes
sends what came within a few moments to every socket that is there, as one datagram a session. Nothing is written to
the database, nobody waits, and nothing is kept: a listener that does not keep up is told that it missed something.
A socket whose process died is removed by whoever notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import time
from functools import cached_property

import msgspec

from holdfast.store.watch import LiveItem, LiveStream, LiveStreams, MissedMessages

FRAME_PAUSE_S = 0.02
"""Seconds between two datagrams of a session: hardly seen by who reads along, and few system calls for many tokens."""

DATAGRAM_BYTES = 128 * 1024
"""Bytes of one datagram: below what systems take by default (about 200 KiB)."""

OUTGOING_BYTES = 2 * 1024 * 1024
"""Bytes that wait to be sent. Past that, what waits of the session that says more is lost."""

OVERHEAD_BYTES = 64
"""What a payload takes beside its own bytes."""

LOOK_S = 0.05
"""Seconds for which it is remembered whether anybody listens: as late may the first listener be heard of."""

PATH_BYTES = 90
"""Bytes of a directory in which sockets can be: a socket's whole path has less than 108, or 104 on a Mac."""


class _Frame(msgspec.Struct, frozen=True, array_like=True):
    session_id: str
    payloads: list[bytes | None]
    """In order; None where some were lost."""


_decoder = msgspec.msgpack.Decoder(_Frame)


def socket_directory(path: str) -> str:
    """Where the sockets of a file's listeners are: beside it, or in a temporary directory if its path is long."""
    beside = f"{os.path.realpath(path)}-live"
    if len(os.fsencode(beside)) <= PATH_BYTES:
        return beside
    import tempfile  # hardly anybody's path is that long

    name = hashlib.sha256(os.fsencode(beside)).hexdigest()[:16]
    return os.path.join(tempfile.gettempdir(), f"holdfast-{os.getuid()}-{name}-live")


class SocketStreams(LiveStreams):
    """The streams of a store, with the socket that they need while there are any."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self.name = os.urandom(4).hex()
        """Of the own socket."""
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @cached_property
    def directory(self) -> str:
        """Where the sockets of all listeners are."""
        return socket_directory(self._path)

    @property
    def own(self) -> str:
        """The path of the own socket."""
        return os.path.join(self.directory, self.name)

    def add(self, session_id: str) -> LiveStream:
        if self._socket is None:
            self._open()
        return super().add(session_id)

    def _remove(self, session_id: str, gone: LiveStream) -> None:
        super()._remove(session_id, gone)
        if not self.by_session:
            self.close()

    def _open(self) -> None:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            opened.bind(self.own)
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(opened, self._read)
        except OSError:  # as where the directory cannot be written: listeners of this object still hear each other
            opened.close()
        else:
            self._socket = opened

    def _read(self) -> None:
        assert self._socket is not None
        while True:
            try:
                datagram = self._socket.recv(2 * DATAGRAM_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            with contextlib.suppress(msgspec.MsgspecError, ValueError):  # anybody may have sent it
                frame = _decoder.decode(datagram)
                for payload in frame.payloads:
                    self.put(frame.session_id, MissedMessages() if payload is None else payload)
            if self._socket is None:
                return

    def close(self) -> None:
        """Let go of the socket."""
        opened, self._socket = self._socket, None
        if opened is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(opened)
        opened.close()
        with contextlib.suppress(OSError):
            os.unlink(self.own)
            os.rmdir(self.directory)  # only if nobody else listens


class SocketPublisher:
    """Sends what is published here to the listeners in other processes."""

    def __init__(self, streams: SocketStreams) -> None:
        self._streams = streams
        self._waiting: dict[str, list[bytes | None]] = {}
        self._bytes = 0
        self._behind: set[tuple[str, str]] = set()
        """Listeners that missed something, each with the session."""
        self._others: list[str] = []
        self._looked = 0.0
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None

    def has_listeners(self) -> bool:
        """Whether a process listens to any session."""
        now = time.monotonic()
        if now - self._looked > LOOK_S:
            self._looked = now
            try:
                own = self._streams.name
                self._others = [name for name in os.listdir(self._streams.directory) if name != own]
            except OSError:
                self._others = []
        return bool(self._others)

    def put(self, session_id: str, item: LiveItem) -> None:
        """Send this soon."""
        if not self.has_listeners():
            return
        waiting = self._waiting.setdefault(session_id, [])
        payload = None if isinstance(item, MissedMessages) else item
        self._bytes += _size(payload)
        if self._bytes > OUTGOING_BYTES:  # the earliest of it is lost
            self._bytes -= sum(map(_size, waiting))
            waiting[:] = [None]
        waiting.append(payload)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FRAME_PAUSE_S, self._send)

    def _send(self) -> None:
        """Send as much as one datagram holds, and the rest after a pause: a socket takes little more at once."""
        self._timer = None
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        room = DATAGRAM_BYTES
        while self._waiting and room > 0:
            session_id, payloads = next(iter(self._waiting.items()))
            count = 0
            while count < len(payloads) and (not count or room >= _size(payloads[count])):
                room -= _size(payloads[count])
                count += 1
            self._bytes -= sum(map(_size, payloads[:count]))
            del self._waiting[session_id]
            if count < len(payloads):
                self._waiting[session_id] = payloads[count:]
            for name in list(self._others):
                self._send_to(name, _Frame(session_id, payloads[:count]))
        if self._waiting:
            self._set_timer()

    def _send_to(self, name: str, frame: _Frame) -> None:
        assert self._socket is not None
        session_id = frame.session_id
        is_behind = (name, session_id) in self._behind
        sent = _Frame(session_id, [None, *frame.payloads]) if is_behind else frame
        path = os.path.join(self._streams.directory, name)
        try:
            self._socket.sendto(msgspec.msgpack.encode(sent), path)
            self._behind.discard((name, session_id))
        except (ConnectionRefusedError, FileNotFoundError):  # its process died, or listens no more
            self._others.remove(name)
            self._behind = {each for each in self._behind if each[0] != name}
            with contextlib.suppress(OSError):
                os.unlink(path)
        except OSError:  # it does not keep up
            self._behind.add((name, session_id))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
        self._timer = self._socket = None


def _size(payload: bytes | None) -> int:
    return OVERHEAD_BYTES + (0 if payload is None else len(payload))
