"""What lies outside the sessions of the crash tests: a model, and services behind tools. They remember what they see.

All that they see is a line of the ledger before it is answered, so what a killed process has done can be counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from holdfast import NotDone, Runtime, ToolContext, Usage
from holdfast.agent.providers.provider import ModelReply, ModelRequest, StreamItem
from holdfast.agent.tools import Tool
from holdfast.engine.drivers import Attempt
from holdfast.store import open_store
from holdfast.testing import ScriptedProvider, reply, stream, tool_call
from holdfast.testing.crash.seams import Seam, SeamObserver
from holdfast.testing.provider import ScriptedReply

LEASE_MS = 1_000
"""Milliseconds an owner holds a session: longer than a machine under load stalls, short enough to wait for."""

RECOVERIES = ("never", "safe", "idempotent", "confirm")
"""What tools want done about a call whose outcome is unknown; also their names, and those of the sessions that call
one of them."""

DECLARED = "approve"
"""A tool that nothing runs: somebody answers its calls."""

USAGE = Usage(prompt_tokens=100, completion_tokens=10)
"""Of every call of the model."""

session_of: ContextVar[str] = ContextVar("session", default="")
"""The session on whose behalf something is done."""


class Ledger:
    """What the world has seen, line by line."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, session: str, **more: Any) -> None:
        os.write(self._file, json.dumps({"what": what, "session": session, **more}).encode() + b"\n")


def read_ledger(directory: Path) -> list[dict[str, Any]]:
    path = directory / "ledger"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Points(SeamObserver):
    """The seams of several sessions. Each that reaches its deadly ones stays there; with the last, the process dies."""

    def __init__(self, trace: Path, deadly: Sequence[Seam] = ()) -> None:
        super().__init__(trace)
        self._left = set(deadly)

    @property
    def step(self) -> str:
        return session_of.get()

    @step.setter
    def step(self, step: str) -> None:
        session_of.set(step)

    async def __call__(self, name: str) -> None:
        await super().__call__(name)
        reached = Seam(self.step, name, self._counts[self.step, name])
        if reached in self._left:
            self._left.remove(reached)
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.Event().wait()


class World:
    """The services of one process; what they remember is shared by all."""

    def __init__(self, directory: Path, points: Points) -> None:
        self.ledger = Ledger(directory)
        self.points = points
        self._directory = directory

    def runtime(self, url: str, **options: Any) -> Runtime:
        """A runtime on these services."""
        store = self.points.guard(open_store(url))
        runtime = Runtime(
            store, provider=Model(self), model="m", tools=self._tools(), lease_ms=LEASE_MS, seam=self.points, **options
        )
        runtime.tools.declare(DECLARED, "Asks somebody.", {"type": "object"})
        return runtime

    def _tools(self) -> list[Tool]:
        policies: dict[str, Any] = {name: {"recovery": name} for name in RECOVERIES}
        policies["confirm"]["probe"] = self._probe
        return [Tool.of(self._effect(name), name=name, **policies[name]) for name in RECOVERIES]

    def _effect(self, tool: str) -> Callable[..., Awaitable[str]]:
        async def effect(ctx: ToolContext, part: str = "") -> str:
            seen = {"call": ctx.call_id, "key": ctx.key, "attempt": ctx.attempt}
            self.ledger.note("called", ctx.session_id, **seen)
            await self.points(f"tool called{part}")
            if not (tool == "idempotent" and self._is_done(ctx.key)):
                self.ledger.note("done", ctx.session_id, **seen)
            await self.points(f"tool done{part}")
            return "done"

        return effect

    def _probe(self, attempt: Attempt) -> str | NotDone:
        return "done" if self._is_done(attempt.key) else NotDone()

    def _is_done(self, key: str) -> bool:
        return any(line["what"] == "done" and line["key"] == key for line in read_ledger(self._directory))


class Model:
    """Calls the tools that the user names, and then says that it is done; in pieces, with a point between any two."""

    id = "scripted"

    def __init__(self, world: World) -> None:
        self._world = world
        self._scripted = ScriptedProvider([_said_to], loop=True)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        session, _, asked = request.key.partition("/")
        self._world.ledger.note("asked", session, query=asked, messages=len(request.messages))
        await self._world.points("model asked")
        is_first = True
        async for item in self._scripted.stream(request):
            if isinstance(item, ModelReply):
                await self._world.points("model answered")
            yield item
            if is_first:
                is_first = False
                await self._world.points("model mid-stream")


def _said_to(request: ModelRequest) -> ScriptedReply:
    last = request.messages[-1]
    if last.role == "tool":
        return reply(stream("It is ", "done."), usage=USAGE)
    names = last.text.split()[1:]
    calls = [tool_call(name, part=f" {number}" if len(names) > 1 else "") for number, name in enumerate(names)]
    return reply(stream("Let me ", "see."), *calls, usage=USAGE)
