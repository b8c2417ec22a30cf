"""The processes of the soak: workers that are killed, and one that sends items and cancels them.

`python -m tests.agent.soak.child worker URL SEED` says `loaded`, waits for a line, and works until it is stopped or
killed. `python -m tests.agent.soak.child sender URL SEED SECONDS SESSIONS LEDGER` opens the sessions, says `ready`,
waits for a line, and writes down every reply: each line of the ledger was acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.agent.machine.inbox import Delivery, Slot
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.tools import Tool
from holdfast.engine.upkeep import Upkeep
from holdfast.store import open_store
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply, tool_call

LEASE_MS = 3_000
"""Short enough that a worker which nobody knows to be dead is replaced within the run."""

SENDERS = 8
"""Items and cancellations under way at once."""

PAUSE_S = 0.04
"""Seconds that a sender waits at most before the next one."""

DELAY_S = 0.03
"""Seconds that the model, or the tool, takes at most."""

CANCELS = 0.2
"""The share of cancellations among what is sent."""


def say(line: str) -> None:
    print(line, flush=True)


async def next_line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


# --- workers -----------------------------------------------------------------------------------------


async def worker(url: str, seed: str) -> None:
    chance = random.Random(seed)

    def answer(request: ModelRequest) -> ScriptStep:
        wants_tool = request.messages[-1].role == "user" and chance.random() < 0.2
        said = tool_call("look") if wants_tool else f"to {request.messages[-1].text[:20]}"
        return reply(said, delay_s=chance.uniform(0, DELAY_S))

    async def look() -> str:
        """Look."""
        await asyncio.sleep(chance.uniform(0, DELAY_S))
        return "seen"

    say("loaded")
    if not await next_line():
        return
    tools = [Tool.of(look, recovery="safe")]
    provider = ScriptedProvider([answer], loop=True)
    async with Runtime(open_store(url), provider=provider, model="m", tools=tools, lease_ms=LEASE_MS) as runtime:
        working = runtime.work()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.stop)
        say(runtime.mount.holdfast._engine.owner.name)
        await working.run()
    say(f"begun {working.begun}")


# --- the sender --------------------------------------------------------------------------------------


class Sender:
    """Sends and cancels, and writes down what it was told."""

    def __init__(self, sessions: list[AgentSession], seed: str, ledger: Path) -> None:
        self._sessions = sessions
        self._chance = random.Random(seed)
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._recent: list[tuple[AgentSession, str]] = []
        self._sent = 0

    def _note(self, what: str, **more: Any) -> None:
        os.write(self._ledger, json.dumps({"what": what, **more}).encode() + b"\n")

    async def run(self, until: float) -> None:
        while time.monotonic() < until:
            if self._recent and self._chance.random() < CANCELS:
                await self._cancel()
            else:
                await self._send()
            await asyncio.sleep(self._chance.uniform(0, PAUSE_S))

    async def _send(self) -> None:
        session = self._chance.choice(self._sessions)
        self._sent += 1
        item_id = f"i-{self._sent}"
        delivery: Delivery = self._chance.choice(["after_turn", "after_turn", "boundary"])
        slot: Slot = self._chance.choice(["exclusive", "exclusive", "join"])
        receipt = await session.enqueue(item_id).id(item_id).delivery(delivery).slot(slot)
        self._note("accepted", session=session.session_id, item=receipt.item_id)
        self._recent = [*self._recent[-200:], (session, item_id)]

    async def _cancel(self) -> None:
        session, item = self._chance.choice(self._recent)
        self._sent += 1
        by = f"c-{self._sent}"
        whole_turn = self._chance.random() < 0.3
        receipt = await session.cancel(item=None if whole_turn else item, by=by)
        self._note(
            "cancelled", session=session.session_id, item=receipt.item, turn=receipt.turn, state=receipt.state, by=by
        )


async def sender(url: str, seed: str, seconds: str, count: str, ledger: str) -> None:
    provider = ScriptedProvider([])
    options: dict[str, Any] = {"provider": provider, "model": "m", "lease_ms": LEASE_MS, "upkeep": Upkeep(on=False)}
    async with Runtime(open_store(url), **options) as runtime:
        names = [f"s-{number}" for number in range(int(count))]
        sessions = [await runtime.session(name).open() for name in names]
        say("ready")
        if not await next_line():
            return
        sending = Sender(sessions, seed, Path(ledger))
        until = time.monotonic() + float(seconds)
        await asyncio.gather(*(sending.run(until) for _ in range(SENDERS)))
    say("done")


if __name__ == "__main__":
    _, part, *arguments = sys.argv
    asyncio.run(worker(*arguments) if part == "worker" else sender(*arguments))
