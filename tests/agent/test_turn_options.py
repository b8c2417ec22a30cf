"""What a caller says for one turn alone, or for one drain: model, provider, limits, a cancel token, items and names."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.agent.errors import ProviderUnavailableError, TurnConflictError
from holdfast.agent.machine.prompt import PromptLayer
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.providers.provider import ModelRequest
from holdfast.testing.patience import HANG_S
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply, tool_call
from tests.agent.helpers import Home, add


async def test_a_turn_may_have_another_model_and_the_next_one_has_the_sessions_own(home: Home) -> None:
    model = ScriptedProvider(["one", "two", "three"])
    async with home.runtime(provider=model) as runtime:
        session = await runtime.session("chat").open()
        await session.turn("a").model("m-9").spec(generation={"temperature": 0.5}).run(wait=HANG_S)
        await session.turn("b").run(wait=HANG_S)
        assert (await session.read_view()).policy.model == "m-1"
    async with home.runtime(provider=model) as runtime:  # what was recorded is read again
        await (await runtime.session("chat").open()).turn("c").run(wait=HANG_S)
    assert [request.model for request in model.requests] == ["m-9", "m-1", "m-1"]
    assert [request.params for request in model.requests] == [{"temperature": 0.5}, {}, {}]


async def test_a_turn_may_have_another_provider(home: Home) -> None:
    other = ScriptedProvider(["from the other"], id="other")
    async with home.runtime("from the own") as runtime:
        session = await runtime.session("chat").open()
        assert (await session.turn("a").provider(other, "o-1").run(wait=HANG_S)).text == "from the other"
        assert (await session.turn("b").run(wait=HANG_S)).text == "from the own"
        with pytest.raises(ProviderUnavailableError):
            await session.turn("c").spec(provider="nobody").run(wait=HANG_S)
    assert other.requests[0].model == "o-1"


async def test_the_same_turn_under_another_spec_is_a_conflict(home: Home) -> None:
    async with home.runtime("one") as runtime:
        session = await runtime.session("chat").open()
        await session.turn("a").id("t").model("m-9").run(wait=HANG_S)
        assert (await session.turn("a").id("t").model("m-9").run(wait=HANG_S)).receipt.replayed
        with pytest.raises(TurnConflictError):
            await session.turn("a").id("t").run(wait=HANG_S)


async def test_what_is_configured_during_such_a_turn_is_for_the_next_one(home: Home) -> None:
    begun = asyncio.Event()
    go = asyncio.Event()

    async def slow(request: ModelRequest) -> ScriptStep:
        begun.set()
        await go.wait()
        return "one"

    model = ScriptedProvider([slow, "two"])
    async with home.runtime(provider=model) as runtime:
        session = await runtime.session("chat").open()
        running = asyncio.create_task(session.turn("a").model("m-9").run(wait=HANG_S))
        await asyncio.wait_for(begun.wait(), HANG_S)
        await session.configure(model="m-2")
        go.set()
        await running
        await session.turn("b").run(wait=HANG_S)
    assert [request.model for request in model.requests] == ["m-9", "m-2"]


async def test_a_token_that_is_set_before_ends_the_turn_before_a_model_is_asked(home: Home) -> None:
    model = ScriptedProvider(["never"])
    async with home.runtime(provider=model) as runtime:
        session = await runtime.session("chat").open()
        token = asyncio.Event()
        token.set()
        stopped = (await session.turn("a").cancel_on(token).run(wait=HANG_S)).stopped
        assert stopped is not None
        assert stopped.reason == "cancelled"
    assert model.requests == []


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_a_token_stops_a_turn_in_the_middle_and_a_later_one_changes_nothing(home: Home, where: str) -> None:
    token = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        token.set()
        await asyncio.sleep(HANG_S)
        return "late"

    async def asked(request: ModelRequest) -> ScriptStep:
        if where == "tool":
            return tool_call("wait")
        token.set()
        return reply("late", delay_s=HANG_S)

    async with home.runtime(asked, "fine", tools=[wait]) as runtime:
        session = await runtime.session("chat").open()
        stopped = (await session.turn("a").cancel_on(token).run(wait=HANG_S)).stopped
        assert stopped is not None
        assert stopped.reason == "cancelled"
        after = asyncio.Event()
        result = await session.turn("b").cancel_on(after).run(wait=HANG_S)
        after.set()
        assert result.text == "fine"


async def test_configure_takes_a_prompt_layer(home: Home) -> None:
    model = ScriptedProvider(["one", "two"])
    async with home.runtime(provider=model, instructions="Base.") as runtime:
        session = await runtime.session("chat").open()
        policy = await session.configure(prompt="Be brief.")
        assert len(policy.prompt) == 1
        assert isinstance(policy.prompt[0], PromptLayer)
        await session.turn("a").run(wait=HANG_S)
    assert "Base." in model.requests[0].system
    assert "Be brief." in model.requests[0].system


async def test_a_drain_takes_the_items_that_it_names_and_can_be_run_again(home: Home) -> None:
    async with home.runtime("one", "two") as runtime:
        session = await runtime.session("chat").open()
        for item in ("i-1", "i-2", "i-3"):
            await session.enqueue(item).id(item)
        (first,) = await session.queued_turn(batch_ids=["i-2"], drain_id="d").run(wait=HANG_S)
        assert (first.turn, first.messages[0].text) == ("d-1", "i-2")
        (again,) = await session.queued_turn(batch_ids=["i-2"], drain_id="d").run(wait=HANG_S)
        assert again.receipt.replayed
        assert [item.id for item in await session.queued_work()] == ["i-1", "i-3"]


async def test_the_tools_of_a_session_are_observed(home: Home) -> None:
    async with home.runtime("one", tools=[add]) as runtime:
        session = await runtime.session("chat").open()
        state = await session.observe().tool_state()
        assert state is not None
        assert state.names == ["add"]
        (manifest,) = await session.observe().active_tool_manifests()
        assert manifest["name"] == "add"
        assert "a" in manifest["parameters"]["properties"]
        assert await runtime.observe("chat").tool_state() is None


class Reminder(Plugin):
    """Says something in the middle of a turn."""

    id = "reminder"

    async def after_tool(self, call, result):  # type: ignore[no-untyped-def]
        await self.session.services.inject("mind the units", id=f"note-{call.query}")


async def test_a_plugin_injects_input_into_the_running_turn(home: Home) -> None:
    model = ScriptedProvider([tool_call("add", a=1, b=1), "ok"])
    async with home.runtime(provider=model, tools=[add]) as runtime:
        session = await runtime.session("chat").plugin(Reminder()).open()
        result = await session.turn("go").run(wait=HANG_S)
        assert result.text == "ok"
    assert [message.text for message in model.requests[1].messages if message.role == "user"] == [
        "go",
        "mind the units",
    ]
