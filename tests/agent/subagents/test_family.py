"""A session and its subagents as a family: cancelling, approval, and questions that are answered from the root."""

from __future__ import annotations

import asyncio

from holdfast.agent.live_events import WaitingEvent
from holdfast.agent.machine.approval import Approval, Rule
from holdfast.agent.machine.queries import ApprovalQuery
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.session import AgentSession
from holdfast.core.events import PausedEvent
from holdfast.core.state import State
from holdfast.testing.patience import HANG_S
from holdfast.testing.provider import ScriptStep, reply, tool_call
from tests.agent.helpers import Home, add
from tests.agent.subagents.helpers import agent, cast, child_of, delegating, results


async def _until(session: AgentSession, session_id: str, state: State) -> None:
    """Wait until a session of the same store is in a state."""
    store = session.mount.store
    with store.watch() as changes:
        while True:
            page = await store.sessions()
            if any(row.session_id == session_id and row.summary.state is state for row in page.rows):
                return
            await changes.changed(timeout=0.5)


def middle(request: ModelRequest) -> ScriptStep:
    return delegating({"agent": "leaf", "task": "below"})(request)


async def test_stopping_a_turn_ends_all_its_descendants(any_home: Home) -> None:
    begun = asyncio.Event()

    async def leaf(request: ModelRequest) -> ScriptStep:
        begun.set()
        return reply("late", delay_s=HANG_S)

    model = cast({"middle": middle, "leaf": leaf}, delegating({"agent": "middle", "task": "x"}))  # type: ignore[dict-item]
    async with any_home.runtime(provider=model, agents=[agent("middle"), agent("leaf")]) as runtime:
        session = await runtime.session("chat").open()
        running = asyncio.create_task(session.turn("go").run())
        async with asyncio.timeout(HANG_S):
            await begun.wait()
            assert await session.stop("enough")
            stopped = (await running).stopped
            assert stopped is not None
            assert stopped.reason == "cancelled"
            for below in ("chat.q-2", "chat.q-2.q-2"):
                await _until(session, below, State.CANCELLED)


async def test_a_child_that_an_operator_cancels_is_a_result_for_its_parent(home: Home) -> None:
    begun = asyncio.Event()

    async def leaf(request: ModelRequest) -> ScriptStep:
        begun.set()
        return reply("late", delay_s=HANG_S)

    model = cast({"leaf": leaf}, delegating({"agent": "leaf", "task": "x"}))  # type: ignore[dict-item]
    async with home.runtime(provider=model, agents=[agent("leaf")]) as runtime:
        session = await runtime.session("chat").open()
        running = asyncio.create_task(session.turn("go").run())
        async with asyncio.timeout(HANG_S):
            await begun.wait()
            await session.mount.holdfast.cancel("chat.q-2", "not needed")
            result = await running
        assert result.is_success
        assert result.tool_calls[0].result == {"error": "not needed", "status": "cancelled", "session": "chat.q-2"}


def adds(request: ModelRequest) -> ScriptStep:
    got = results(request)
    return str(got[0]) if got else tool_call("add", a=2, b=3)


async def test_a_subagent_may_do_no_more_than_its_parent(home: Home) -> None:
    model = cast({"adder": adds}, delegating({"agent": "adder", "task": "add"}))
    async with home.runtime(provider=model, agents=[agent("adder")], tools=[add]) as runtime:
        session = await runtime.session("chat").approval(Approval(rules=[Rule.deny("add").because("no sums")])).open()
        result = await session.turn("go").run(wait=HANG_S)
        assert "no sums" in result.text


async def test_a_person_answers_the_question_of_a_grandchild_from_the_root(any_home: Home) -> None:
    model = cast({"middle": middle, "leaf": adds}, delegating({"agent": "middle", "task": "x"}))
    agents = [agent("middle"), agent("leaf")]
    async with any_home.runtime(provider=model, agents=agents, tools=[add]) as runtime:
        session = await runtime.session("chat").approval(Approval(rules=[Rule.confirm("add")])).open()
        running = asyncio.create_task(session.turn("go").run())
        async with asyncio.timeout(HANG_S):
            await _until(session, "chat.q-2.q-2", State.PAUSED)
            event = await session.mount.holdfast.resume("chat")
            while not isinstance(event, PausedEvent):
                event = await session.mount.holdfast.resume("chat")
            (asked,) = event.queries
            assert isinstance(asked, ApprovalQuery)
            assert asked.id == "q-2.q-2.q-2"
            await session.answer(asked.id, "approve")
            result = await running
        assert result.text == "5"
        assert (await child_of(session, "q-2.q-2")).state is State.COMPLETED


async def test_the_stream_of_the_root_announces_the_question_of_a_grandchild_once(any_home: Home) -> None:
    model = cast({"middle": middle, "leaf": adds}, delegating({"agent": "middle", "task": "x"}))
    agents = [agent("middle"), agent("leaf")]
    announced: list[str] = []
    async with any_home.runtime(provider=model, agents=agents, tools=[add]) as runtime:
        session = await runtime.session("chat").approval(Approval(rules=[Rule.confirm("add")])).open()
        async with asyncio.timeout(HANG_S):
            async for event in session.turn("go").stream():
                if isinstance(event, WaitingEvent):
                    announced += [query.id for query in event.queries]
                    await session.answer(announced[-1], "approve")
        assert (await session.read_view()).messages[-1].text == "5"
    assert announced == ["q-2.q-2.q-2"]


async def test_a_call_to_delegate_can_need_approval_itself(home: Home) -> None:
    model = cast({"leaf": lambda request: reply(request.messages[-1].text)}, delegating({"agent": "leaf", "task": "x"}))
    async with home.runtime(provider=model, agents=[agent("leaf")]) as runtime:
        session = await runtime.session("chat").approval(Approval(rules=[Rule.confirm("delegate")])).open()
        running = asyncio.create_task(session.turn("go").run())
        async with asyncio.timeout(HANG_S):
            with session.mount.engine.watch("chat") as changes:
                while not (waiting := (await session.read_view()).approvals):
                    await changes.changed()
            await session.answer(waiting[0].id, {"decision": "approve", "arguments": {"agent": "leaf", "task": "mine"}})
            result = await running
        assert result.tool_calls[0].arguments["task"] == "mine"
        assert result.tool_calls[0].result == "mine"
