"""Cancellation: durable, from any process, and by whoever is first; the session goes on afterwards."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from holdfast.agent.machine.records import StopRecord
from holdfast.agent.machine.turn import MessageOutcome, StoppedOutcome
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.session import AgentSession
from holdfast.core.queries import HumanQuery, LlmQuery, ToolQuery
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptStep, tool_call
from tests.agent.helpers import Home, journal, said
from tests.agent.processes import Process

CLOCKS_MS = 20
"""Milliseconds between the clock of an engine, which is steady, and that of the day."""


async def hangs(request: ModelRequest) -> ScriptStep:
    await asyncio.Event().wait()
    raise AssertionError


def stop_of(outcome: object) -> StoppedOutcome:
    assert isinstance(outcome, StoppedOutcome), outcome
    return outcome


async def is_asked(session: AgentSession, kind: type[Any]) -> bool:
    """Whether the session waits for something of a kind, and whoever answers it is at it."""
    asked = (await session.conversation(fresh=True)).asked.values()
    return any(isinstance(query, kind) for query in asked)


# --- by whom, and what ---------------------------------------------------------------------------------


async def test_a_cancelled_turn_is_committed_with_who_when_and_why(any_home: Home) -> None:
    async with any_home.runtime(hangs, "Hello again") as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("Hi").id("t-1").run())
        await until(lambda: is_asked(session, LlmQuery))
        began = time.time() * 1000
        receipt = await soon(session.cancel("t-1", reason="changed my mind", by="ann"))
        stopped = stop_of((await soon(work)).outcome)
        assert (receipt.state, receipt.turn, receipt.outcome) == ("stopped", "t-1", stopped)
        assert (stopped.reason, stopped.detail, stopped.by) == ("cancelled", "changed my mind", "ann")
        assert stopped.at is not None
        assert began - CLOCKS_MS <= stopped.at <= time.time() * 1000 + CLOCKS_MS
        assert (await soon(session.turn("More").run())).text == "Hello again"
    async with any_home.runtime() as runtime:
        session = await runtime.session("s").open()
        assert (await soon(session.turn("Hi").id("t-1").run())).outcome == stopped
        assert await said(session) == [("user", "Hi"), ("user", "More"), ("assistant", "Hello again")]


async def test_a_late_cancel_hits_neither_the_turn_nor_the_next_one(any_home: Home) -> None:
    release = asyncio.Event()

    async def waits(request: ModelRequest) -> ScriptStep:
        await release.wait()
        return "second"

    async with any_home.runtime("first", waits) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("a").id("t-1").run())
        work = asyncio.create_task(session.turn("b").id("t-2").run())
        await until(lambda: is_asked(session, LlmQuery))
        receipt = await soon(session.cancel("t-1"))
        assert (receipt.state, receipt.outcome) == ("over", MessageOutcome())
        release.set()
        assert (await soon(work)).text == "second"
        assert (await session.cancel()).state == "idle"
        assert not any(isinstance(entry.record, StopRecord) for entry in await journal(session))


async def test_of_several_who_cancel_the_first_is_in_the_outcome_and_all_are_told_the_same(shared_home: Home) -> None:
    async with shared_home.runtime(hangs) as runtime, shared_home.runtime() as other:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("Hi").id("t-1").run())
        await until(lambda: is_asked(session, LlmQuery))
        elsewhere = await other.session("s").open()
        receipts = await soon(
            asyncio.gather(
                *(each.cancel("t-1", by=f"{number}") for number in range(3) for each in (session, elsewhere))
            )
        )
        outcome = (await soon(work)).outcome
        assert stop_of(outcome).by in {"0", "1", "2"}
        assert {receipt.state for receipt in receipts} <= {"stopped", "over"}
        assert all(receipt.outcome == outcome for receipt in receipts)
        assert sum(isinstance(entry.record, StopRecord) for entry in await journal(session)) == 1


async def test_cancel_and_completion_race_and_both_sides_tell_the_same(any_home: Home) -> None:
    async with any_home.runtime(*["Hello"] * 20) as runtime:
        session = await runtime.session("s").open()
        states = set()
        for number in range(20):
            work = asyncio.create_task(session.turn("Hi").id(f"t-{number}").run())
            for _ in range(number):
                await asyncio.sleep(0)
            receipt = await soon(session.cancel(f"t-{number}"))
            result = await soon(work)
            states.add(receipt.state)
            match receipt.state:
                case "stopped":
                    assert stop_of(result.outcome).reason == "cancelled"
                case "over":
                    assert result.outcome == MessageOutcome()
                case "not_begun":
                    assert stop_of(result.outcome).reason == "cancelled"
                case other:
                    pytest.fail(other)
        assert states


async def test_a_turn_that_is_cancelled_before_it_begins_does_not_run(any_home: Home) -> None:
    async with any_home.runtime("first", "third") as runtime:
        session = await runtime.session("s").open()
        receipt = await soon(session.cancel("t-2", reason="changed my mind", by="ann"))
        assert (receipt.state, receipt.turn) == ("not_begun", "t-2")
        again = await soon(session.cancel("t-2", by="bob"))
        assert again.state == "not_begun"
        assert (await soon(session.turn("a").id("t-1").run())).text == "first"
    async with any_home.runtime("third") as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("b").id("t-2").run())
        outcome = stop_of(result.outcome)
        assert (outcome.reason, outcome.detail, outcome.by) == ("cancelled", "changed my mind", "ann")
        assert result.report.calls == result.report.unsettled == 0
        assert (await soon(session.cancel("t-2"))).state == "over"
        assert (await soon(session.turn("c").id("t-3").run())).text == "third"


async def test_a_turn_that_waits_for_another_one_can_be_cancelled_meanwhile(shared_home: Home) -> None:
    release = asyncio.Event()

    async def waits(request: ModelRequest) -> ScriptStep:
        await release.wait()
        return "first"

    async with shared_home.runtime(waits) as runtime, shared_home.runtime() as other:
        session = await runtime.session("s").open()
        one = asyncio.create_task(session.turn("a").id("t-1").run())
        await until(lambda: is_asked(session, LlmQuery))
        two = asyncio.create_task(session.turn("b").id("t-2").run())  # waits for its turn
        await asyncio.sleep(0)
        elsewhere = await other.session("s").open()
        assert (await soon(elsewhere.cancel("t-2"))).state == "not_begun"
        release.set()
        assert (await soon(one)).text == "first"
        assert stop_of((await soon(two)).outcome).reason == "cancelled"


async def test_of_a_session_that_has_ended_no_turn_is_cancelled_ahead(any_home: Home) -> None:
    async with any_home.runtime() as runtime:
        session = await runtime.session("s").open()
        await runtime.mount.holdfast.cancel("s", "closing time")
        assert (await soon(session.cancel("t-1"))).state == "not_found"


async def test_a_handle_cancels_the_turns_that_it_has_begun_and_no_others(any_home: Home) -> None:
    async with any_home.runtime(hangs, hangs, "ok") as runtime:
        mine, theirs = await runtime.session("s").open(), await runtime.session("s").open()
        assert await mine.cancel_running_turns() == 0
        work = asyncio.create_task(mine.turn("Hi").run())
        await until(lambda: is_asked(mine, LlmQuery))
        assert await theirs.cancel_running_turns() == 0
        assert await soon(mine.cancel_running_turns("enough")) == 1
        assert stop_of((await soon(work)).outcome).detail == "enough"
        await mine.enqueue("queued").id("q")
        draining = asyncio.create_task(mine.queued_turn().run())
        await until(lambda: is_asked(mine, LlmQuery))
        assert await soon(mine.cancel_running_turns()) == 1
        await soon(draining)
        assert (await mine.outcome("q")).status == "done"


async def test_children_are_stopped_with_the_turn_of_their_parent(any_home: Home) -> None:
    async with any_home.runtime(hangs, hangs, hangs) as runtime:
        sessions = [
            await runtime.session("parent").open(),
            await runtime.session("child").parent("parent").open(),
            await runtime.session("grandchild").parent("child").open(),
        ]
        idle = await runtime.session("idle").parent("parent").open()
        work = [asyncio.create_task(session.turn("Hi").run()) for session in sessions]
        await until(lambda: _all_asked(sessions))
        await soon(sessions[0].cancel(reason="enough", by="ann"))
        outcomes = [stop_of((await soon(each)).outcome) for each in work]
        assert [outcome.by for outcome in outcomes] == ["ann"] * 3
        assert outcomes[1].detail == "the turn of its parent 'parent' was stopped: enough"
        assert (await idle.read_view()).messages == []


# --- from another process ------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "waits_for"), [("hang", LlmQuery), ("call", ToolQuery), ("approve", HumanQuery)])
async def test_another_process_can_cancel_whatever_is_under_way(
    shared_home: Home, text: str, waits_for: type[Any]
) -> None:
    async with shared_home.runtime("ok", model="m-1") as runtime, Process.on(shared_home.url) as worker:
        work = worker.begin("turn", session="s", text=text, id="t-1")
        await until(lambda: _exists(runtime))
        session = await runtime.session("s").open()
        await until(lambda: is_asked(session, waits_for))
        receipt = await soon(session.cancel("t-1", reason="from afar", by="ann"))
        assert receipt.state == "stopped"
        stopped = stop_of(receipt.outcome)
        assert (stopped.detail, stopped.by) == ("from afar", "ann")
        theirs = (await soon(work))["outcome"]
        assert (theirs["reason"], theirs["detail"], theirs["by"]) == ("cancelled", "from afar", "ann")
        # The effect was reached there: nothing holds the session any more, and it can be used from here.
        await until(lambda: _is_free(runtime))
        assert (await soon(session.turn("More").run())).text == "ok"


async def _all_asked(sessions: list[AgentSession]) -> bool:
    return all([await is_asked(session, LlmQuery) for session in sessions])


async def _exists(runtime: Any) -> bool:
    return any(row.session_id == "s" for row in (await runtime.mount.store.sessions()).rows)


async def _is_free(runtime: Any) -> bool:
    return (await runtime.mount.store.session("s")).owner is None


async def test_a_cancel_reaches_the_items_of_a_worker_in_another_process(shared_home: Home) -> None:
    async with shared_home.runtime() as runtime, Process.on(shared_home.url) as worker:
        session = await runtime.session("s").open()
        await worker.do("work")
        await session.enqueue("hang").id("a")
        await session.enqueue("Hi").id("b")
        await until(lambda: is_asked(session, LlmQuery))
        receipt = await soon(session.cancel(item="a", by="ann"))
        assert (receipt.state, stop_of(receipt.outcome).by) == ("stopped", "ann")
        outcome = await soon(session.wait_for("b"))
        assert outcome.result is not None
        assert outcome.result.text == "re: Hi"


async def test_a_turn_whose_process_is_dead_can_be_cancelled(shared_home: Home) -> None:
    """Whoever cancels does what the dead cannot, at the latest when its lease has run out."""
    async with shared_home.runtime("ok") as runtime:
        async with Process.on(shared_home.url, lease_ms=1_500) as worker:
            worker.begin("turn", session="s", text="hang", id="t-1")
            await until(lambda: _exists(runtime))
            session = await runtime.session("s").open()
            await until(lambda: is_asked(session, LlmQuery))
        receipt = await soon(session.cancel("t-1"))
        assert (receipt.state, stop_of(receipt.outcome).reason) == ("stopped", "cancelled")


async def test_a_cancelled_tool_is_told_so_and_its_result_does_not_count(home: Home) -> None:
    was_cancelled = asyncio.Event()

    async def slow() -> str:
        """Take long."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise
        return "never"

    async with home.runtime(tool_call("slow"), "ok", tools=[slow]) as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("go").run())
        await until(lambda: is_asked(session, ToolQuery))
        await soon(session.cancel(reason="enough"))
        result = await soon(work)
        assert [(call.result, call.is_error) for call in result.tool_calls] == [
            ({"error": "enough", "code": "cancelled"}, True)
        ]
        await soon(was_cancelled.wait())
        assert (await soon(session.turn("Hi").run())).text == "ok"
