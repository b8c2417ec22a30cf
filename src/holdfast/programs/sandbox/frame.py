"""The state of a program that waits, as it is kept: the interpreter's dump, and which of its calls wait for what."""

from __future__ import annotations

import threading

import msgspec
from backports import zstd

from holdfast.core.queries import Answer
from holdfast.core.values import Json
from holdfast.programs.errors import SnapshotUnusableError
from holdfast.programs.sandbox.limits import COMPRESSED_FROM, MAX_MEMORY_MIB

VERSION = 1
"""Of the frame around the dump. The dump has a version of its own, which monty looks at."""

_LEVEL = 1
"""Of compression: higher ones take longer than they save here."""


class Joint(msgspec.Struct):
    """A plain call that waits for the answers to one or more queries, and for nothing else."""

    function: str
    """Its name, which says what is made of the answers."""
    queries: list[str]
    arrived: dict[str, Answer] = {}
    detail: Json = None
    """What else is needed to make the value of the call."""


class Future(msgspec.Struct, array_like=True):
    """An awaitable that has no value yet."""

    call: int
    """The call that gave it, as the interpreter counts."""
    is_llm: bool
    """Whether a model is asked, and not a person, a tool or the clock."""


class Frame(msgspec.Struct, kw_only=True):
    """A program that waits."""

    version: int = VERSION
    dump: bytes
    suspensions: int = 0
    """Calls of the host so far."""
    joint: Joint | None = None
    """The plain call that it waits in; None if all its tasks wait for futures."""
    futures: dict[str, Future] = {}
    """Awaitables that wait for an answer, by query."""
    arrived: dict[int, Answer] = {}
    """Answers to awaitables that came while a plain call waited."""
    fresh: list[str] = []
    """Queries of the last step: those that fail if it may not ask."""
    unwanted: list[str] = []
    """Queries that nobody waits for any more, until a pause says so: they were withdrawn with those that are fresh."""
    figures: dict[str, Json] = {}
    """What the program has recorded about itself."""
    is_packed: bool = False


_local = threading.local()
"""Holds a compressor for each thread: making one costs more than using it."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def freeze(frame: Frame) -> bytes:
    """The bytes of a frame."""
    if len(frame.dump) >= COMPRESSED_FROM:
        frame = msgspec.structs.replace(frame, dump=_packed(frame.dump), is_packed=True)
    return _encoder.encode(frame)


def thaw(data: bytes) -> Frame:
    """The frame in some bytes; `SnapshotUnusableError` if there is none that this version understands."""
    try:
        frame = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotUnusableError(f"its snapshot cannot be read: {error}") from None
    if frame.version != VERSION:
        raise SnapshotUnusableError(f"its snapshot has version {frame.version}, and this is version {VERSION}")
    if frame.is_packed:
        frame.dump, frame.is_packed = _unpacked(frame.dump), False
    return frame


def _packed(data: bytes) -> bytes:
    packer: zstd.ZstdCompressor | None = getattr(_local, "packer", None)
    if packer is None:
        packer = _local.packer = zstd.ZstdCompressor(_LEVEL)
    return packer.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def _unpacked(data: bytes) -> bytes:
    """With a bound: a forged one must not fill the memory, although the seal should have told."""
    try:
        unpacker = zstd.ZstdDecompressor()
        dump = unpacker.decompress(data, max_length=2 * MAX_MEMORY_MIB * 1024 * 1024)
        if not unpacker.eof:
            raise SnapshotUnusableError("its snapshot is cut short, or too large")
        return dump
    except zstd.ZstdError as error:
        raise SnapshotUnusableError(f"its snapshot cannot be unpacked: {error}") from None
