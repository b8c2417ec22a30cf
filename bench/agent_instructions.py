"""`agent-instructions`: the work of a plain agent turn, less that of its scripted model: instructions, Python calls."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from types import FrameType

from bench import Figure, Plan, Round, Target
from bench.agent import _provider, _turn
from bench.callgrind import PATIENCE, instructions_of, require_callgrind
from holdfast.agent.machine.messages import AgentMessage, TextBlock
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime

TURNS = (20, 80)
"""Turns of two runs. Their difference leaves out imports, opening and warming up; on average 50 turns came before."""

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
    for unit, count in (("instructions", _instructions), ("Python calls", _calls)):
        per_turn = {place: _per_turn(plan, place, count) for place in (MODEL, "memory", "sqlite")}
        for place in ("memory", "sqlite"):
            value = per_turn[place] - per_turn[MODEL]
            plan.say(f"agent-instructions: {place}: {value:,.0f} {unit} for each turn")
            targets = [Target("value", "<=", LIMITS[unit])] if place == "sqlite" else []
            figures.append(Figure(f"agent-instructions: plain turn, {place}", unit, [Round(value)], targets=targets))
    return figures


def _per_turn(plan: Plan, place: str, count: Callable[[Plan, str, int], int]) -> float:
    few, many = (count(plan, place, turns) for turns in TURNS)
    return (many - few) / (TURNS[1] - TURNS[0])


def _instructions(plan: Plan, place: str, turns: int) -> int:
    return instructions_of(plan, f"agent-{place}-{turns}", _program("take_turns", plan, place, turns))


def _calls(plan: Plan, place: str, turns: int) -> int:
    program = _program("print_calls", plan, place, turns)
    environment = {**os.environ, "HOLDFAST_PATIENCE": PATIENCE}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout)


def _program(function: str, plan: Plan, place: str, turns: int) -> str:
    path = plan.directory / f"agent-{function}-{turns}.db"
    return f"from bench import agent_instructions as run; run.{function}({place!r}, {turns}, {str(path)!r})"


def take_turns(place: str, turns: int, path: str) -> None:
    """Run in a process of its own: one session with so many turns, or the scripted model alone, asked so often."""
    asyncio.run(
        _ask(turns) if place == MODEL else _converse("memory:" if place == "memory" else f"sqlite:///{path}", turns)
    )


def print_calls(place: str, turns: int, path: str) -> None:
    """The same, and print how many Python functions were called; a coroutine that is resumed is called again."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    take_turns(place, turns, path)
    sys.setprofile(None)
    print(calls)


async def _converse(url: str, turns: int) -> None:
    async with Runtime(url, provider=_provider(turns)) as runtime:
        session = await runtime.session("chat").open()
        for number in range(turns):
            await _turn(session, number)


async def _ask(turns: int) -> None:
    provider = _provider(turns)
    request = ModelRequest(model="scripted", messages=[AgentMessage("user", [TextBlock("What is it?")])])
    for _ in range(turns):
        async for _ in provider.stream(request):
            pass


BENCHMARKS = {"agent-instructions": agent_instructions}
