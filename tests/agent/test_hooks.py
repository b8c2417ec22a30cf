"""Hooks of plugins around models and tools: in which order, what each may change, and that none can do harm."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from holdfast.agent.live_events import LiveEvent, PluginFailedEvent
from holdfast.agent.machine.messages import AgentMessage, TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.agent.machine.turn import MessageOutcome, StoppedOutcome, ToolValueOutcome
from holdfast.agent.plugins.plugin import AbortTurn, Deny, Instead, Plugin, PluginCall, Replace
from holdfast.agent.providers.provider import ModelReply, ModelRequest, ToolSpec
from holdfast.agent.results import TurnResult
from holdfast.agent.runtime import Runtime
from holdfast.agent.session_builder import AgentState
from holdfast.agent.tools.context import Finish
from holdfast.agent.tools.results import ToolFailure, ToolResult, ToolValue
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptedProvider, ScriptStep, tool_call
from tests.agent.helpers import grouped
from tests.tables import each_row

Hook = Callable[..., Any]


def made(plugin_id: str, **hooks: Hook) -> Plugin:
    """A plugin that has just these hooks. They are given what a hook is given, but not the plugin."""

    def method(hook: Hook) -> Hook:
        return lambda self, *given: hook(*given)

    members = {"id": plugin_id, **{name: method(hook) for name, hook in hooks.items()}}
    kind: type[Plugin] = type(f"Made_{plugin_id}", (Plugin,), members)
    return kind()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Seen:
    """What came of a turn, and what was told of plugins meanwhile."""

    def __init__(self, result: TurnResult, events: list[LiveEvent], provider: ScriptedProvider) -> None:
        self.result = result
        self.failed = [event for event in events if isinstance(event, PluginFailedEvent)]
        self.requests = provider.requests


async def worked(*plugins: Plugin, script: Sequence[ScriptStep] = ("Hello.",), **options: Any) -> Seen:
    """One turn of a session with these plugins."""
    provider = ScriptedProvider(script)
    events: list[LiveEvent] = []

    async def keep(event: LiveEvent) -> None:
        events.append(event)

    async with Runtime("memory:", provider=provider, model="m-1", tools=[add], **grouped(options)) as runtime:
        builder = runtime.session("s-1")
        for plugin in plugins:
            builder.plugin(plugin)
        session = await builder.open()
        result = await soon(session.turn("Hi").id("t-1").stream_to(keep))
    return Seen(result, events, provider)


SUM: Sequence[ScriptStep] = (tool_call("add", a=2, b=40), "It is 42.")


def raises(error: BaseException) -> Hook:
    def hook(*given: Any) -> Any:
        raise error

    return hook


def is_async(hook: Hook) -> Hook:
    async def later(*given: Any) -> Any:
        return hook(*given)

    return later


# --- before a model is asked ---------------------------------------------------------------------------


@each_row("as_is", [lambda hook: hook, is_async], ids=["plain", "async"])
async def test_plugins_change_a_request_in_the_order_they_were_given(as_is: Callable[[Hook], Hook]) -> None:
    def adds(word: str) -> Hook:
        return as_is(lambda request: msgspec.structs.replace(request, system=f"{request.system}{word}"))

    seen = await worked(
        made("one", before_model=adds("one ")),
        made("two", before_model=as_is(lambda request: None)),
        made("three", before_model=adds("three")),
    )
    assert seen.requests[0].system == "one three"
    assert seen.failed == []


async def test_a_plugin_may_ask_another_model_of_the_same_provider() -> None:
    seen = await worked(made("router", before_model=lambda request: msgspec.structs.replace(request, model="m-2")))
    assert seen.requests[0].model == "m-2"
    assert list(seen.result.report.by_model) == []  # the script reports no usage
    assert seen.result.text == "Hello."


async def test_what_a_plugin_changes_in_place_changes_nothing() -> None:
    def meddles(request: ModelRequest) -> None:
        request.messages[0].content.clear()
        request.messages.clear()
        request.tools.clear()
        request.params["temperature"] = 2

    def forgets(messages: list[AgentMessage]) -> None:
        messages[0].content.clear()
        messages.clear()

    seen = await worked(made("one", before_model=meddles, history=forgets), generation={"temperature": 0})
    (request,) = seen.requests
    assert (request.messages[0].text, request.params) == ("Hi", {"temperature": 0})
    assert [each.name for each in request.tools] == ["add"]
    assert seen.result.messages[0].text == "Hi"


async def test_the_key_of_a_call_stays_whatever_a_plugin_does() -> None:
    seen = await worked(made("one", before_model=lambda request: msgspec.structs.replace(request, key="")))
    assert seen.requests[0].key == "s-1/q-1"


NO_SCHEMA = ToolSpec("add", "Again.", {"type": "object"})


@each_row(
    ("makes", "told"),
    [
        (lambda request: "a request", "it returned str, which is not a request"),
        (lambda request: request.messages, "it returned list, which is not a request"),
        (lambda request: msgspec.structs.replace(request, model=""), "its request names no model"),
        (lambda request: msgspec.structs.replace(request, system=None), "'system' of its request is not text"),
        (lambda request: msgspec.structs.replace(request, messages=[]), "it left no messages"),
        (lambda request: msgspec.structs.replace(request, messages=["Hi"]), "invalid list of messages"),
        (lambda request: msgspec.structs.replace(request, params={"x": {1}}), "invalid request"),
        (lambda request: msgspec.structs.replace(request, tools=["add"]), "invalid request"),
        (
            lambda request: msgspec.structs.replace(request, tools=[*request.tools, NO_SCHEMA]),
            "several tools named 'add'",
        ),
    ],
)
async def test_a_request_that_makes_no_sense_is_not_sent(makes: Hook, told: str) -> None:
    seen = await worked(made("odd", before_model=makes))
    (request,) = seen.requests
    assert (request.model, request.system, [each.text for each in request.messages]) == ("m-1", "", ["Hi"])
    (failed,) = seen.failed
    assert (failed.plugin, failed.hook) == ("odd", "before_model")
    assert told in failed.error


async def test_what_a_plugin_leaves_of_the_history_is_shown_and_nothing_recorded_changes() -> None:
    first_only = made("brief", history=lambda messages: messages[:1])
    short = made("caps", history=lambda messages: [AgentMessage("user", [TextBlock(messages[0].text.upper())])])
    seen = await worked(first_only, short, script=["Hello."])
    assert [each.text for each in seen.requests[0].messages] == ["HI"]
    assert [each.text for each in seen.result.messages] == ["Hi", "Hello."]


@each_row(
    ("leaves", "told"),
    [
        (lambda messages: messages[:-1], "call 'call_1' without its result"),
        (lambda messages: [messages[0], *messages[2:]], "result of call 'call_1' without the call"),
        (lambda messages: [messages[0], messages[2], messages[1]], "result of call 'call_1' without the call"),
        (lambda messages: [messages[0], messages[1], messages[0], messages[2]], "call 'call_1' without its result"),
        (tuple, "it returned tuple"),
        (lambda messages: [], "it left no messages"),
        (lambda messages: [*messages, {"role": "user", "content": []}], "a message of the type dict"),
    ],
)
async def test_a_history_that_splits_a_call_from_its_result_is_not_shown(leaves: Hook, told: str) -> None:
    late = made("late", history=lambda messages: leaves(messages) if len(messages) == 3 else None)
    seen = await worked(late, script=SUM)
    assert [each.role for each in seen.requests[1].messages] == ["user", "assistant", "tool"]
    (failed,) = seen.failed
    assert (failed.plugin, failed.hook, failed.turn) == ("late", "history", "t-1")
    assert told in failed.error
    assert seen.result.text == "It is 42."


async def test_a_call_and_its_result_may_be_left_out_together() -> None:
    seen = await worked(made("brief", history=lambda messages: messages[:1]), script=SUM)
    assert [each.role for each in seen.requests[1].messages] == ["user"]
    assert seen.failed == []


async def test_messages_that_a_host_brought_along_unpaired_are_not_the_plugins_fault() -> None:
    odd = [AgentMessage("user", [TextBlock("Hi")]), AgentMessage("tool", [ToolResultBlock("gone", "x")])]
    provider = ScriptedProvider(["Hello."])
    plugin = made("one", history=lambda messages: messages)
    async with Runtime("memory:", provider=provider) as runtime:
        state = AgentState(session_id="s-1", messages=odd)
        session = await runtime.session("s-1").plugin(plugin).open_with_state(state)
        events = [event async for event in session.turn("Well?").stream()]
    assert not [event for event in events if isinstance(event, PluginFailedEvent)]
    assert len(provider.requests[0].messages) == 3


# --- after it has answered -----------------------------------------------------------------------------


@each_row("as_is", [lambda hook: hook, is_async], ids=["plain", "async"])
async def test_what_plugins_make_of_a_reply_is_what_is_recorded(as_is: Callable[[Hook], Hook]) -> None:
    def says(word: str) -> Hook:
        def change(request: ModelRequest, reply: ModelReply) -> ModelReply:
            text = "".join(block.text for block in reply.content if isinstance(block, TextBlock))
            return msgspec.structs.replace(reply, content=[TextBlock(text + word)])

        return as_is(change)

    seen = await worked(made("one", after_model=says(" one")), made("two", after_model=says(" two")))
    assert seen.result.text == "Hello. one two"


@each_row(
    "makes",
    [
        lambda request, reply: "Hello!",
        lambda request, reply: msgspec.structs.replace(reply, content="Hello!"),
        lambda request, reply: msgspec.structs.replace(reply, stop="whenever"),
        lambda request, reply: msgspec.structs.replace(reply, content=[ToolUseBlock("c", "add", {"a": object()})]),
        lambda request, reply: msgspec.structs.replace(reply, content=[TextBlock("\ud800")]),
        raises(KeyError("gone")),
        raises(AbortTurn("too late")),
    ],
)
async def test_a_reply_that_makes_no_sense_is_not_recorded(makes: Hook) -> None:
    seen = await worked(made("odd", after_model=makes))
    assert seen.result.text == "Hello."
    assert [(each.plugin, each.hook) for each in seen.failed] == [("odd", "after_model")]


# --- aborting ------------------------------------------------------------------------------------------


def returns(value: object) -> Hook:
    return lambda *given: value


def once(hook: Hook) -> Hook:
    """A hook that does nothing from its second call on."""
    calls = itertools.count()
    return lambda *given: hook(*given) if next(calls) == 0 else None


@each_row("hook", ["turn_started", "history", "before_model", "before_tool"])
@each_row("way", [raises, returns])
async def test_a_plugin_stops_the_turn_before_a_model_or_a_tool(hook: str, way: Callable[[Any], Hook]) -> None:
    async with Runtime("memory:", provider=ScriptedProvider([*SUM, "Hello."]), tools=[add]) as runtime:
        aborts = once(way(AbortTurn("not today")))
        session = await runtime.session("s-1").plugin(made("guard", **{hook: aborts})).open()
        result = await soon(session.turn("Hi").run())
        assert result.outcome == StoppedOutcome("plugin_abort", "not today")
        again = await soon(session.turn("Hi").run())
        assert isinstance(again.outcome, MessageOutcome)  # the session goes on


async def test_an_abort_without_words_is_explained() -> None:
    seen = await worked(made("guard", before_model=raises(AbortTurn())))
    assert seen.result.outcome == StoppedOutcome("plugin_abort", "a plugin stopped the turn")
    assert seen.requests == []


async def test_a_turn_that_is_stopped_at_one_call_does_not_leave_the_others_open() -> None:
    ran: list[int] = []

    def note(number: int) -> str:
        """Note a number."""
        ran.append(number)
        return "noted"

    def stops(call: PluginCall) -> None:
        if call.arguments["number"] == 2:
            raise AbortTurn("no twos")

    provider = ScriptedProvider([[tool_call("note", number=1), tool_call("note", number=2)], "Well."])
    async with Runtime("memory:", provider=provider, tools=[note]) as runtime:
        session = await runtime.session("s-1").plugin(made("guard", before_tool=stops)).open()
        assert (await soon(session.turn("Hi").run())).outcome == StoppedOutcome("plugin_abort", "no twos")
        plain = await runtime.session("s-1").open()
        await soon(plain.turn("And now?").run())
        results = [m for m in provider.requests[-1].messages if m.role == "tool"]
        assert len(results) == 2  # a provider wants one for each call


# --- before and after a tool ---------------------------------------------------------------------------


async def test_a_tool_is_run_with_the_arguments_that_a_plugin_wants() -> None:
    looked: list[tuple[str, dict[str, Any]]] = []

    def looks(name: str, want: Replace | None = None) -> Hook:
        def before(call: PluginCall) -> Replace | None:
            looked.append((name, call.arguments))
            return want if call.arguments["b"] == 40 else None

        return before

    seen = await worked(
        made("one", before_tool=looks("one")),
        made("two", before_tool=looks("two", Replace({"a": 1, "b": 1}))),
        script=SUM,
    )
    assert [call.result for call in seen.result.tool_calls] == [2]
    first, second = {"a": 2, "b": 40}, {"a": 1, "b": 1}
    assert looked == [("one", first), ("two", first), ("one", second), ("two", second)]


async def test_a_plugin_that_always_replaces_is_asked_twice_and_heeded_once() -> None:
    doubles = made("double", before_tool=lambda call: Replace({"a": call.arguments["a"] * 2, "b": 0}))
    seen = await worked(doubles, script=SUM)
    assert [call.result for call in seen.result.tool_calls] == [4]


async def test_arguments_that_are_replaced_are_checked_like_those_of_a_model() -> None:
    seen = await worked(made("one", before_tool=lambda call: Replace({"a": "two"})), script=SUM)
    (call,) = seen.result.tool_calls
    assert call.result["code"] == "invalid_arguments"


ABORT, DENY, INSTEAD, REPLACE = AbortTurn("stop"), Deny("no"), Instead("made up"), Replace({"a": 0, "b": 0})


def _expected(wants: Sequence[object]) -> object:
    """What comes of the call `2 + 40`, by the rules: abort beats deny beats instead; only one may replace."""
    if ABORT in wants:
        return "aborted"
    if wants.count(REPLACE) > 1 or DENY in wants:
        return "denied"
    if INSTEAD in wants:
        return "made up"
    return 0 if REPLACE in wants else 42


@each_row("wants", [*itertools.product([None, ABORT, DENY, INSTEAD, REPLACE], repeat=2)], ids=str)
async def test_what_two_plugins_want_is_put_together_the_same_way_in_any_order(wants: tuple[object, ...]) -> None:
    plugins = [made(f"p-{number}", before_tool=returns(want)) for number, want in enumerate(wants)]
    seen = await worked(*plugins, script=SUM)
    expected = _expected(wants)
    if expected == "aborted":
        assert seen.result.outcome == StoppedOutcome("plugin_abort", "stop")
        return
    (call,) = seen.result.tool_calls
    if expected == "denied":
        assert (call.is_error, call.result["code"]) == (True, "denied")
    else:
        assert (call.is_error, call.result) == (False, expected)


async def test_who_looks_at_arguments_that_were_replaced_may_deny_them() -> None:
    zeroes = made("zero", before_tool=lambda call: Replace({"a": 0, "b": 0}) if call.arguments["a"] else None)
    guard = made("guard", before_tool=lambda call: None if call.arguments["a"] else Deny("no zeroes"))
    for plugins in ([zeroes, guard], [guard, zeroes]):
        seen = await worked(*plugins, script=SUM)
        assert seen.result.tool_calls[0].result == {"error": "not allowed: no zeroes", "code": "denied"}


async def test_a_second_change_of_arguments_is_denied() -> None:
    zeroes = made("zero", before_tool=lambda call: Replace({"a": 0, "b": 0}) if call.arguments["a"] == 2 else None)
    ones = made("one", before_tool=lambda call: Replace({"a": 1, "b": 1}) if call.arguments["a"] == 0 else None)
    seen = await worked(zeroes, ones, script=SUM)
    assert "'one' wants to change its arguments again" in seen.result.tool_calls[0].result["error"]


@each_row(
    "before",
    [
        raises(RuntimeError("broken")),
        is_async(raises(RuntimeError("broken"))),
        returns("yes"),
        returns(True),
        returns(Replace([1])),  # type: ignore[arg-type]
        returns(Instead({1})),
        returns(Deny(None)),  # type: ignore[arg-type]
    ],
)
async def test_a_plugin_that_fails_before_a_tool_denies_the_call(before: Hook) -> None:
    seen = await worked(made("odd", before_tool=before), script=SUM)
    (call,) = seen.result.tool_calls
    assert call.result["code"] == "denied"
    assert "'odd', which checks calls before they run, failed" in call.result["error"]
    assert [(each.plugin, each.hook) for each in seen.failed] == [("odd", "before_tool")]
    assert seen.result.text == "It is 42."


async def test_changing_arguments_in_place_changes_no_call() -> None:
    def meddles(call: PluginCall) -> None:
        call.arguments["b"] = 0

    seen = await worked(made("odd", before_tool=meddles), script=SUM)
    (call,) = seen.result.tool_calls
    assert (call.arguments, call.result) == ({"a": 2, "b": 40}, 42)


@each_row("as_is", [lambda hook: hook, is_async], ids=["plain", "async"])
async def test_plugins_change_a_result_in_order(as_is: Callable[[Hook], Hook]) -> None:
    def after(call: PluginCall, result: ToolResult) -> ToolResult:
        assert isinstance(result, ToolValue)
        assert isinstance(result.value, int)
        return ToolValue(result.value * 10 + call.arguments["a"])

    seen = await worked(made("one", after_tool=as_is(after)), made("two", after_tool=as_is(after)), script=SUM)
    assert [call.result for call in seen.result.tool_calls] == [4222]


async def test_a_plugin_may_turn_a_result_into_a_failure_and_back() -> None:
    fails = made("one", after_tool=lambda call, result: ToolFailure(message="no good", code="bad"))
    mends = made(
        "two", after_tool=lambda call, result: ToolValue("mended") if isinstance(result, ToolFailure) else None
    )
    assert (await worked(fails, script=SUM)).result.tool_calls[0].result == {"error": "no good", "code": "bad"}
    assert (await worked(fails, mends, script=SUM)).result.tool_calls[0].result == "mended"


@each_row(
    "after",
    [
        raises(RuntimeError("broken")),
        raises(AbortTurn("too late")),
        returns(42),
        returns(ToolValue({1, 2})),
        returns(ToolFailure(message=5)),  # type: ignore[arg-type]
    ],
)
async def test_a_result_that_makes_no_sense_is_not_told(after: Hook) -> None:
    seen = await worked(made("odd", after_tool=after), script=SUM)
    assert [call.result for call in seen.result.tool_calls] == [42]
    assert [(each.plugin, each.hook) for each in seen.failed] == [("odd", "after_tool")]


async def test_a_plugin_may_end_the_turn_by_what_it_makes_of_a_result() -> None:
    seen = await worked(made("one", after_tool=lambda call, result: ToolValue(Finish("enough"))), script=SUM)
    assert seen.result.outcome == ToolValueOutcome("add", "enough")


# --- containment ---------------------------------------------------------------------------------------


async def test_what_fails_is_told_with_plugin_hook_and_session_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "holdfast.plugins")
    good = made("good", before_model=lambda request: msgspec.structs.replace(request, system="good"))
    seen = await worked(made("bad", before_model=raises(LookupError("no such thing"))), good)
    assert seen.requests[0].system == "good"
    (failed,) = seen.failed
    assert (failed.plugin, failed.hook, failed.error) == ("bad", "before_model", "LookupError: no such thing")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "holdfast.plugins"]
    assert line == "session 's-1': plugin 'bad' failed at 'before_model': LookupError: no such thing"
    assert caplog.records[-1].exc_info is not None


async def test_a_hook_that_does_not_come_back_holds_up_its_turn_until_that_is_stopped() -> None:
    async def hangs(request: ModelRequest) -> None:
        begun.set()
        await asyncio.Event().wait()

    begun = asyncio.Event()
    async with Runtime("memory:", provider=ScriptedProvider(["Hello."])) as runtime:
        session = await runtime.session("s-1").plugin(made("slow", before_model=hangs)).open()
        turn = asyncio.create_task(session.turn("Hi").run())
        await soon(begun.wait())
        assert await soon(session.stop())
        outcome = (await soon(turn)).outcome
        assert isinstance(outcome, StoppedOutcome)
        assert outcome.reason == "cancelled"
