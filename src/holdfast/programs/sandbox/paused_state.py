"""The stored state of a program that waits: the interpreter's dump, and which of its calls wait for which queries."""

from __future__ import annotations

import threading

import msgspec
from backports import zstd

from holdfast.core.queries import Answer
from holdfast.core.values import Json
from holdfast.programs.errors import SnapshotUnusableError
from holdfast.programs.sandbox.limits import COMPRESSED_FROM, MAX_MEMORY_MIB

VERSION = 1
"""Of this structure around the dump. The dump has a version of its own, which monty checks."""

_LEVEL = 1
"""Of compression: higher levels cost more time than they save here."""


class WaitingCall(msgspec.Struct):
    """A plain call that waits for the answers to one or more queries, and for nothing else."""

    function: str
    """Its name, which decides what becomes of the answers."""
    queries: list[str]
    arrived: dict[str, Answer] = {}
    detail: Json = None
    """What else the value of the call is made from."""


class AwaitedCall(msgspec.Struct, array_like=True):
    """A call whose awaitable has no value yet."""

    call: int
    """The interpreter's number of the call."""
    is_llm: bool
    """Whether a model is asked, and not a person, a tool or the clock."""


class PausedState(msgspec.Struct, kw_only=True):
    """A program that waits."""

    version: int = VERSION
    dump: bytes
    suspensions: int = 0
    """Calls of the host so far."""
    waiting_call: WaitingCall | None = None
    """The plain call that it waits in; None if all its tasks wait for awaited."""
    awaited: dict[str, AwaitedCall] = {}
    """Awaitables that wait for an answer, by query."""
    arrived: dict[int, Answer] = {}
    """Answers to awaitables that came while a plain call waited."""
    fresh: list[str] = []
    """Queries of the last step: those that fail if it is refused."""
    unwanted: list[str] = []
    """Queries that the program no longer waits for. They are withdrawn with the next pause that is accepted."""
    figures: dict[str, Json] = {}
    """What the program has recorded about itself."""
    is_packed: bool = False


_local = threading.local()
"""Holds a compressor for each thread: making one costs more than using it."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PausedState)


def encode_state(state: PausedState) -> bytes:
    """The bytes of a state."""
    if len(state.dump) >= COMPRESSED_FROM:
        state = msgspec.structs.replace(state, dump=_packed(state.dump), is_packed=True)
    return _encoder.encode(state)


def decode_state(data: bytes) -> PausedState:
    """The state in some bytes; `SnapshotUnusableError` if there is none that this version understands."""
    try:
        state = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotUnusableError(f"its snapshot cannot be read: {error}") from None
    if state.version != VERSION:
        raise SnapshotUnusableError(f"its snapshot has version {state.version}, and this is version {VERSION}")
    if state.is_packed:
        state.dump, state.is_packed = _unpacked(state.dump), False
    return state


def _packed(data: bytes) -> bytes:
    packer: zstd.ZstdCompressor | None = getattr(_local, "packer", None)
    if packer is None:
        packer = _local.packer = zstd.ZstdCompressor(_LEVEL)
    return packer.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def _unpacked(data: bytes) -> bytes:
    """Bounded: a forged one must not fill the memory, although its seal should have been refused."""
    try:
        unpacker = zstd.ZstdDecompressor()
        dump = unpacker.decompress(data, max_length=2 * MAX_MEMORY_MIB * 1024 * 1024)
        if not unpacker.eof:
            raise SnapshotUnusableError("its snapshot is cut short, or too large")
        return dump
    except zstd.ZstdError as error:
        raise SnapshotUnusableError(f"its snapshot cannot be unpacked: {error}") from None
