"""Approval by code of the host: what it says, what it fails to say, and whose code is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Approval, Approve, Deny, PluginCall, Rule
from holdfast.agent import live_events as live
from holdfast.agent.plugins import hooks
from holdfast.agent.plugins.plugin import Plugin
from holdfast.core.errors import InvalidValueError
from holdfast.testing import tool_call
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptStep
from tests.agent.approval_helpers import CONFIRM, Disk, deletes, only_call, runtime_on, worked
from tests.agent.helpers import Home
from tests.tables import each_row


@pytest.fixture
def disk() -> Disk:
    return Disk()


def allows_tmp(call: PluginCall) -> bool:
    return str(call.arguments["path"]).startswith("/tmp/")


async def decides(call: PluginCall) -> Any:
    match call.arguments["path"]:
        case "allow" | "deny" | "confirm" as verdict:
            return verdict
        case "reason":
            return Deny(f"not in {call.session_id}, turn {bool(call.turn)}")
        case "raise":
            raise LookupError("no such rule")
        case "change":
            call.arguments["path"] = "/etc"
            return True
        case nonsense:
            return {"verdict": nonsense}


async def test_a_function_in_a_thread_decides(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/tmp/x", "/x"), plugins=[Approve(callback=allows_tmp)]) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Go").run())
        assert only_call(await soon(session.turn("Go").run())).is_error
    assert disk.did == ["delete /tmp/x"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("deny", "the code that decides about it did not allow it"),
        ("reason", "not in s, turn True"),
        ("raise", "which decides about it, failed"),
        ("nonsense", "gave no verdict on it"),
    ],
)
async def test_code_that_does_not_say_yes_says_no(disk: Disk, path: str, told: str) -> None:
    async with runtime_on(Home("memory:"), disk, *deletes(path), plugins=[Approve(callback=decides)]) as runtime:
        session = await runtime.session("s").open()
        assert told in only_call(await soon(session.turn("Go").run())).result["error"]
    assert disk.did == []


async def test_code_cannot_change_what_it_is_asked_about(disk: Disk) -> None:
    async with runtime_on(Home("memory:"), disk, *deletes("change"), plugins=[Approve(callback=decides)]) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Go").run())
    assert disk.did == ["delete change"]


async def test_code_may_leave_it_to_somebody(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("confirm", "allow"), plugins=[Approve(callback=decides)]) as runtime:
        session = await runtime.session("s").open()
        await worked(session, "approve")
        await soon(session.turn("Go").run())
    assert disk.did == ["delete confirm", "delete allow"]


async def test_code_is_asked_only_where_rules_leave_it_to_code(home: Home, disk: Disk) -> None:
    plugin = Approve([Rule.allow("read"), Rule.callback("delete", path="/*")], default="confirm", callback=allows_tmp)
    script: list[ScriptStep] = [tool_call("read", path="x"), tool_call("delete", path="/tmp/y"), "Done."]
    async with runtime_on(home, disk, *script, plugins=[plugin]) as runtime:
        session = await runtime.session("s").open()
        assert (await soon(session.turn("Go").run())).is_success
    assert disk.did == ["read x", "delete /tmp/y"]


class Slow:
    """Decides after the time in which somebody has to."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.was_cancelled = asyncio.Event()

    async def waits(self, call: PluginCall) -> bool:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise
        return True

    def blocks(self, call: PluginCall) -> bool:
        time.sleep(0.5)
        return True


