"""How long one large value holds the event loop: a tool's result of many objects, and an image in an input."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

from bench import Figure, Plan, Round, Target
from holdfast.agent.machine.messages import ImageBlock, ImageSource, TextBlock
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.tools import tool
from holdfast.testing.loop_meter import LoopMeter
from holdfast.testing.provider import ScriptedProvider, ScriptStep, tool_call

OBJECTS = 200_000
"""In the result of the tool: 12 MB of JSON."""

IMAGE_BYTES = 15_000_000
"""Of the image: 20 MB of base64."""

MOST_MS = 50.0
"""How long one value may hold the event loop."""

TICK_S = 0.001


@tool
async def listing() -> list[dict[str, Any]]:
    """List everything."""
    return _objects


_objects = [{"id": number, "name": f"item {number}", "tags": ["a", "b"], "ok": True} for number in range(OBJECTS)]


_image_data = os.urandom(IMAGE_BYTES)


async def _many_objects(session: AgentSession) -> None:
    assert (await session.turn("List").run()).text == "Done."


async def _image(session: AgentSession) -> None:
    assert (await session.turn([TextBlock("Look"), ImageBlock(ImageSource("image/png", _image_data))]).run()).text


async def _held(url: str, turn: Callable[[AgentSession], Coroutine[Any, Any, None]]) -> tuple[float, float]:
    """CPU milliseconds of the longest callback, and those that all threads took in the longest time without a tick."""
    script: list[ScriptStep] = [tool_call("listing"), "Done."] if turn is _many_objects else ["I see."]
    async with Runtime(url, provider=ScriptedProvider(script), model="m", tools=[listing]) as runtime:
        session = await runtime.session("s").open()
        longest_s, last = 0.0, time.process_time()

        async def tick() -> None:
            nonlocal longest_s, last
            while True:
                await asyncio.sleep(TICK_S)
                now = time.process_time()
                longest_s, last = max(longest_s, now - last), now

        ticking = asyncio.create_task(tick())
        with LoopMeter.running() as meter:
            await turn(session)
        ticking.cancel()
        return meter.longest_ms, 1000 * longest_s


async def large_values(plan: Plan) -> list[Figure]:
    """The longest hold of each kind of value and store."""
    figures, limit = [], Target("value", "<=", MOST_MS)
    for name, turn in {"objects": _many_objects, "image": _image}.items():
        for store in ("memory", "sqlite"):
            rounds: list[tuple[float, float]] = []
            for number in range(plan.repeat):
                place = plan.directory / f"large-{name}-{number}.db"
                rounds.append(await _held("memory:" if store == "memory" else f"sqlite:///{place}", turn))
            what = f"large-values {name}, {store}"
            callbacks, pauses = ([Round(each[index]) for each in rounds] for index in (0, 1))
            figures.append(Figure(f"{what}: longest callback", "ms CPU", callbacks, targets=[limit]))
            figures.append(Figure(f"{what}: longest without a tick", "ms CPU", pauses, targets=[limit]))
    return figures


BENCHMARKS = {"large-values": large_values}
