"""What the tests of approval share: tools that remember what they did, and turns that wait for somebody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast import Approve, Rule
from holdfast.agent.machine.queries import ApprovalQuery
from holdfast.agent.results import ToolCallResult, TurnResult
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.testing import tool_call
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptStep
from tests.agent.helpers import Home

CONFIRM = Approve([Rule.confirm("delete")])


class Disk:
    """Tools that remember what they did."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def delete(self, path: str) -> str:
        """Delete a file."""
        self.did.append(f"delete {path}")
        return "gone"

    def read(self, path: str) -> str:
        """Read a file."""
        self.did.append(f"read {path}")
        return "text"


def deletes(*paths: str) -> list[ScriptStep]:
    """A model that deletes something in each turn, and says so."""
    return [step for path in paths for step in (tool_call("delete", path=path), f"Deleted {path}.")]


def runtime_on(home: Home, disk: Disk, *script: ScriptStep, **options: Any) -> Runtime:
    return home.runtime(*script, tools=[disk.delete, disk.read], **options)


async def waiting(session: AgentSession, count: int = 1) -> list[ApprovalQuery]:
    """The approvals that a session waits for, once there are so many."""

    async def are_there() -> bool:
        return len((await session.read_view()).approvals) == count

    await until(are_there)
    return (await session.read_view()).approvals


@asynccontextmanager
async def working(session: AgentSession, text: str = "Go") -> AsyncIterator[asyncio.Task[TurnResult]]:
    """A turn under way."""
    task = asyncio.create_task(session.turn(text).run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def worked(session: AgentSession, answer: Any) -> TurnResult:
    """A turn whose only approval is answered so."""
    async with working(session) as work:
        [asked] = await waiting(session)
        await soon(session.answer(asked.id, answer))
        return await soon(work)


def only_call(result: TurnResult) -> ToolCallResult:
    [call] = result.tool_calls
    return call
