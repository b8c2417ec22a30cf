"""The processes of the restart tests: each begins a turn, and dies when its cell waits for what the test is about."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from holdfast.agent.machine.approval import Approval, Rule
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.providers.provider import ModelReply, ModelRequest, StreamItem
from holdfast.agent.runtime import Runtime
from holdfast.agent.subagents.definition import AgentDefinition
from holdfast.agent.tools import ToolContext, tool
from holdfast.core.records import AnsweredRecord
from holdfast.core.state import State
from holdfast.testing.patience import HANG_S, until
from tests.agent.rlm.helpers import CellModel, cell

LEASE_MS = 500

TOGETHER, ANSWERED = 50, 20
"""Calls of one gather, and those that have an answer when the process dies."""

READING = "rows = data.split()\ntotal = add(len(rows), 1)\nfinish([rows[0], total])"
"""A cell that reads a projection, and calls a tool that needs approval."""

GATHERING = (
    "import asyncio\nbefore = [1, 2]\n"
    f"finish([before, sum(await asyncio.gather(*[work_async(n) for n in range({TOGETHER})]))])"
)

HELD = "for n in range(300):\n    exec(f'v{n} = list(range(900))')"
"""A cell that makes 300 variables of 3.5 KB."""


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def working(ledger: Path, *, ends: Callable[[int], bool]) -> Any:
    """A tool that writes down its calls; those that do not end wait."""

    @tool(recovery="safe")
    async def work(n: int, context: ToolContext) -> int:
        """Do it."""
        with ledger.open("a") as file:
            file.write(f"{n}\n")
        if not ends(n):
            await asyncio.Event().wait()
        return n

    return work


def die_in_approval(url: str, value: str) -> None:
    """Begin a turn whose cell has read a projection, and waits for a person."""
    asyncio.run(_die_in_approval(url, value))


async def _die_in_approval(url: str, value: str) -> None:
    model = CellModel([cell("x = 1"), cell(READING)])
    async with asyncio.timeout(HANG_S), Runtime(url, provider=model, tools=[add], lease_ms=LEASE_MS) as runtime:
        builder = runtime.session("s").rlm().bind("data", value).approval(Approval(rules=[Rule("add", "confirm")]))
        session = await builder.open()
        turn = asyncio.create_task(session.turn("go").id("t-1").run())
        await until(lambda: _waits(runtime, "human"))
        del turn
        os.kill(os.getpid(), signal.SIGKILL)


async def _waits(runtime: Runtime, kind: str) -> bool:
    session = await runtime.mount.holdfast.session("s")
    return any(asked.query.kind == kind for asked in session.pending.values())


CHILDREN, ENDED = 32, 8
"""Subagents of one cell, and those that have ended when the process dies."""

DELEGATING = f"finish([r['value'] for r in agent_batch('helper', [str(n) for n in range({CHILDREN})])])"

HELPER = AgentDefinition(name="helper", description="helps", instructions="HELPER", mode="rlm")


class FamilyModel:
    """A model that writes the cells of a parent and of its subagents; after some of these, it answers no more."""

    id = "scripted"
    model = "m-1"

    def __init__(self, most: int = CHILDREN) -> None:
        self._most = most
        self._begun = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        if "HELPER" not in request.system:
            yield ModelReply(content=[TextBlock(cell(DELEGATING))])
            return
        self._begun += 1
        if self._begun > self._most:
            await asyncio.Event().wait()
        task = request.messages[0].text.split()[0]
        yield ModelReply(content=[TextBlock(cell(f"finish(int('{task}') * 2)"))])


def die_among_children(url: str) -> None:
    """Begin a turn whose cell has 32 subagents, of which some have ended."""
    asyncio.run(_die_among_children(url))


async def _die_among_children(url: str) -> None:
    runtime = Runtime(url, provider=FamilyModel(ENDED), agents=[HELPER], lease_ms=LEASE_MS)
    async with asyncio.timeout(HANG_S), runtime:
        session = await runtime.session("s").rlm().open()
        turn = asyncio.create_task(session.turn("go").id("t-1").run())
        await until(lambda: _has_ended(runtime))
        del turn
        os.kill(os.getpid(), signal.SIGKILL)


async def _has_ended(runtime: Runtime) -> bool:
    rows = (await runtime.mount.store.sessions()).rows
    return sum(row.summary.state is State.COMPLETED for row in rows) >= ENDED


def die_in_gather(url: str, ledger: Path) -> None:
    """Begin a turn whose cell awaits fifty calls, of which twenty have an answer."""
    asyncio.run(_die_in_gather(url, ledger))


async def _die_in_gather(url: str, ledger: Path) -> None:
    model = CellModel([cell(HELD), cell(GATHERING)])
    work = working(ledger, ends=lambda n: n < ANSWERED)
    async with asyncio.timeout(HANG_S), Runtime(url, provider=model, tools=[work], lease_ms=LEASE_MS) as runtime:
        session = await runtime.session("s").rlm().open()
        turn = asyncio.create_task(session.turn("go").id("t-1").run())
        await until(lambda: _has_answers(runtime))
        del turn
        os.kill(os.getpid(), signal.SIGKILL)


async def _has_answers(runtime: Runtime) -> bool:
    entries = await runtime.mount.store.entries("s")
    answered = sum(isinstance(entry.record, AnsweredRecord) for entry in entries)
    return answered >= ANSWERED + 3  # with the input, and two replies of the model
