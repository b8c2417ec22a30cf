"""The processes of the crash tests of subagents: one session whose turn delegates twice, once two levels deep."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast import Runtime
from holdfast.agent.providers.provider import ModelRequest
from holdfast.store import open_store
from holdfast.testing import ScriptedProvider
from holdfast.testing.patience import HANG_S
from holdfast.testing.provider import ScriptedReply, reply, tool_call
from tests.agent.crash.child import TURN, Job, _run
from tests.agent.crash.services import LEASE_MS, USAGE, Model, Points, World, session_of
from tests.agent.subagents.helpers import agent, results

MODELS = {"": "m", "middle": "m-middle", "leaf": "m-leaf"}
"""Which model plays which role."""


class FamilyWorld(World):
    """A world with two subagents, of which one uses the other."""

    def runtime(self, url: str, **options: Any) -> Runtime:
        model = Model(self)
        model._scripted = ScriptedProvider([_said_to], loop=True)
        return Runtime(
            self.points.guard(open_store(url)),
            provider=model,
            model="m",
            agents=[agent("middle", model="m-middle"), agent("leaf", model="m-leaf")],
            lease_ms=LEASE_MS,
            seam=self.points,
            **options,
        )


def _said_to(request: ModelRequest) -> ScriptedReply:
    got = results(request)
    if request.system == "leaf":
        return reply(f"leaf {request.messages[0].text}", usage=USAGE)
    if got:
        return reply(" | ".join(map(str, got)), usage=USAGE)
    if request.system == "middle":
        return reply(tool_call("delegate", agent="leaf", task="of the middle"), usage=USAGE)
    calls = [tool_call("delegate", agent="middle", task="x"), tool_call("delegate", agent="leaf", task="of the root")]
    return reply(*calls, usage=USAGE)


async def _client(job: Job) -> None:
    world = FamilyWorld(job.directory, Points(job.trace, job.deadly))
    async with asyncio.timeout(HANG_S), world.runtime(job.url) as runtime:
        for session, text in job.inputs.items():
            session_of.set(session)
            result = await (await runtime.session(session).open()).turn(text).id(TURN).run()
            world.ledger.note("told", session, result=msgspec.to_builtins(result))


def family_job(job: Job) -> None:
    _run(job, _client(job))
