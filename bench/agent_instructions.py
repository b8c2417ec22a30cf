"""`agent-instructions`: the work of a plain agent turn, less that of its scripted model: instructions, Python calls."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FrameType

from bench import Figure, Plan, Round, Target
from bench.agent import _provider, _turn
from bench.callgrind import PATIENCE, count, mark, require_callgrind
from bench.engine import _child
from holdfast.agent.machine.messages import AgentMessage, TextBlock
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.engine.upkeep import Upkeep

WARM_UP = 40
TURNS = 64
"""Turns that are not counted, the first checkpoint among them, and that are, with two more checkpoints."""

LIMITS = {"instructions": 1_600_000, "Python calls": 450}
"""Of one turn on SQLite."""

MODEL = "model"
"""Where there is no session: the scripted model alone, whose work is left out."""


async def agent_instructions(plan: Plan) -> list[Figure]:
    """A question, and a reply of the model: what the runtime does for them, in memory and on SQLite."""
    require_callgrind()
    return await asyncio.to_thread(_figures, plan)


def _figures(plan: Plan) -> list[Figure]:
    figures = []
    for unit, count_turns in (("instructions", _instructions), ("Python calls", _calls)):
        counted = {place: count_turns(plan, place) for place in (MODEL, "memory", "sqlite")}
        for place in ("memory", "sqlite"):
            value = (counted[place] - counted[MODEL]) / TURNS
            plan.say(f"agent-instructions: {place}: {value:,.0f} {unit} for each turn")
            targets = [Target("value", "<=", LIMITS[unit])] if place == "sqlite" else []
            figures.append(Figure(f"agent-instructions: plain turn, {place}", unit, [Round(value)], targets=targets))
    return figures


def _instructions(plan: Plan, place: str) -> int:
    path = plan.directory / "agent-instructions.db"
    (found,) = count(plan, "agent_instructions", "take_turns", place, str(path))
    return found


def _calls(plan: Plan, place: str) -> int:
    path = plan.directory / "agent-calls.db"
    found: int = _child("calls", place, str(path), module="agent_instructions", patience=PATIENCE)
    return found


def take_turns(place: str, path: str) -> None:
    """Run in a process of its own: a session with its turns, or the scripted model alone, asked as often."""
    _run(place, path, mark)


def calls(place: str, path: str) -> int:
    """The same; how many Python functions were called. A coroutine that is resumed is called again."""
    found = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal found
        found += event == "call"

    def toggle() -> None:
        sys.setprofile(None if sys.getprofile() else note)

    _run(place, path, toggle)
    return found


def _run(place: str, path: str, toggle: Callable[[], None]) -> None:
    asyncio.run(
        _ask(toggle) if place == MODEL else _converse("memory:" if place == "memory" else f"sqlite:///{path}", toggle)
    )


async def _converse(url: str, toggle: Callable[[], None]) -> None:
    idle = Upkeep(on=False)  # it looks at the clock, and callgrind is slow: it would have its turn in every turn
    async with Runtime(url, provider=_provider(WARM_UP + TURNS), upkeep=idle) as runtime:
        session = await runtime.session("chat").open()
        for number in range(WARM_UP):
            await _turn(session, number)
        toggle()
        for number in range(TURNS):
            await _turn(session, number)
        toggle()


async def _ask(toggle: Callable[[], None]) -> None:
    provider = _provider(TURNS)
    request = ModelRequest(model="scripted", messages=[AgentMessage("user", [TextBlock("What is it?")])])
    toggle()
    for _ in range(TURNS):
        async for _ in provider.stream(request):
            pass
    toggle()


BENCHMARKS = {"agent-instructions": agent_instructions}
