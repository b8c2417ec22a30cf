"""The process of the crash tests of cells: it takes one turn, and dies where it is told to.

It writes down the key of each call of a tool and of a model that it begins. It can die in a call, before that call has
done anything and after it has done everything.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast import Runtime
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.providers.provider import ModelReply, ModelRequest, StreamItem
from holdfast.agent.subagents.definition import AgentDefinition
from holdfast.agent.tools import ToolContext, tool
from holdfast.store import open_store
from holdfast.testing.crash.seams import Seam, SeamObserver
from holdfast.testing.patience import HANG_S

STEP = "turn"

LEASE_MS = 1_500
"""Milliseconds for which a process keeps its sessions after it has died: the next one waits for that."""

CELLS = [
    "first = note('a', 1)\nrows = [first]\nmuch = {str(n): 'y' * 3000 for n in range(6)}\nmore = 'z' * 6000",
    "import asyncio\nrows += await asyncio.gather(*[note_async('b', n) for n in range(3)])\nrows.append(llm('word'))",
    "rows.append(agent('helper', 'help'))\nrows += [r['value'] for r in agent_batch('helper', ['x', 'y'])]",
    "finish(rows if (len(much), len(more)) == (6, 6000) else [])",
]
"""Calls one after the other, a gather, a model, a subagent, and two at once; each cell needs the ones before.
The first leaves values that are in records of their own."""

EXPECTED = ["a1", "b0", "b1", "b2", "WORD", "helped", "helped", "helped"]


@dataclass(frozen=True)
class CellJob:
    """What a process does, and where it dies."""

    url: str
    directory: Path
    name: str = "first"
    deadly: Seam | None = None

    @property
    def trace(self) -> Path:
        return self.directory / f"trace-{self.name}"

    @property
    def ledger(self) -> Path:
        """The keys of the calls that were begun, in lines."""
        return self.directory / f"ledger-{self.name}"


class CellsModel:
    """A model that writes these cells, one after the other: which is next can be seen from the conversation."""

    id = "cells"
    model = "m-1"

    def __init__(self, began: Callable[[str], None]) -> None:
        self._began = began

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        self._began(request.key)
        if "HELPER" in request.system:
            text = "```python\nnote('child', 0)\nfinish('helped')\n```"
        elif "# How you work" not in request.system:
            text = request.messages[0].text.upper()
        else:
            written = sum(message.role == "assistant" for message in request.messages)
            text = f"```python\n{CELLS[written]}\n```"
        yield ModelReply(content=[TextBlock(text)])


def take_turn(job: CellJob) -> None:
    """Take the turn, or take it up where another process left it."""
    asyncio.run(_take(job))


async def _take(job: CellJob) -> None:
    ledger = os.open(job.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    seams = SeamObserver(job.trace, job.deadly)
    seams.step = STEP

    def began(key: str) -> None:
        os.write(ledger, f"{key}\n".encode())

    @tool(recovery="safe")
    async def note(word: str, n: int, context: ToolContext) -> str:
        """Note a word with a number."""
        await seams("before work")
        began(context.key)
        await seams("after work")
        return f"{word}{n}"

    helper = AgentDefinition(name="helper", description="helps", instructions="HELPER", mode="rlm")
    store = seams.guard(open_store(job.url))
    runtime = Runtime(store, provider=CellsModel(began), tools=[note], agents=[helper], lease_ms=LEASE_MS, seam=seams)
    async with asyncio.timeout(HANG_S), runtime:
        session = await runtime.session("s").rlm().open()
        result = await session.turn("Go.").id("t-1").run()
        (job.directory / "result").write_text(repr(result.value))
