"""A process that pays once somebody approves: URL, ledger, what to do, where it dies. Used by `test_approval_crash`.

`ask` begins the turn, and says which query waits; `approve` and `deny` answer it, and go on with the turn; `join` only
goes on with it. Every payment is a line of the ledger, with the key of its call.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from holdfast import Approve, Rule, ToolContext, tool
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.store import open_store
from holdfast.testing.provider import ScriptedProvider, ScriptStep, tool_call

LEASE_MS = 400


def answers(request: ModelRequest) -> ScriptStep:
    """A model that goes by what was said: it can be another process in every step."""
    last = request.messages[-1]
    return tool_call("pay", euros=3) if last.role == "user" else f"It came to {last.content[0].content}."  # type: ignore[union-attr]


class Deadly:
    """Kills the process when a seam is reached for the n-th time."""

    def __init__(self, name: str, number: int) -> None:
        self._deadly = (name, number)
        self._counts: Counter[str] = Counter()

    async def __call__(self, name: str) -> None:
        self._counts[name] += 1
        if (name, self._counts[name]) == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, ledger: str, what: str, recovery: str, seam: str = "", number: str = "0") -> None:
    @tool(recovery=recovery)  # type: ignore[call-overload,untyped-decorator]
    def pay(euros: int, ctx: ToolContext) -> str:
        """Pay."""
        with Path(ledger).open("a") as book:
            book.write(f"{ctx.key}\n")
        return "paid"

    runtime = Runtime(
        open_store(url),
        provider=ScriptedProvider([answers], loop=True),
        tools=[pay],
        plugins=[Approve([Rule.confirm("pay")])],
        lease_ms=LEASE_MS,
        seam=Deadly(seam, int(number)),
    )
    async with runtime:
        session = await runtime.session("s").open()
        if what in ("approve", "deny"):
            await session.answer(await asked(session), what)
        turn = asyncio.create_task(session.turn("Pay").id("t-1").run())
        if what == "ask":
            print("waits for", await asked(session), flush=True)
        print((await turn).text, flush=True)


async def asked(session: AgentSession) -> str:
    """The approval that the session waits for, once it does."""
    with session.mount.store.watch(session.session_id) as changes:
        while not (waiting := (await session.read_view()).approvals):
            await changes.changed()
    return waiting[0].id


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
