"""Approval in sessions: calls that wait for somebody, rules that stay, and code that decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast import Approval, Approve, Rule
from holdfast.agent import live_events as live
from holdfast.agent.envelopes.conversation import export_envelope, import_envelope
from holdfast.agent.machine.errors import InvalidDecisionError
from holdfast.agent.machine.mailbox import ConfigureMessage
from holdfast.agent.machine.policy import PolicyChange
from holdfast.agent.machine.queries import ApprovalQuery
from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.agent.session_builder import AgentState, SessionBuilder
from holdfast.core.errors import AnswerConflictError, StaleQueryError
from holdfast.core.queries import Failure
from holdfast.store import open_store
from holdfast.testing import ScriptedProvider, tool_call
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.provider import ScriptStep
from tests.agent.approval_helpers import CONFIRM, Disk, deletes, only_call, runtime_on, waiting, worked, working
from tests.agent.helpers import Home, journal


@pytest.fixture
def disk() -> Disk:
    return Disk()


# --- somebody is asked -----------------------------------------------------------------------------------


async def test_a_call_waits_for_somebody_and_the_others_run_at_once(home: Home, disk: Disk) -> None:
    script: list[ScriptStep] = [[tool_call("delete", path="/x"), tool_call("read", path="/y")], "Done."]
    async with runtime_on(home, disk, *script, plugins=[Approve([Rule.confirm("delete").because("for good")])]) as rt:
        session = await rt.session("s").open()
        async with working(session) as work:
            [asked] = await waiting(session)
            await until(lambda: disk.did == ["read /y"])
            told = (asked.approves.tool, asked.approves.arguments, asked.approves.reason)
            assert told == ("delete", {"path": "/x"}, "for good")
            assert not work.done()
            await soon(session.answer(asked.id, "approve"))
            result = await soon(work)
        assert disk.did == ["read /y", "delete /x"]
        assert [call.result for call in result.tool_calls] == ["gone", "text"]
        assert (await session.read_view()).approvals == []


async def test_a_stream_tells_of_the_approval_and_goes_on_after_it(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/x"), plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        seen: list[str] = []
        async with asyncio.timeout(HANG_S):
            async for event in session.turn("Go").stream():
                seen.append(type(event).__name__)
                if isinstance(event, live.WaitingEvent):
                    [query] = event.queries
                    assert isinstance(query, ApprovalQuery)
                    await session.answer(query.id, True)
        assert seen == [
            "ModelStartedEvent",
            "WaitingEvent",
            "ToolStartedEvent",
            "ToolFinishedEvent",
            "ModelStartedEvent",
            "TextDeltaEvent",
            "TurnFinishedEvent",
        ]


async def test_the_model_is_told_why_it_was_denied(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/x", "/y"), plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        result = await worked(session, {"decision": "deny", "reason": "it is needed"})
        assert only_call(result).result == {"error": "not approved: it is needed", "code": "denied"}
        assert result.is_success
        result = await worked(session, Failure("ask me tomorrow"))
        assert only_call(result).result == {"error": "not approved: ask me tomorrow", "code": "denied"}
        assert disk.did == []


async def test_the_tool_gets_edited_arguments_and_the_model_is_told_of_them(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/x"), plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        result = await worked(session, {"decision": "approve", "arguments": {"path": "/tmp/x"}})
        assert disk.did == ["delete /tmp/x"]
        assert (only_call(result).arguments, only_call(result).result) == ({"path": "/tmp/x"}, "gone")
        shown = runtime.providers["scripted"].requests[-1].messages[-1].content[0].content  # type: ignore[attr-defined]
        note = "the call was approved with changed arguments"
        assert shown == {"result": "gone", "note": note, "arguments": {"path": "/tmp/x"}}


async def test_edited_arguments_that_the_tool_does_not_take_are_told(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/x"), plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        result = await worked(session, {"decision": "approve", "arguments": {"file": "/x"}})
        assert disk.did == []
        assert only_call(result).result["code"] == "invalid_arguments"
        shown = runtime.providers["scripted"].requests[-1].messages[-1].content[0].content  # type: ignore[attr-defined]
        assert (shown["code"], shown["arguments"]) == ("invalid_arguments", {"file": "/x"})


async def test_always_is_for_the_rest_of_the_session_also_in_another_process(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/a", "/b"), plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        await worked(session, {"decision": "always", "match": {"path": "/*"}})
        await soon(session.turn("Go").run())
        assert disk.did == ["delete /a", "delete /b"]
    async with runtime_on(home, disk, *deletes("/c", "d"), plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Go").run())
        assert disk.did == ["delete /a", "delete /b", "delete /c"]
        await worked(session, "deny")
        assert disk.did == ["delete /a", "delete /b", "delete /c"]
        other = await runtime.session("other").open()
        runtime.add_provider(ScriptedProvider(deletes("/e")))
        await worked(other, "deny")


async def test_always_answers_for_calls_like_it_that_wait_beside_it(home: Home, disk: Disk) -> None:
    script: list[ScriptStep] = [[tool_call("delete", path=path) for path in ("/a", "/b", "/c")], "Done."]
    async with runtime_on(home, disk, *script, plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        async with working(session) as work:
            asked = await waiting(session, 3)
            await soon(session.answer(asked[1].id, "always"))
            assert (await soon(work)).is_success
        assert sorted(disk.did) == ["delete /a", "delete /b", "delete /c"]


async def test_an_answer_that_decides_nothing_is_refused_when_it_is_given(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/x"), plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        async with working(session) as work:
            [asked] = await waiting(session)
            before = await journal(session)
            for nonsense in ("yes", {"decision": "approve", "args": {}}, None):
                with pytest.raises(InvalidDecisionError, match="answer 'approve', 'deny' or 'always'"):
                    await soon(session.answer(asked.id, nonsense))
                with pytest.raises(InvalidDecisionError):
                    await soon(runtime.mount.holdfast.feed("s", {asked.id: nonsense}))
            assert await journal(session) == before
            await soon(session.answer(asked.id, "deny"))
            await soon(work)


async def test_the_first_decision_counts(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/x"), plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        async with working(session) as work:
            [asked] = await waiting(session)
            await soon(session.answer(asked.id, "approve"))
            await soon(session.answer(asked.id, "approve"))
            with pytest.raises(AnswerConflictError):
                await soon(session.answer(asked.id, "deny"))
            await soon(work)
        assert disk.did == ["delete /x"]


async def test_nobody_has_for_ever_where_there_is_a_timeout(home: Home, disk: Disk) -> None:
    plugin = Approve([Rule.confirm("delete")], timeout_s=0.05)
    async with runtime_on(home, disk, *deletes("/x"), plugins=[plugin]) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("Go").run())
        assert only_call(result).result["error"] == "not approved: nobody approved it in time"
        assert disk.did == []


async def test_a_turn_can_be_stopped_while_approvals_wait(home: Home, disk: Disk) -> None:
    script: list[ScriptStep] = [[tool_call("delete", path="/a"), tool_call("delete", path="/b")], *deletes("/c")]
    async with runtime_on(home, disk, *script, plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        async with working(session) as work:
            asked = await waiting(session, 2)
            assert await soon(session.stop("enough"))
            ended = (await soon(work)).outcome
            assert isinstance(ended, StoppedOutcome)
            assert (ended.reason, ended.detail) == ("cancelled", "enough")
        for query in asked:
            with pytest.raises((AnswerConflictError, StaleQueryError)):
                await soon(session.answer(query.id, "approve"))
        await worked(session, "approve")
        assert disk.did == ["delete /c"]


async def test_a_fork_of_a_session_that_waits_is_approved_on_its_own(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/x"), "Deleted /x.", plugins=[CONFIRM]) as runtime:
        session = await runtime.session("s").open()
        async with working(session) as work:
            [asked] = await waiting(session)
            await soon(runtime.mount.holdfast.fork("s", id="fork", wait=0))
            fork = await runtime.session("fork").open()
            [also] = (await fork.read_view()).approvals
            await soon(fork.answer(also.id, {"decision": "approve", "arguments": {"path": "/y"}}))
            await until(lambda: disk.did == ["delete /y"])
            assert [query.id for query in (await session.read_view()).approvals] == [asked.id]
            await soon(session.answer(asked.id, "deny"))
            assert (await soon(work)).is_success
        assert fork.policy.approval == session.policy.approval
        assert disk.did == ["delete /y"]


# --- rules stay ------------------------------------------------------------------------------------------

NAMED: dict[str, Callable[[SessionBuilder], SessionBuilder]] = {
    "plugin": lambda builder: builder.plugin(Approve([Rule.deny("delete")])),
    "layer": lambda builder: builder.approval(Approval(rules=[Rule.deny("delete")])),
}


@pytest.mark.parametrize("named", list(NAMED))
@pytest.mark.parametrize("how", ["open", "open_fresh", "open_with_state"])
async def test_rules_are_not_lost_by_opening_a_session_without_naming_them(
    home: Home, disk: Disk, named: str, how: str
) -> None:
    async with runtime_on(home, disk, *deletes("/a")) as runtime:
        session = await NAMED[named](runtime.session("s")).open()
        assert only_call(await soon(session.turn("Go").run())).is_error
    other = Approve([Rule.confirm("read")])
    async with runtime_on(home, disk, *deletes("/b"), plugins=[other]) as runtime:
        builder = runtime.session("s")
        if how == "open_with_state":
            session = await builder.open_with_state(AgentState(session_id="s", messages=[]))
        else:
            session = await getattr(builder, how)()
        await session.configure(model="m-2", instructions="Be brief.")
        result = await soon(session.turn("Go").run())
        assert only_call(result).result["code"] == "denied"
        assert [layer.origin for layer in (await session.read_view()).policy.approval] == ["", "runtime"]
    assert disk.did == []


async def test_rules_are_changed_by_naming_others_of_the_same_origin(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/a"), plugins=[Approve([Rule.confirm("read")])]) as runtime:
        session = await runtime.session("s").plugin(Approve([Rule.deny("delete")])).open()
        await soon(session.turn("Go").run())
    async with runtime_on(home, disk, *deletes("/b")) as runtime:
        session = await runtime.session("s").approval(Approval()).open()
        await soon(session.turn("Go").run())
        assert disk.did == ["delete /b"]
        kept = (await session.read_view()).policy.approval
        assert [rule.tool for layer in kept for rule in layer.rules] == ["read"]


async def test_a_session_that_goes_on_from_an_envelope_has_its_rules(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/a", "/b", "/c")) as runtime:
        session = await runtime.session("s").plugin(Approve([Rule.deny("delete")])).open()
        await soon(session.turn("Go").run())
        envelope = await export_envelope(session)
        again = await import_envelope(runtime, "s", envelope)
        assert only_call(await soon(again.turn("Go").run())).is_error
    async with runtime_on(home, disk, *deletes("/d"), plugins=[Approve([Rule.deny("delete")])]) as runtime:
        copy = await import_envelope(runtime, "copy", envelope)
        assert only_call(await soon(copy.turn("Go").run())).is_error
    assert disk.did == []


async def test_a_verdict_that_is_not_known_here_denies_and_the_session_goes_on(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/a"), "Hello.") as runtime:
        session = await runtime.session("s").open()
        newer = Approval(rules=[Rule("delete", "quarantine")])
        await runtime.mount.holdfast.send("s", ConfigureMessage(PolicyChange(approval=[newer])))
        assert only_call(await soon(session.turn("Go").run())).result["code"] == "denied"
    async with runtime_on(home, disk, "Hello.") as runtime:
        session = await runtime.session("s").open()
        assert session.policy.approval == [newer]
        assert (await soon(session.turn("Hi").run())).text == "Hello."


# --- layers ----------------------------------------------------------------------------------------------


async def test_the_rules_of_the_runtime_and_of_the_session_both_count(home: Home, disk: Disk) -> None:
    ours = Approve([Rule.deny("delete", path="/etc/*"), Rule.confirm("delete")])
    async with runtime_on(home, disk, *deletes("/etc/x", "/a", "/etc/y"), plugins=[ours]) as runtime:
        session = await runtime.session("s").plugin(Approve([Rule.allow("*")])).open()
        assert only_call(await soon(session.turn("Go").run())).is_error
        await worked(session, "approve")
        other = await runtime.session("other").open()
        assert only_call(await soon(other.turn("Go").run())).result["code"] == "denied"
    assert disk.did == ["delete /a"]


async def test_a_child_may_do_no_more_than_its_parent(home: Home, disk: Disk) -> None:
    async with runtime_on(home, disk, *deletes("/a", "/b", "/c")) as runtime:
        parent = await runtime.session("parent").plugin(CONFIRM).open()
        await worked(parent, "always")
        child = await runtime.session("child").parent("parent").plugin(Approve([Rule.allow("*")])).open()
        await worked(child, "deny")
        grandchild = await runtime.session("grandchild").parent("child").open()
        await worked(grandchild, "deny")
        assert disk.did == ["delete /a"]
    async with runtime_on(home, disk, *deletes("/d")) as runtime:
        child = await runtime.session("child").plugin(Approve([Rule.allow("*")])).open()
        await worked(child, "deny")
        assert disk.did == ["delete /a"]


async def test_a_child_in_a_store_of_its_own_has_the_rules_of_its_parent(disk: Disk) -> None:
    home = Home("memory:")
    async with runtime_on(home, disk, *deletes("/a")) as runtime:
        await runtime.session("parent").plugin(Approve([Rule.deny("delete")])).open()
        child = await runtime.session("child").parent("parent").store(open_store("memory:")).open()
        assert only_call(await soon(child.turn("Go").run())).is_error
