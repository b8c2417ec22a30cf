"""The network of the tests' hosts, as a process: links that lose, delay and cut packets, and ports that lead elsewhere.

    python -m tests.fleet.network SPEC

A link is a pair of TAP devices, one in the namespace of a host and one in that of the hub. Every packet goes through
this process, so a link can be cut in one direction only, or towards one address only, be slow, or lose packets: what
`tc netem` would do, on kernels that lack it too. A line of JSON on the standard input sets how a link is from now on.

A port leads from one namespace to another: servers of the machine itself can be reached from hosts, and hosts from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import random
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
IPV4 = b"\x08\x00"
FRAME_BYTES = 65_536
BACKLOG_S = 1.0
"""A narrow link drops what it could not send within this time."""

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def inside(namespace: str | None) -> Iterator[None]:
    """What is opened now belongs to a network namespace; to that of the machine if it is None. Not for threads."""
    if namespace is None:
        yield
        return
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        _enter(Path("/run/netns") / namespace)
        yield
    finally:
        _set_namespace(home)
        os.close(home)


def _enter(path: Path) -> None:
    there = os.open(path, os.O_RDONLY)
    try:
        _set_namespace(there)
    finally:
        os.close(there)


def _set_namespace(fd: int) -> None:
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def open_tap(namespace: str, name: str) -> int:
    """A TAP device in a namespace, as a file whose reads and writes are frames. It goes with the file."""
    with inside(namespace):
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


# --- links ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """How one direction of a link is."""

    delay_ms: float = 0
    loss: float = 0
    """The share of packets that are lost; 1 for a link that is cut."""
    bytes_per_s: float = 0
    """0 for as many as come."""


@dataclass
class Direction:
    """Passes frames on from one device to another."""

    source: int
    target: int
    address_at: slice
    """Where the address of the peer is in an IPv4 frame: that of whom the host sends to, or hears from."""
    chance: random.Random
    condition: Condition = Condition()
    towards: dict[bytes, Condition] = field(default_factory=dict)
    """How it is for single peers, by address."""
    free_at: float = 0

    def set(self, condition: Condition, peer: str | None) -> None:
        if peer is not None:
            self.towards[socket.inet_aton(peer)] = condition
            return
        self.condition = condition
        self.towards.clear()

    def pass_on(self) -> None:
        """Read what has come, and send it, unless it is lost."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(BlockingIOError):
            while frame := os.read(self.source, FRAME_BYTES):
                peer = frame[self.address_at] if frame[12:14] == IPV4 else b""
                now, condition = loop.time(), self.towards.get(peer, self.condition)
                if condition.loss and self.chance.random() < condition.loss:
                    continue
                leaves_at = now
                if condition.bytes_per_s:
                    if self.free_at - now > BACKLOG_S:
                        continue
                    leaves_at = self.free_at = max(now, self.free_at) + len(frame) / condition.bytes_per_s
                arrives_at = leaves_at + condition.delay_ms / 1000
                if arrives_at > now:
                    loop.call_at(arrives_at, self._deliver, frame)
                else:
                    self._deliver(frame)

    def _deliver(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):  # the device is down, or full: lost
            os.write(self.target, frame)


class Link:
    """Between a host and the hub. `out` is what the host sends, `in` is what it gets."""

    def __init__(self, hub: str, host: str, port: str) -> None:
        near, far = open_tap(host, "eth0"), open_tap(hub, port)
        source, destination = slice(26, 30), slice(30, 34)
        chance = random.Random(port)
        self.ways = {"out": Direction(near, far, destination, chance), "in": Direction(far, near, source, chance)}

    def start(self) -> None:
        for way in self.ways.values():
            asyncio.get_running_loop().add_reader(way.source, way.pass_on)


# --- ports ----------------------------------------------------------------------------------------------


async def lead(port: dict[str, Any]) -> int:
    """Pass on what connects to a port in one namespace to an address in another one; the number of the port."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await _connect(port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    with inside(port["namespace"]):
        listening = socket.create_server((port["address"], port["port"]))
    await asyncio.start_server(serve, sock=listening)
    number: int = listening.getsockname()[1]
    return number


async def _connect(port: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if "path" in port:
        return await asyncio.open_unix_connection(port["path"])
    with inside(port["to_namespace"]):
        connection = socket.socket()
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (port["to_address"], port["to_port"]))
        return await asyncio.open_connection(sock=connection)
    except BaseException:
        connection.close()
        raise


# --- the process ----------------------------------------------------------------------------------------


async def run(spec: dict[str, Any]) -> None:
    links = [Link(spec["hub"], host, f"p{number}") for number, host in enumerate(spec["hosts"])]
    for link in links:
        link.start()
    _tell("made")
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        command = json.loads(line)
        if "lead" in command:
            _tell(await lead(command["lead"]))
            continue
        for way in command["ways"]:
            links[command["link"]].ways[way].set(Condition(**command["condition"]), command["peer"])
        _tell("set")


def _tell(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run(run(json.loads(sys.argv[1])))
