"""The work of a Lua session, in instructions counted by callgrind: a round trip in the engine, a step in its worker."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import msgspec

from bench import Figure, Plan, texts
from bench.callgrind import count, instructions, mark, require_callgrind
from bench.engine import FOREVER, TEXT_BYTES
from bench.instructions import TRIPS, WARM_UP, trips_url
from bench.instructions import make_trips as make_native_trips
from bench.lua import asks
from holdfast.alc.lua.frames import StepsRequest, VmSpec, VmWaking, frame
from holdfast.alc.lua.packages import Roots
from holdfast.alc.lua.source import source_of
from holdfast.alc.lua.worker import VmServer
from holdfast.core.values import encode


async def lua_instructions(plan: Plan) -> list[Figure]:
    """Pause, feed, pause: one round trip of a Lua session, the engine's part and the worker's."""
    require_callgrind()
    figures = []
    for place in ("memory", "sqlite"):
        url = trips_url(plan, place, "lua-instructions")
        (engine,) = await asyncio.to_thread(count, plan, "lua_instructions", "make_trips", url)
        figures.append(instructions(plan, f"lua-instructions: round trip, {place}, engine", engine / TRIPS))
    (worker,) = await asyncio.to_thread(count, plan, "lua_instructions", "serve_steps")
    figures.append(instructions(plan, "lua-instructions: step, worker", worker / TRIPS))
    return figures


def make_trips(url: str) -> None:
    """Run in a process of its own: feed one session, whose worker is not counted."""
    make_native_trips(url, asks())


def serve_steps() -> None:
    """Run in a process of its own: be a worker."""
    gc.disable()  # as a worker does
    VmServer(_Engine()).serve()  # type: ignore[arg-type]


class _Engine:
    """What a worker takes for its pipes: the requests are there when it reads, and its replies go nowhere."""

    def __init__(self) -> None:
        self._requests = _requests([frame(_step(number)) for number in range(WARM_UP + TRIPS)])

    def receive(self, _: int) -> bytes:
        return next(self._requests)

    def send_all(self, _: bytes) -> None:
        return None


def _requests(frames: list[bytes]) -> Iterator[bytes]:
    """Requests, with a mark before and after those that are counted, and then the end."""
    yield from frames[:WARM_UP]
    mark()
    yield from frames[WARM_UP:]
    mark()
    yield b""


def _step(number: int) -> StepsRequest:
    """The request for the step after so many answers."""
    waking = VmWaking(number, number, number)
    if number == 0:
        return StepsRequest(1, 1, _spec(), [waking])
    answer = texts(TEXT_BYTES)[number % 256].encode()
    return StepsRequest(number + 1, 1, None, [msgspec.structs.replace(waking, answers=[answer], forms=b"s")])


def _spec() -> VmSpec:
    code = source_of(asks()).code
    config = {"name": "bench", "code": code, "ctx": {"pauses": FOREVER}, "seed": 1, "at": 0}
    limits = {"deadline_s": 10, "memory_mib": 64, "dirs": {}}
    return VmSpec(encode(config | limits), Roots(), is_trusted=False, memory_mib=64, scenarios="/nowhere")


BENCHMARKS = {"lua-instructions": lua_instructions}
