"""How turns are run: what a spec comes to, what configuring changes and when, and which provider a session has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.agent.errors import ProviderMismatchError, ProviderUnavailableError
from holdfast.agent.machine.messages import AgentMessage, TextBlock
from holdfast.agent.machine.policy import Policy, Spec, limits_from, resolve
from holdfast.agent.machine.prompt import layer_of
from holdfast.agent.machine.records import ConfiguredRecord
from holdfast.agent.machine.turn_limits import Limits
from holdfast.agent.runtime import Runtime
from holdfast.agent.session_builder import AgentState
from holdfast.core.errors import InvalidValueError
from holdfast.core.records import type_of
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider, tool_call
from tests.agent.helpers import Home, add, journal, said
from tests.tables import each_row


def requests(runtime: Runtime, provider: str = "scripted") -> Any:
    return runtime.providers[provider].requests  # type: ignore[attr-defined]


BASE = Policy(
    provider="p",
    model="m",
    instructions="Be kind.",
    limits=Limits(iterations=5, tokens=100),
    generation={"temperature": 0.5, "seed": 1},
)

# --- specs ----------------------------------------------------------------------------------------------


def test_what_a_spec_does_not_say_is_inherited() -> None:
    assert resolve(Spec(), BASE) == BASE


def test_a_spec_overrides_what_it_says() -> None:
    policy = resolve(Spec(model="big", provider="q", instructions="", tools=["add"]), BASE)
    assert (policy.model, policy.provider, policy.instructions, policy.tools) == ("big", "q", "", ["add"])
    assert (policy.limits, policy.generation) == (BASE.limits, BASE.generation)


def test_generation_options_merge_one_by_one_and_none_clears_one() -> None:
    policy = resolve(Spec(generation={"temperature": 1.0, "seed": None, "top_p": 0.9}), BASE)
    assert policy.generation == {"temperature": 1.0, "top_p": 0.9}


def test_limits_merge_one_by_one_and_none_lifts_one() -> None:
    assert resolve(Spec(limits={"tokens": None, "cost": 2.5}), BASE).limits == Limits(iterations=5, cost=2.5)


@each_row(
    ("limits", "why"),
    [
        ({"iteratons": 3}, "iteratons"),
        ({"iterations": "three"}, "int"),
        ({"iterations": 0}, "at least 1"),
        ({"no_progress": None}, "int"),
        ({"cost": -1}, "at least 0"),
    ],
)
def test_limits_that_are_none_are_refused(limits: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        limits_from(limits)
    with pytest.raises(InvalidValueError, match=why):
        Runtime("memory:", provider=ScriptedProvider([]), spec=Spec(limits=limits))


async def test_a_field_that_no_spec_has_is_refused_where_it_is_given(home: Home) -> None:
    async with home.runtime() as runtime:
        with pytest.raises(InvalidValueError, match=r"temperature.*generation"):
            runtime.session("s").spec(temperature=1)
        session = await runtime.session("s").open()
        with pytest.raises(InvalidValueError, match="temperature"):
            await session.configure(temperature=1)
        with pytest.raises(InvalidValueError, match="model"):
            await session.configure(model=7)


@each_row(
    "fields",
    [
        {"instructions": "\ud800"},
        {"generation": {"temperature": float("nan")}},
        {"generation": {"\ud800": 1}},
        {"limits": {"cost": float("nan")}},
        {"model": "m-\udfff"},
        {"window": 2**70},
        {"tools": ["\ud800"]},
    ],
)
async def test_what_cannot_be_kept_is_refused_where_it_is_configured_and_turns_go_on(
    home: Home, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidValueError, match="spec"):
        Runtime(home.store(), provider=ScriptedProvider([]), spec=Spec(**fields))
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        before = session.policy
        with pytest.raises(InvalidValueError, match="spec"):
            await session.configure(**fields)
        with pytest.raises(InvalidValueError, match="spec"):
            await session.configure(Spec(**fields))
        with pytest.raises(InvalidValueError, match="spec"):
            runtime.session("s").spec(Spec(**fields))
        assert session.policy == before
        assert (await soon(session.turn("Hi").run())).text == "Hello"


async def test_a_prompt_that_cannot_be_kept_is_refused_where_it_is_said(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        for wrong in ("\ud800", layer_of("\ud800"), 7):
            with pytest.raises(InvalidValueError, match="prompt"):
                runtime.session("s").prompt(wrong)  # type: ignore[arg-type]
            with pytest.raises(InvalidValueError, match="prompt"):
                session.turn("Hi").prompt(wrong)  # type: ignore[arg-type]


async def test_a_session_is_run_by_its_spec_on_top_of_the_runtimes_policy(home: Home) -> None:
    async with home.runtime(
        "Hello", instructions="Be kind.", generation={"temperature": 0.5, "seed": 1}, tools=[add]
    ) as runtime:
        builder = runtime.session("s").spec(model="big", generation={"seed": None}, limits={"iterations": 2}, tools=[])
        session = await builder.prompt("Be brief.").prompt("In verse.").open()
        await soon(session.turn("Hi").run())
        (request,) = requests(runtime)
        assert (request.model, request.params, request.tools) == ("big", {"temperature": 0.5}, [])
        assert request.system == "Be kind.\n\nBe brief.\n\nIn verse."
        assert session.policy.limits == Limits(iterations=2)
        assert runtime.policy.model == "m-1"


# --- configuring ----------------------------------------------------------------------------------------


async def test_configuring_is_durable_at_once_and_takes_effect_with_the_next_turn(home: Home) -> None:
    async with home.runtime("1", "2", "3") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("one").run())
        await session.configure(model="big", generation={"temperature": 0.0}, by="ann")
        (configured,) = [entry.record for entry in await journal(session) if type_of(entry.record) == "configured"]
        assert isinstance(configured, ConfiguredRecord)
        assert (configured.change.model, configured.by) == ("big", "ann")
        before = await journal(session)
        await session.configure(model="big")  # says nothing new
        assert await journal(session) == before
        assert (await session.read_view()).policy.model == "big"
        await soon(session.turn("two").run())
        assert (await session.read_view()).policy == session.policy
        await soon(session.turn("three").run())
        assert [request.model for request in requests(runtime)] == ["m-1", "big", "big"]
        assert requests(runtime)[1].params == {"temperature": 0.0}
    async with home.runtime() as other:
        assert (await (await other.session("s").open()).read_view()).policy.model == "big"


async def test_a_policy_is_recorded_when_it_changes_and_not_with_every_turn(home: Home) -> None:
    async with home.runtime(*"123", instructions="x" * 1_000) as runtime:
        session = await runtime.session("s").open()
        for text in "123":
            await soon(session.turn(text).run())
        assert sum("x" * 1_000 in str(entry.record) for entry in await journal(session)) == 1


async def test_configuring_in_the_midst_of_a_turn_leaves_that_turn_as_it_is(home: Home) -> None:
    gate = asyncio.Event()

    async def waits() -> None:
        """Wait."""
        await gate.wait()

    async with home.runtime(tool_call("waits"), "1", "2", tools=[waits]) as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("one").run())
        await until(lambda: requests(runtime))
        await session.configure(model="big")
        gate.set()
        await soon(work)
        await soon(session.turn("two").run())
        assert [request.model for request in requests(runtime)] == ["m-1", "m-1", "big"]


async def test_what_cannot_be_configured_changes_nothing(home: Home) -> None:
    async with home.runtime() as runtime:
        session = await runtime.session("s").open()
        before = session.policy
        with pytest.raises(ProviderUnavailableError) as caught:
            await session.configure(provider="elsewhere", model="big")
        assert (caught.value.provider, caught.value.session_id) == ("elsewhere", "s")
        assert "session 's'" in str(caught.value)
        assert session.policy == before


# --- providers ------------------------------------------------------------------------------------------


async def test_a_provider_that_the_runtime_does_not_have_is_unavailable(home: Home) -> None:
    async with home.runtime() as runtime:
        with pytest.raises(ProviderUnavailableError, match=r"'elsewhere'.*scripted"):
            await runtime.session("s").spec(provider="elsewhere").open()


async def test_the_provider_that_a_session_began_with_is_kept_when_it_is_opened_again(home: Home) -> None:
    async with home.runtime("1", provider=ScriptedProvider(["1"], id="first"), model="old") as runtime:
        await soon((await runtime.session("s").open()).turn("one").run())
    second = ScriptedProvider(["2"], id="second")
    async with home.runtime(provider=second, model="new", instructions="Be kind.") as runtime:
        runtime.add_provider(ScriptedProvider(["2"], id="first"))
        session = await runtime.session("s").open()
        assert (session.policy.provider, session.policy.model) == ("first", "old")
        assert session.policy.instructions == ""
        assert (await soon(session.turn("two").run())).text == "2"
        assert second.requests == []
        assert [request.model for request in requests(runtime, "first")] == ["old"]
        explicit = await runtime.session("s").spec(model="newer").open()
        assert (explicit.policy.provider, explicit.policy.model) == ("first", "newer")


async def test_a_provider_mismatch_is_an_error_with_three_fields(home: Home) -> None:
    async with home.runtime(provider=ScriptedProvider(["1"], id="first")) as runtime:
        await soon((await runtime.session("s").open()).turn("one").run())
    async with home.runtime(provider=ScriptedProvider([], id="second")) as runtime:
        state = AgentState(session_id="s", messages=[], policy=Policy(provider="first"))
        for opening in (runtime.session("s").open, lambda: runtime.session("s").open_with_state(state)):
            session = await opening()
            with pytest.raises(ProviderMismatchError) as caught:
                await soon(session.turn("two").run())
            found = caught.value
            assert (found.expected, found.actual, found.session_id) == ("first", "second", "s")


async def test_naming_another_provider_for_a_session_is_a_mismatch_also_where_both_are_there(home: Home) -> None:
    first, second = ScriptedProvider(["1"], id="first"), ScriptedProvider(["2"], id="second")
    async with home.runtime(provider=first) as runtime:
        await soon((await runtime.session("s").open()).turn("one").run())
        with pytest.raises(ProviderMismatchError):
            await runtime.session("s").provider(second).open()
        session = await runtime.session("s").open()
        await session.configure(provider="second")
        assert (await soon(session.turn("two").run())).text == "2"
        again = await runtime.session("s").provider(second).open()
        assert again.policy.provider == "second"


async def test_a_session_that_begins_anew_may_have_another_provider(home: Home) -> None:
    async with home.runtime(provider=ScriptedProvider(["1"], id="first")) as runtime:
        await soon((await runtime.session("s").open()).turn("one").run())
    async with home.runtime(provider=ScriptedProvider(["2", "3"], id="second")) as runtime:
        fresh = await runtime.session("s").open_fresh()
        assert (await soon(fresh.turn("two").run())).text == "2"
        assert (await runtime.session("s").open()).policy.provider == "second"


async def test_a_state_that_is_brought_along_keeps_its_provider(home: Home) -> None:
    first, second = ScriptedProvider(["1"], id="first"), ScriptedProvider([], id="second")
    messages = [AgentMessage("user", [TextBlock("before")])]
    async with home.runtime(provider=second) as runtime:
        runtime.add_provider(first)
        state = AgentState(session_id="s", messages=messages, policy=Policy(provider="first", model="old"))
        session = await runtime.session("s").open_with_state(state)
        await soon(session.turn("go on").run())
        assert [request.model for request in first.requests] == ["old"]
        assert [text for _, text in await said(session)] == ["before", "go on", "1"]


async def test_a_builder_can_bring_a_provider_of_its_own(home: Home) -> None:
    own = ScriptedProvider(["mine"], id="own")
    async with home.runtime("theirs") as runtime:
        session = await runtime.session("s").provider(own, "small").open()
        assert (await soon(session.turn("Hi").run())).text == "mine"
        assert [request.model for request in own.requests] == ["small"]


async def test_a_provider_without_a_model_is_asked_for_its_own_and_never_for_the_runtimes(home: Home) -> None:
    own, bare = ScriptedProvider(["mine"], id="own"), ScriptedProvider(["bare"], id="bare")
    own.model = "large"  # type: ignore[attr-defined]
    async with home.runtime(model="theirs") as runtime:
        for session_id, provider in (("s-1", own), ("s-2", bare)):
            session = await runtime.session(session_id).provider(provider).open()
            await soon(session.turn("Hi").run())
        assert [request.model for request in (*own.requests, *bare.requests)] == ["large", "bare"]
        named = await runtime.session("s-3").spec(model="small").provider(own).open()
        assert (named.policy.provider, named.policy.model) == ("own", "small")


async def test_a_description_tells_what_is_in_force_and_where_it_comes_from(home: Home) -> None:
    async with home.runtime(limits={"iterations": 3}, residency="active_path_only") as runtime:
        told = runtime.describe().to_json()
        assert told["limits.iterations"] == {"value": "3", "source": "given"}
        assert told["limits.no_progress"]["source"] == "default"
        assert told["residency"] == {"value": "active_path_only", "source": "given"}