@pytest.mark.parametrize("how", ["waits", "blocks"])
@pytest.mark.parametrize("whose", ["its own", "that of all"])
async def test_code_that_takes_too_long_says_no(
    disk: Disk, how: str, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(how)
    if whose == "that of all":
        monkeypatch.setattr(hooks, "AUTHORIZE_S", 0.05)
    plugin = Approve(callback=getattr(slow, how), timeout_s=0.05 if whose == "its own" else None)
    async with runtime_on(Home("memory:"), disk, *deletes("/x"), plugins=[plugin]) as runtime:
        session = await runtime.session("s").open()
        call = only_call(await soon(session.turn("Go").run()))
        assert call.result["code"] == "denied"
        if how == "waits":
            await soon(slow.was_cancelled.wait())
    assert disk.did == []


async def test_who_watches_is_told_that_code_failed(disk: Disk) -> None:
    async with runtime_on(Home("memory:"), disk, *deletes("raise"), plugins=[Approve(callback=decides)]) as runtime:
        session = await runtime.session("s").open()
        seen: list[live.LiveEvent] = []

        async def look(event: live.LiveEvent) -> None:
            seen.append(event)

        await soon(session.turn("Go").stream_to(look))
        [failed] = [event for event in seen if isinstance(event, live.PluginFailedEvent)]
        assert (failed.hook, failed.error) == ("authorize", "LookupError: no such rule")
        assert failed.plugin.endswith("test_approval_code.decides")


async def test_a_process_without_the_code_says_no_and_one_that_has_it_goes_on(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("allow")) as runtime:
        session = await runtime.session("s").plugin(Approve(callback=decides)).open()
        await soon(session.turn("Go").run())
    async with runtime_on(home, disk, *deletes("allow"), plugins=[Approve(callback=allows_tmp)]) as runtime:
        session = await runtime.session("s").open()
        call = only_call(await soon(session.turn("Go").run()))
        assert "test_approval_code.decides', which decides about it, is not available here" in call.result["error"]
    async with runtime_on(home, disk, *deletes("allow")) as runtime:
        runtime.plugins.add(Approve(callback=decides))
        runtime.plugins.add(Approve(callback=allows_tmp))
        session = await runtime.session("s").open()
        call = only_call(await soon(session.turn("Go").run()))
        assert call.result["error"] == "not approved: the code that decides about it did not allow it"
    assert disk.did == ["delete allow"]


async def test_code_of_the_runtime_and_of_the_session_are_both_asked(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("allow", "/tmp/x"), plugins=[Approve(callback=decides)]) as runtime:
        session = await runtime.session("s").plugin(Approve(callback=allows_tmp)).open()
        for _ in range(2):
            assert only_call(await soon(session.turn("Go").run())).is_error
    assert disk.did == []


async def test_code_of_the_parent_decides_for_the_child(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/tmp/a", "/b")) as runtime:
        await runtime.session("parent").plugin(Approve(callback=allows_tmp)).open()
        child = await runtime.session("child").parent("parent").open()
        await soon(child.turn("Go").run())
        assert only_call(await soon(child.turn("Go").run())).is_error
    assert disk.did == ["delete /tmp/a"]


async def test_each_session_has_the_code_that_it_was_given(home: Home, disk: Disk) -> None:
    def only(path: str) -> Approve:
        return Approve(callback=lambda call: call.arguments["path"] == path)

    async with runtime_on(home, disk, *deletes("/a", "/a", "/b", "/c")) as runtime:
        one = await runtime.session("one").plugin(only("/a")).open()
        other = await runtime.session("other").plugin(only("/b")).open()
        await soon(one.turn("Go").run())
        assert only_call(await soon(other.turn("Go").run())).is_error
        await soon(other.turn("Go").run())
        again = await runtime.session("one").plugin(only("/c")).open()
        await soon(again.turn("Go").run())
    assert disk.did == ["delete /a", "delete /b", "delete /c"]


async def test_another_plugin_may_bring_rules_as_well(home: Home, disk: Disk) -> None:
    class Fridays(Plugin):
        id = "fridays"

        def approval(self) -> Approval:
            return Approval(rules=[Rule.callback("delete")], callback=self.id)

        def authorize(self, call: PluginCall) -> Deny:
            return Deny("not on a Friday")

    async with runtime_on(home, disk, *deletes("/a"), plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").plugin(Fridays()).open()
        assert only_call(await soon(session.turn("Go").run())).result["error"] == "not approved: not on a Friday"


@each_row(
    ("make", "told"),
    [
        (lambda: Approve([Rule("x", "ask")]), "'ask' is not a verdict"),
        (lambda: Approve(default="callback"), "needs a callback"),
        (lambda: Approve(callback=allows_tmp, default="allow"), "its callback is never used"),
        (lambda: Approve(timeout_s=0), "more than 0 ms"),
    ],
)
def test_rules_that_make_no_sense_are_refused_when_they_are_made(make: Callable[[], Approve], told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        make()


async def test_a_model_cannot_ask_the_runtime_itself(home: Home, disk: Disk) -> None:
    steps: list[ScriptStep] = [
        tool_call("holdfast.authorize", tool="delete", arguments={}, callbacks=["approve"]),
        tool_call("holdfast.command", name="compact", arguments={}),
        tool_call("holdfast.state", op="get", key="x"),
        "Oh.",
    ]
    async with runtime_on(home, disk, *steps, plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("Go").run())
        assert [call.result["code"] for call in result.tool_calls] == ["unknown_tool"] * 3
