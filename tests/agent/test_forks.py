"""Forks of agent sessions: at a turn, at what was said, in the middle of a turn; edited, and compared."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.agent.runtime_options import ModelOptions
from holdfast.agent.session import AgentSession
from holdfast.agent.sync import SyncRuntime
from holdfast.agent.tools.function import tool
from holdfast.engine.errors import ForkPointError
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider, ScriptStep, tool_call
from tests.agent.helpers import AT_ONCE, Home, add, said

SUM: list[ScriptStep] = [tool_call("add", a=2, b=40), "It is 42."]


async def nodes(session: AgentSession, role: str) -> list[str]:
    """The ids of the messages of a role."""
    path = (await session.conversation()).path()
    return [node.id for node in path if getattr(node.payload, "role", None) == role]


async def test_a_turn_can_be_said_in_other_words(home: Home) -> None:
    async with home.runtime("Hi.", "Because.", "For that reason.") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("hello").run())
        await soon(session.turn("why?").id("t-why").run())
        fork = await session.fork(turn="t-why", id="f")
        assert await said(fork) == [("user", "hello"), ("assistant", "Hi.")]
        await soon(fork.turn("what for?").run())
        assert (await said(fork))[2:] == [("user", "what for?"), ("assistant", "For that reason.")]
        assert (await said(session))[2:] == [("user", "why?"), ("assistant", "Because.")]
        found = await session.mount.holdfast.compare("s", "f")
        assert found.difference == "the input is another"


async def test_a_message_of_the_user_is_forked_before_it_and_one_of_the_model_after_it(home: Home) -> None:
    async with home.runtime("One.", "Two.") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("first").run())
        await soon(session.turn("second").run())
        users, replies = await nodes(session, "user"), await nodes(session, "assistant")
        assert await said(await session.fork(node=users[0])) == []
        assert await said(await session.fork(node=users[1])) == [("user", "first"), ("assistant", "One.")]
        assert await said(await session.fork(node=replies[0])) == [("user", "first"), ("assistant", "One.")]
        assert len(await said(await session.fork(node=replies[1]))) == 4


async def test_after_a_reply_that_calls_tools_the_fork_calls_them_itself(home: Home) -> None:
    keys: list[str] = []

    @tool
    async def note(n: int) -> str:
        """Note a number."""
        keys.append(f"noted {n}")
        return "noted"

    script: list[ScriptStep] = [tool_call("note", n=1), "Done.", "Done in the fork."]
    async with home.runtime(*script, tools=[note]) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("go").id("t").run())
        [first, _] = await nodes(session, "assistant")
        fork = await session.fork(node=first, id="f")
        result = await soon(fork.turn("go").id("t").run())  # the turn that is under way there
        assert result.text == "Done in the fork."
        assert keys == ["noted 1", "noted 1"]
        assert [role for role, _ in await said(fork)] == ["user", "assistant", "tool", "assistant"]


async def test_after_the_result_of_a_tool_the_model_is_asked_again_and_the_tool_is_not(home: Home) -> None:
    async with home.runtime(*SUM, "Forty-two.", tools=[add]) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("sum").id("t").run())
        [node] = await nodes(session, "tool")
        fork = await session.fork(node=node)
        result = await soon(fork.turn("sum").id("t").run())
        assert result.text == "Forty-two."


async def test_a_turn_that_is_under_way_is_asked_anew_in_a_fork(home: Home) -> None:
    may_answer = asyncio.Event()
    asked: list[str | None] = []

    async def answer(request: object) -> str:
        asked.append(getattr(request, "key", None))
        if len(asked) == 2:
            may_answer.set()
        await may_answer.wait()
        return "late"

    async with home.runtime(answer, answer) as runtime:
        session = await runtime.session("s").open()
        running = asyncio.create_task(session.turn("hello").id("t").run())
        await until(lambda: asked)
        fork = await session.fork(id="f")
        assert (await soon(fork.turn("hello").id("t").run())).text == "late"
        assert (await soon(running)).text == "late"
        assert asked == ["s/q-1", "f/q-1"]


async def test_a_fork_is_under_the_policy_of_the_handle(home: Home) -> None:
    async with home.runtime("One.", "Two.") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("first").run())
        await session.configure(model="m-2")
        fork = await session.fork()
        assert fork.policy.model == "m-2"
        await soon(fork.turn("second").run())
        recorded = (await fork.conversation()).policy
        assert recorded is not None
        assert recorded.model == "m-2"


async def test_a_fork_can_be_opened_by_its_id_in_another_process(shared_home: Home) -> None:
    async with shared_home.runtime("One.") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("first").run())
        await session.fork(id="f")
        await session.mount.holdfast.delete("s")
    async with shared_home.runtime("Two.") as runtime:
        fork = await runtime.session("f").open()
        await soon(fork.turn("second").run())
        assert await said(fork) == [
            ("user", "first"),
            ("assistant", "One."),
            ("user", "second"),
            ("assistant", "Two."),
        ]


async def test_a_node_that_is_not_there_is_refused_with_those_near_it(home: Home) -> None:
    async with home.runtime("One.") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("first").id("t-1").run())
        with pytest.raises(ForkPointError, match="node 'n-99'") as refusal:
            await session.fork(node="n-99")
        assert refusal.value.near == list((await session.conversation()).nodes)
        with pytest.raises(ForkPointError, match="near it are t-1"):
            await session.fork(turn="t-2")


def test_the_runtime_without_await_forks_too() -> None:
    script = ScriptedProvider(["One.", "Two."])
    with SyncRuntime("memory:", provider=script, model="m-1", models=ModelOptions(retry=AT_ONCE)) as runtime:
        session = runtime.session("s").open()
        session.turn("first").id("t").run()
        fork = session.fork(turn="t", id="f")
        assert fork.turn("other").run().text == "Two."
        assert fork.session_id == "f"
