"""What the engine and its Lua workers say to each other: length-prefixed msgpack over two pipes."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from holdfast.alc.lua.kept import Module
from holdfast.alc.lua.limits import MAX_FRAME_BYTES
from holdfast.alc.lua.packages import Roots


class VmWaking(msgspec.Struct, array_like=True, frozen=True):
    """A program is resumed: when, what it may know, and the answers."""

    at: int
    first_id: int
    """The number of the next query."""
    llm_calls: int
    left: bytes | None = None
    """What is left of the budget, as JSON."""
    refusal: bytes | None = None
    answers: list[bytes] = []
    """In the order of the queries."""
    forms: bytes = b""
    """What each answer is: `s` for a text, `j` for JSON, `f` for a failure in JSON."""


class VmSpec(msgspec.Struct, array_like=True, frozen=True):
    """A new VM."""

    config: bytes
    """What the driver reads, as JSON."""
    roots: Roots
    is_trusted: bool
    memory_mib: int
    scenarios: str
    """The directories where scenarios are looked for by name, separated as in PATH."""
    modules: dict[str, Module] = {}
    """Sources that were kept with the session, by module."""
    null_is_nil: bool = True
    """Whether the program sees JSON's null as nil."""


class StepsRequest(msgspec.Struct, array_like=True, frozen=True):
    """Take these steps, in a new VM if there is a spec of one; and drop the listed VMs."""

    number: int
    vm: int
    spec: VmSpec | None = None
    wakings: list[VmWaking] = []
    drops: list[int] = []
    is_replay: bool = False


class StepReply(msgspec.Struct, array_like=True, frozen=True):
    """The message of each step, as `outcomes.py` reads it; or a sign of life, with no steps, during long replays."""

    number: int
    steps: list[bytes] | None = None
    is_gone: bool = False
    """The VM is not there (any more)."""


READ_BYTES = 64 * 1024
"""Bytes read at once: room is made for all of them, and most messages are short."""

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


def frame(message: msgspec.Struct) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "little") + body


class Frames(Generic[T]):
    """Messages cut out of a stream of bytes."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[T]:
        """The messages that are whole with this piece."""
        rest = self._rest
        if not rest and int.from_bytes(data[:4], "little") == len(data) - 4:
            return [self._decoder.decode(memoryview(data)[4:])]  # one whole message, as nearly always
        rest += data
        found: list[T] = []
        at = 0
        while len(rest) - at >= 4:
            size = int.from_bytes(rest[at : at + 4], "little")
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"a message of {size} bytes; at most {MAX_FRAME_BYTES} are allowed")
            if len(rest) - at - 4 < size:
                break
            found.append(self._decoder.decode(memoryview(rest)[at + 4 : at + 4 + size].tobytes()))
            at += 4 + size
        del rest[:at]
        return found
