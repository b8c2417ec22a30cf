"""Who serves an agent: runtimes that share a store leave alone what they cannot serve."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.agent.tools.tool import Tool
from holdfast.core.records import Entry
from holdfast.engine.patrol import PATROL_MS
from holdfast.store import Store
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider, ScriptStep, tool_call
from tests.agent.helpers import AT_ONCE, OBJECT, Home, grouped

LOOKS_S = 2.5 * PATROL_MS / 1000
"""Seconds in which every process has looked for orphans twice."""


def runtime_of(home: Home, provider_id: str, *script: ScriptStep, **options: Any) -> Runtime:
    """A runtime whose provider has an id of its own; an empty one for a runtime without any."""
    if not provider_id:
        return Runtime(home.store(), **grouped(options))
    provider = ScriptedProvider(script)
    provider.id = provider_id
    options.setdefault("retry", AT_ONCE)
    return Runtime(home.store(), provider=provider, model="m-1", **grouped(options))


class Hanging:
    """A step of a script that is under way until its call is cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self, request: ModelRequest) -> ScriptStep:
        self.begun.set()
        await asyncio.Event().wait()
        raise AssertionError


async def entries_of(store: Store, session_id: str = "s") -> list[Entry]:
    return [entry async for entry in store.journal(session_id)]


async def left_turn(home: Home, **options: Any) -> None:
    """A turn that its runtime, with the provider `A`, leaves under way when it is closed."""
    hanging = Hanging()
    async with runtime_of(home, "A", hanging, **options) as runtime:
        session = await runtime.session("s").open()
        turn = asyncio.create_task(session.turn("go").id("t-1").run())
        await soon(hanging.begun.wait())
        turn.cancel()


async def bystand(home: Home, provider_id: str, *script: ScriptStep, **options: Any) -> list[Entry]:
    """What another runtime, with a worker, writes while it is there for some looks."""
    async with runtime_of(home, provider_id, *script, **options) as runtime, runtime.work():
        before = await entries_of(runtime.mount.store)
        epoch = (await runtime.mount.store.session("s")).epoch
        await asyncio.sleep(LOOKS_S)
        assert (await runtime.mount.store.session("s")).epoch == epoch, "it has claimed the session"
        return (await entries_of(runtime.mount.store))[len(before) :]


async def test_a_runtime_with_another_provider_leaves_an_orphaned_turn_alone(shared_home: Home) -> None:
    await left_turn(shared_home)
    assert await bystand(shared_home, "B", "not mine") == []


async def test_a_runtime_without_a_provider_leaves_an_orphaned_turn_alone(shared_home: Home) -> None:
    await left_turn(shared_home)
    assert await bystand(shared_home, "") == []


async def test_a_turn_survives_the_restart_of_its_runtime_beside_another(shared_home: Home) -> None:
    async with runtime_of(shared_home, "B", "not mine"):
        await left_turn(shared_home)
        await asyncio.sleep(LOOKS_S)
        async with runtime_of(shared_home, "A", "Here I am.") as runtime:
            await until(lambda: _is_between_turns(runtime.mount.store))
            view = await (await runtime.session("s").open()).read_view()
    assert [message.text for message in view.messages] == ["go", "Here I am."]


async def _is_between_turns(store: Store) -> bool:
    return (await store.session("s")).summary.waiting_for == "input"


async def test_items_in_an_inbox_wait_for_a_worker_with_the_provider(shared_home: Home) -> None:
    async with runtime_of(shared_home, "A") as runtime:
        await (await runtime.session("s").open()).enqueue("go").id("i-1")
    assert await bystand(shared_home, "B", "not mine") == []
    async with runtime_of(shared_home, "A", "Mine.") as runtime, runtime.work():
        session = await runtime.session("s").open()
        await soon(session.wait_for("i-1"))
        assert (await session.read_view()).messages[-1].text == "Mine."


async def test_a_call_of_a_tool_waits_for_a_process_that_has_it(shared_home: Home) -> None:
    """The model is not told that there is no such tool by a process that does not have it."""
    is_running = asyncio.Event()

    async def work() -> str:
        """Work."""
        is_running.set()
        await asyncio.Event().wait()
        return "never"

    async def done() -> str:
        """Work."""
        return "worked"

    async with runtime_of(shared_home, "A", tool_call("work"), tools=[Tool.of(work, recovery="safe")]) as runtime:
        session = await runtime.session("s").open()
        turn = asyncio.create_task(session.turn("go").id("t-1").run())
        await soon(is_running.wait())
        turn.cancel()
    assert await bystand(shared_home, "A", "Then not.") == []
    tool = Tool.of(done, name="work", recovery="safe")
    async with runtime_of(shared_home, "A", "It is done.", tools=[tool]) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("go").id("t-1").run())
        assert (result.text, result.tool_calls[0].result) == ("It is done.", "worked")


async def test_any_process_tells_a_model_that_it_has_made_up_a_tool(shared_home: Home) -> None:
    async with runtime_of(shared_home, "A", tool_call("ask"), tools=[]) as runtime:
        runtime.tools.declare("ask", "Ask somebody.", OBJECT)
        session = await runtime.session("s").open()
        turn = asyncio.create_task(session.turn("go").id("t-1").run())
        await until(lambda: _calls_wait(session))
        turn.cancel()
    async with runtime_of(shared_home, "A", tool_call("bogus"), "So be it.") as runtime:
        session = await runtime.session("s").open()
        (query,) = (await runtime.mount.holdfast.session("s")).pending
        await runtime.mount.holdfast.feed("s", {query: "yes"}, wait=0)
        result = await soon(session.turn("go").id("t-1").run())
    assert [call.result if call.name == "ask" else call.result["code"] for call in result.tool_calls] == [
        "yes",
        "unknown_tool",
    ]


async def _calls_wait(session: Any) -> bool:
    known = await session.mount.holdfast.session("s")
    return any(pending.query.kind == "tool" for pending in known.pending.values())


async def test_a_tool_that_was_taken_away_here_is_told_to_the_model(home: Home) -> None:
    runtime = home.runtime(lambda request: _without(runtime, "work"), "So be it.")

    async def work() -> str:
        """Work."""
        return "worked"

    runtime.tools.add(work)
    async with runtime:
        result = await soon((await runtime.session("s").open()).turn("go").run())
    assert (result.text, result.tool_calls[0].result["code"]) == ("So be it.", "unknown_tool")


def _without(runtime: Runtime, name: str) -> ScriptStep:
    runtime.tools.remove(name)
    return tool_call(name)


async def test_an_answer_can_be_given_where_the_turn_cannot_go_on(shared_home: Home) -> None:
    async with runtime_of(shared_home, "A", tool_call("ask")) as runtime:
        runtime.tools.declare("ask", "Ask somebody.", OBJECT)
        session = await runtime.session("s").open()
        turn = asyncio.create_task(session.turn("go").id("t-1").run())
        await until(lambda: _calls_wait(session))
        turn.cancel()
    async with runtime_of(shared_home, "B", "not mine") as other:
        (query,) = (await other.mount.holdfast.session("s")).pending
        await other.mount.holdfast.feed("s", {query: "yes"}, wait=0)
        await asyncio.sleep(LOOKS_S)
        async with runtime_of(shared_home, "A", "Thanks.") as runtime:
            session = await runtime.session("s").open()
            assert (await soon(session.turn("go").id("t-1").run())).text == "Thanks."
