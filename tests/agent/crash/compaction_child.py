"""The processes of the crash tests of summing up and of values: one session, one turn, and where it dies."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast import Runtime, Spec
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.summary_prompt import SUMMARY_SYSTEM
from holdfast.agent.tools import Tool
from holdfast.store import open_store
from holdfast.testing import ScriptedProvider, reply, tool_call
from holdfast.testing.patience import HANG_S
from holdfast.testing.provider import ScriptedReply
from tests.agent.crash.child import TURN, Job, _run
from tests.agent.crash.services import LEASE_MS, USAGE, Model, Points, World, session_of

WINDOW = 300
"""Tokens of the model's window: one result of the tool is too much for it."""

NOTES = "The pages were read."

WANTED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class SummingWorld(World):
    """A world with a small model, and a tool that has much to say."""

    def runtime(self, url: str, **options: Any) -> Runtime:
        model = Model(self)
        model._scripted = ScriptedProvider([_said_to], loop=True)
        return Runtime(
            self.points.guard(open_store(url)),
            provider=model,
            model="m",
            tools=[Tool.of(read, recovery="safe")],
            spec=Spec(window=WINDOW, compaction={"keep": 40}),
            lease_ms=LEASE_MS,
            seam=self.points,
            **options,
        )


async def read() -> str:
    """Read a page."""
    return "word " * 200


def _said_to(request: ModelRequest) -> ScriptedReply:
    if request.system == SUMMARY_SYSTEM:
        return reply(NOTES, usage=USAGE)
    if any(tool.name == "finish" for tool in request.tools):
        return reply(tool_call("finish", n=3), usage=USAGE)
    if NOTES in request.messages[0].text:
        return reply("It is done.", usage=USAGE)
    return reply(tool_call("read"), usage=USAGE)


async def _client(job: Job) -> None:
    world = SummingWorld(job.directory, Points(job.trace, job.deadly))
    async with asyncio.timeout(HANG_S), world.runtime(job.url) as runtime:
        for session, text in job.inputs.items():
            session_of.set(session)
            turn = (await runtime.session(session).open()).turn(text).id(TURN)
            result = await (turn.output(WANTED) if session == "value" else turn).run()
            world.ledger.note("told", session, result=msgspec.to_builtins(result))


def summing_job(job: Job) -> None:
    _run(job, _client(job))
