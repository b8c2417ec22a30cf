"""Sessions that are opened again: what is recorded holds for every process, and opening needs no provider."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.agent.errors import ProviderUnavailableError, ProviderUnconfiguredError
from holdfast.agent.machine.policy import PolicyChange, PolicyState, change_between
from holdfast.agent.machine.prompt import Contribution, layer_of
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.core.records import type_of
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import tool_call
from tests.agent.helpers import OBJECT, Home, journal, said
from tests.agent.test_configure import BASE, requests


def changes_in(entries: Any) -> int:
    return sum(type_of(entry.record) == "configured" for entry in entries)


# --- what is recorded holds -----------------------------------------------------------------------------


async def test_a_session_that_is_opened_again_is_run_as_it_is_recorded(home: Home) -> None:
    async with home.runtime("1", instructions="You are a clerk.") as runtime:
        builder = runtime.session("s").spec(model="big", limits={"iterations": 3}, generation={"seed": 1})
        session = await builder.prompt("Be brief.").prompt(layer_of(Contribution("context", "It is Monday."))).open()
        await soon(session.turn("one").run())
        before, (first,) = session.policy, requests(runtime)
    async with home.runtime("2", model="m-2", instructions="You are a cook.", limits={"iterations": 9}) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("two").run())
        (second,) = requests(runtime)
        assert (second.model, second.system, second.params) == (first.model, first.system, first.params)
        assert session.policy == before
        assert not changes_in(await journal(session))


class Polite(Plugin):
    """Adds to the instructions and to every input."""

    id = "polite"

    def instructions(self) -> str:
        return "Be polite."

    def turn_text(self, value: Any) -> str:
        return "Please."


async def test_a_plugin_that_a_session_is_recorded_with_is_used_when_it_is_opened_without(home: Home) -> None:
    async with home.runtime("1") as runtime:
        session = await runtime.session("s").prompt("Be brief.").plugin(Polite()).open()
        await soon(session.turn("one").run())
    async with home.runtime("2", "3") as runtime:
        runtime.plugins.add(Polite())
        for builder in (runtime.session("s"), runtime.session("s").plugin(Polite())):
            session = await builder.open()
            await soon(session.turn("two").run())
            request = requests(runtime)[-1]
            assert request.system == "Be brief.\n\nBe polite."
            assert request.messages[-1].text == "twoPlease."
        assert not changes_in(await journal(session))


async def test_settings_that_are_named_when_a_session_is_opened_are_recorded_with_its_next_turn(home: Home) -> None:
    async with home.runtime(*"1234", instructions="Be kind.") as runtime:
        one = await runtime.session("s").spec(limits={"iterations": 3}).open()
        before = await journal(one)
        two = await runtime.session("s").spec(model="big").prompt("In verse.").open()
        assert (two.policy.model, two.policy.limits.iterations) == ("big", 3)
        assert await journal(one) == before, "opening alone changes nothing"
        for handle in (one, two, one):
            await soon(handle.turn("Hi").run())
        assert [(request.model, request.system) for request in requests(runtime)] == [
            ("m-1", "Be kind."),
            ("big", "Be kind.\n\nIn verse."),
            ("big", "Be kind.\n\nIn verse."),
        ]
        await one.configure(model="small")
        await soon(two.turn("Hi").run())
        assert requests(runtime)[-1].model == "small", "what a handle was opened with counts once"


async def test_settings_that_are_named_when_a_session_is_opened_count_for_its_items_too(home: Home) -> None:
    async with home.runtime("1") as runtime:
        await runtime.session("s").open()
        session = await runtime.session("s").spec(model="big").open()
        await session.enqueue("Hi")
        await soon((await runtime.session("s").open()).queued_turn().run())
        assert [request.model for request in requests(runtime)] == ["big"]


async def test_what_one_process_configures_the_next_turn_of_another_follows(shared_home: Home) -> None:
    async with shared_home.runtime("1") as one, shared_home.runtime("2", "3") as two:
        first, second = await one.session("s").open(), await two.session("s").open()
        await soon(first.configure(model="big", limits={"iterations": 3}))
        await soon(second.configure(limits={"tokens": 500}, instructions="Be kind."))
        await soon(second.turn("Hi").run())
        (request,) = requests(two)
        assert (request.model, request.system) == ("big", "Be kind.")
        policy = (await first.read_view()).policy
        assert (policy.limits.iterations, policy.limits.tokens) == (3, 500)
        await soon(first.configure(model="small"))
        await soon(second.turn("Hi").run())
        assert requests(two)[-1].model == "small"


def test_a_change_is_what_leads_from_one_policy_to_the_other() -> None:
    state = PolicyState(BASE)
    state.configure(PolicyChange(model="big"), in_turn=True)
    assert (state.current, state.next.model) == (BASE, "big")
    state.configure(PolicyChange(limits={"iterations": 7}, generation={"seed": None}), in_turn=True)
    state.turn_over()
    assert change_between(BASE, state.current) == PolicyChange(
        model="big", limits={"iterations": 7}, generation={"seed": None}
    )
    assert change_between(state.current, state.next) is None


# --- who has no provider --------------------------------------------------------------------------------


async def test_without_any_provider_a_session_can_be_opened_and_runs_no_turns(home: Home) -> None:
    async with Runtime(home.store()) as runtime:
        for opening in (runtime.session("s").open, runtime.session("s").open_fresh):
            session = await opening()
            for running in (session.turn("Hi").run, session.queued_turn().run):
                with pytest.raises(ProviderUnconfiguredError) as caught:
                    await soon(running())
                assert caught.value.session_id == "s"
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        assert (await soon(session.turn("Hi").run())).text == "Hello"
        assert (await session.read_view()).policy.provider == "scripted"


async def test_what_a_process_without_a_provider_begins_and_sends_is_worked_by_one_that_has_one(
    shared_home: Home,
) -> None:
    async with Runtime(shared_home.store()) as front:
        session = await front.session("s").spec(limits={"iterations": 3}).open()
        await session.enqueue("Hi").id("i-1")
        async with shared_home.runtime("Hello") as back, back.work():
            outcome = await soon(session.wait_for("i-1"))
            assert outcome.result is not None
            assert (outcome.result.text, [request.model for request in requests(back)]) == ("Hello", ["m-1"])


async def test_a_process_without_the_provider_can_look_enqueue_and_cancel(shared_home: Home) -> None:
    owner, other = shared_home.runtime(tool_call("ask_ann")), Runtime(shared_home.store())
    for runtime in (owner, other):
        runtime.tools.declare("ask_ann", "Ask Ann.", OBJECT)
    async with owner, other:
        session = await owner.session("s").open()
        work = asyncio.create_task(session.turn("one").run())
        remote = await soon(other.session("s").open())
        await until(lambda: _waits(remote))
        await soon(remote.enqueue("two").id("i-1").send())
        assert (await soon(remote.cancel(item="i-1"))).state == "withdrawn"
        assert ("user", "one") in await said(remote)
        assert (await soon(remote.cancel())).state == "stopped"
        assert (await soon(work)).stopped is not None
        with pytest.raises(ProviderUnavailableError) as caught:
            await soon(remote.turn("three").run())
        assert (caught.value.provider, caught.value.session_id) == ("scripted", "s")


async def _waits(session: AgentSession) -> bool:
    return any(query.kind == "tool" for query in (await session.conversation(fresh=True)).asked.values())


async def test_a_process_can_configure_what_another_one_runs(shared_home: Home) -> None:
    """Changing a session needs neither its provider nor its lease."""
    gate = asyncio.Event()

    async def slow(_: Any) -> str:
        await gate.wait()
        return "1"

    async with shared_home.runtime(slow, "2") as owner, Runtime(shared_home.store()) as other:
        session = await owner.session("s").open()
        work = asyncio.create_task(session.turn("one").run())
        await until(lambda: requests(owner))
        remote = await soon(other.session("s").open())
        await soon(remote.configure(model="big"))
        with pytest.raises(ProviderUnavailableError):
            await remote.configure(provider="elsewhere")
        gate.set()
        await soon(work)
        await soon(session.turn("two").run())
        assert [request.model for request in requests(owner)] == ["m-1", "big"]
