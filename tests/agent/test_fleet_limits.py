"""Workers under the limits of a fleet: priorities, and turns that only wait."""

from __future__ import annotations

import asyncio

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.engine.permits import MIN_CROWD
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptStep
from tests.agent.helpers import Home


class Model:
    """Answers once it is let to; keeps the texts that it was asked, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def __call__(self, request: ModelRequest) -> ScriptStep:
        self.asked.append(request.messages[-1].text)
        await self.may_answer.wait()
        return "ok"


async def labelled(runtime: Runtime, name: str, *labels: str) -> AgentSession:
    session = await runtime.session(name).open()
    if labels:
        await runtime.mount.holdfast.label(name, labels=labels)
    return session


async def test_a_worker_with_full_hands_begins_the_highest_priority_next(home: Home) -> None:
    model = Model()
    async with home.runtime(*[model] * 8) as runtime:
        first = await labelled(runtime, "first")
        named = [("low", "priority=-2"), ("usual",), ("high", "priority=3"), ("higher", "priority=7")]
        others = [await labelled(runtime, *each) for each in named]
        async with runtime.work(turns=1, drain_s=0.1):
            await first.enqueue("first").id("i")
            await until(lambda: model.asked)
            for session in others:
                await session.enqueue(session.session_id).id("i")
            model.may_answer.set()
            for session in others:
                await soon(session.wait_for("i"))
        assert model.asked == ["first", "higher", "high", "usual", "low"]


async def test_turns_that_wait_for_a_limit_take_no_room_and_no_more_of_them_begin(home: Home) -> None:
    model = Model()
    crowd = MIN_CROWD + 4
    async with home.runtime(*[model] * (crowd + 4)) as runtime:
        await runtime.mount.holdfast.limit(["key:customer=1"])
        acme = [await labelled(runtime, f"a-{number}", "customer=acme") for number in range(crowd)]
        bolt = await labelled(runtime, "b", "customer=bolt")
        async with runtime.work(turns=2, drain_s=0.1) as worker:
            await asyncio.gather(*(session.enqueue("acme").id("i") for session in acme))
            await until(lambda: len(runtime.mount.engine.owner.permits.waiting) == MIN_CROWD)
            await bolt.enqueue("bolt").id("i")
            await until(lambda: "bolt" in model.asked)
            assert model.asked == ["acme", "bolt"]
            assert len(worker.active) == MIN_CROWD + 2
            model.may_answer.set()
            for session in (*acme, bolt):
                await soon(session.wait_for("i"))
        assert len(model.asked) == crowd + 1


async def test_calls_of_a_model_are_limited_by_its_name(home: Home) -> None:
    model = Model()
    async with home.runtime(*[model] * 3) as runtime:
        await runtime.mount.holdfast.limit(["model:m-1=1"])
        sessions = [await labelled(runtime, name) for name in "ab"]
        async with runtime.work(turns=2, drain_s=0.1):
            for session in sessions:
                await session.enqueue("x").id("i")
            await until(lambda: runtime.mount.engine.owner.permits.waiting)
            assert len(model.asked) == 1
            (report,) = await runtime.mount.holdfast.limits()
            assert report.counters[0].counter == "model:m-1"
            model.may_answer.set()
            for session in sessions:
                await soon(session.wait_for("i"))
