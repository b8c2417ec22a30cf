"""Queues: items that are sent to sessions, by many, and worked by whoever drains their inboxes, once each."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.agent.errors import UnknownItemError
from holdfast.agent.machine.errors import ItemConflictError
from holdfast.agent.machine.inbox import MAX_JOINED, ItemCancellation
from holdfast.agent.machine.records import EnqueuedRecord
from holdfast.agent.machine.turn import MessageOutcome, StoppedOutcome, ValueOutcome
from holdfast.agent.providers.provider import ModelRequest
from holdfast.core.errors import InvalidValueError
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.provider import ScriptStep, tool_call
from tests.agent.helpers import Home, add, journal, said
from tests.agent.processes import Process
from tests.agent.queue_helpers import Gate, echo, echoes, inputs, text_of

# --- the claim rule, on every store --------------------------------------------------------------------

PREFIXES: dict[str, tuple[list[tuple[str, dict[str, str]]], list[list[str]]]] = {
    "one": ([("a", {})], [["a"]]),
    "exclusive items one by one": ([("a", {}), ("b", {})], [["a"], ["b"]]),
    "joined items together": ([("a", {"slot": "join"}), ("b", {"slot": "join"})], [["a", "b"]]),
    "joined items up to an exclusive one": (
        [("a", {"slot": "join"}), ("b", {}), ("c", {"slot": "join"})],
        [["a"], ["b"], ["c"]],
    ),
    "joined items of one merge key": (
        [("a", {"slot": "join", "key": "x"}), ("b", {"slot": "join", "key": "y"})],
        [["a"], ["b"]],
    ),
    "joined items of one delivery": (
        [("a", {"slot": "join", "delivery": "boundary"}), ("b", {"slot": "join"})],
        [["a"], ["b"]],
    ),
}


@pytest.mark.parametrize("case", PREFIXES)
async def test_the_prefix_rule(any_home: Home, case: str) -> None:
    sent, expected = PREFIXES[case]
    async with echoes(any_home) as runtime:
        session = await runtime.session("s").open()
        for item_id, how in sent:
            builder = session.enqueue(item_id).id(item_id).slot(how.get("slot", "exclusive"), how.get("key", ""))
            await builder.delivery(how.get("delivery", "after_turn"))
        results = await soon(session.queued_turn().run())
        assert await inputs(session) == expected
        assert [result.outcome for result in results] == [MessageOutcome()] * len(expected)
        assert await session.queued_work() == []


async def test_a_join_group_has_a_limit(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        session = await runtime.session("s").open()
        for number in range(MAX_JOINED + 2):
            await session.enqueue("x").id(f"i{number}").slot("join")
        await soon(session.queued_turn().run())
        assert [len(items) for items in await inputs(session)] == [MAX_JOINED, 2]


async def test_a_command_goes_first_and_alone(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        session = await runtime.session("s").open()
        await session.enqueue("a").id("a").slot("join")
        await session.enqueue_command("compact").id("c")
        await session.enqueue("b").id("b").slot("join")
        await soon(session.queued_turn().run())
        assert await inputs(session) == [["c"], ["a", "b"]]
        outcome = await session.outcome("c")
        assert outcome.result is not None
        assert isinstance(outcome.result.outcome, StoppedOutcome)  # there was nothing to sum up
        assert outcome.result.outcome.reason == "invalid_input"


async def test_only_items_for_the_next_boundary_enter_a_running_turn(any_home: Home) -> None:
    gate = Gate()
    async with any_home.runtime(gate, echo, echo, echo) as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("first").run())
        await until(lambda: gate.asked)
        await session.enqueue("now").id("now").delivery("boundary")
        await session.enqueue("then").id("then")
        await session.enqueue("past it").id("past").delivery("boundary")
        gate.open.set()
        result = await soon(work)
        assert [message.text for message in result.messages] == ["first", "re: first", "now", "re: now"]
        assert [item.id for item in await session.queued_work()] == ["then", "past"]
        assert (await session.outcome("now")).turn == result.turn
        await soon(session.queued_turn().run())
        assert await inputs(session) == [["now"], ["then", "past"]]  # the last one entered the turn of the second


async def test_an_item_is_shown_after_the_results_of_tools_and_not_between(any_home: Home) -> None:
    is_there, may_go = asyncio.Event(), asyncio.Event()

    async def look() -> str:
        """Look."""
        is_there.set()
        await may_go.wait()
        return "seen"

    seen: list[list[str]] = []

    def last(request: ModelRequest) -> ScriptStep:
        seen.append([message.role for message in request.messages])
        return "Done."

    async with any_home.runtime([tool_call("look"), tool_call("add", a=1, b=2)], last, tools=[look, add]) as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("go").run())
        await soon(is_there.wait())
        await session.enqueue("and also").id("also").delivery("boundary")
        may_go.set()
        assert (await soon(work)).outcome == MessageOutcome()
        assert seen == [["user", "assistant", "tool", "tool", "user"]]
        assert text_of(await session.outcome("also")) == "Done."


async def test_an_item_is_not_worked_before_its_time(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        session = await runtime.session("s").open()
        await session.enqueue("later").id("later").after(0.4)
        await session.enqueue("tomorrow").id("tomorrow").available_at(time.time() + 86_400)
        await session.enqueue("now").id("now")
        assert [result.text for result in await soon(session.queued_turn().run())] == ["re: now"]
        async with runtime.work():
            began = time.time()
            assert text_of(await soon(session.wait_for("later"))) == "re: later"
            assert time.time() - began < 3
        result = (await session.outcome("later")).result
        assert result is not None
        assert result.started_at >= next(
            entry.record.item.available_at
            for entry in await journal(session)
            if isinstance(entry.record, EnqueuedRecord) and entry.record.item.id == "later"
        )
        assert [item.id for item in await session.queued_work()] == ["tomorrow"]


# --- ids -----------------------------------------------------------------------------------------------


async def test_the_same_id_and_content_gets_the_same_receipt(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        session = await runtime.session("s").open()
        first = await session.enqueue("Hi").id("req-9").by("ann")
        again = await session.enqueue("Hi").id("req-9")
        assert (first.item_id, first.replayed) == ("req-9", False)
        assert (again.item_id, again.replayed) == ("req-9", True)
        await soon(session.queued_turn().run())
        assert (await session.enqueue("Hi").id("req-9")).replayed
        assert await soon(session.queued_turn().run()) == []
    async with echoes(any_home) as runtime:
        session = await runtime.session("s").open()
        assert (await session.enqueue("Hi").id("req-9")).replayed
        assert await said(session) == [("user", "Hi"), ("assistant", "re: Hi")]


async def test_the_same_id_and_other_content_is_a_conflict(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        session = await runtime.session("s").open()
        await session.enqueue("Hi").id("req-9")
        for other in (
            session.enqueue("Ho"),
            session.enqueue("Hi").slot("join"),
            session.enqueue("Hi").delivery("boundary"),
            session.enqueue_command("compact"),
        ):
            with pytest.raises(ItemConflictError):
                await other.id("req-9")
        assert [item.id for item in await session.queued_work()] == ["req-9"]


async def test_ids_are_known_across_processes(shared_home: Home) -> None:
    async with echoes(shared_home) as runtime, Process.on(shared_home.url) as other:
        session = await runtime.session("s").open()
        await session.enqueue("Hi").id("ours")
        assert (await other.do("enqueue", session="s", text="Hi", id="ours"))["replayed"] is True
        assert await other.do("enqueue", session="s", text="Ho", id="ours") == {"error": "item_conflict"}
        assert (await other.do("enqueue", session="s", text="Ha", id="theirs"))["replayed"] is False
        with pytest.raises(ItemConflictError):
            await session.enqueue("Ho").id("theirs")
        assert (await session.enqueue("Ha").id("theirs")).replayed


async def test_items_reach_a_turn_that_another_process_is_at_work_on(shared_home: Home) -> None:
    gate = Gate()
    async with shared_home.runtime(gate, echo, echo) as runtime, Process.on(shared_home.url) as other:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("first").run())
        await until(lambda: gate.asked)
        receipt = await other.do("enqueue", session="s", text="too", id="i-1", delivery="boundary")
        assert (receipt["item_id"], receipt["replayed"]) == ("i-1", False)
        assert (await other.do("enqueue", session="s", text="too", id="i-1", delivery="boundary"))["replayed"] is True
        assert await other.do("enqueue", session="s", text="other", id="i-1") == {"error": "item_conflict"}
        gate.open.set()
        assert (await soon(work)).text == "re: too"
        assert (await other.do("wait_for", session="s", item="i-1"))["result"]["outcome"] == {"type": "message"}


# --- what comes of an item -----------------------------------------------------------------------------


async def test_an_outcome_can_be_read_at_any_time_and_later(any_home: Home) -> None:
    gate = Gate()
    async with any_home.runtime(gate) as runtime:
        session = await runtime.session("s").open()
        with pytest.raises(UnknownItemError, match="'nothing'"):
            await session.outcome("nothing")
        await session.enqueue("Hi").id("i-1")
        assert (await session.outcome("i-1")).status == "waiting"
        work = asyncio.create_task(session.queued_turn().run())
        await until(lambda: gate.asked)
        assert (await session.outcome("i-1")).status == "running"
        gate.open.set()
        await soon(work)
        assert text_of(await session.outcome("i-1")) == "re: Hi"
    async with any_home.runtime() as runtime:
        session = await runtime.session("s").open()
        outcome = await session.outcome("i-1")
        assert (outcome.status, text_of(outcome)) == ("done", "re: Hi")
        assert outcome == await session.wait_for("i-1", timeout=0)


async def test_waiting_for_an_item_has_an_end_and_can_be_tried_again(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        session = await runtime.session("s").open()
        await session.enqueue("Hi").id("i-1")
        with pytest.raises(TimeoutError):
            await session.wait_for("i-1", timeout=0.05)
        waiting = asyncio.create_task(session.wait_for("i-1"))
        await soon(session.queued_turn().run())
        assert (await soon(waiting)).status == "done"


async def test_waiting_for_an_item_ends_when_another_process_has_drained_it(shared_home: Home) -> None:
    async with echoes(shared_home) as runtime, Process.on(shared_home.url) as other:
        session = await runtime.session("s").open()
        await other.do("work")
        await session.enqueue("Hi").id("i-1")
        assert text_of(await soon(session.wait_for("i-1"))) == "re: Hi"


async def test_an_item_can_come_to_a_value(home: Home) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    async with home.runtime(tool_call("finish", sum=3)) as runtime:
        session = await runtime.session("s").open()
        await session.enqueue("1 + 2").id("i-1").output(schema)
        await soon(session.queued_turn().run())
        result = (await session.outcome("i-1")).result
        assert result is not None
        assert result.outcome == ValueOutcome({"sum": 3})


async def test_what_was_configured_is_in_force_for_every_turn_that_begins_after(home: Home) -> None:
    models: list[str] = []

    def note(request: ModelRequest) -> ScriptStep:
        models.append(request.model)
        return "ok"

    async with home.runtime(note, note, note) as runtime:
        session = await runtime.session("s").open()
        await session.enqueue("a")
        await session.configure(model="m-2")
        await session.enqueue("b")
        await soon(session.queued_turn().run())
        await session.enqueue("c")
        await session.configure(model="m-3")
        await soon(session.queued_turn().run())
        assert models == ["m-2", "m-2", "m-3"]


async def test_an_item_with_a_wrong_setting_is_refused_before_it_is_sent(home: Home) -> None:
    async with echoes(home) as runtime:
        session = await runtime.session("s").open()
        with pytest.raises(InvalidValueError, match="sometime"):
            await session.enqueue("a").delivery("sometime")
        assert await session.queued_work() == []


# --- cancelling ----------------------------------------------------------------------------------------


async def test_cancelling_a_pending_item_takes_it_out_with_evidence(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        session = await runtime.session("s").open()
        for name in "abc":
            await session.enqueue(name).id(name)
        outcome = await session.cancel_queued_work("a", "wrong chat", by="ann")
        assert outcome.status == "cancelled"
        assert isinstance(outcome.cancelled, ItemCancellation)
        assert (outcome.cancelled.reason, outcome.cancelled.by) == ("wrong chat", "ann")
        assert outcome.cancelled.at >= (await journal(session))[0].at
        assert (await session.cancel(item="b", reason="no", by="bob")).state == "withdrawn"
        assert (await session.cancel(item="b")).state == "over"
        assert (await session.cancel(item="nothing")).state == "not_found"
        assert await session.wait_for("b", timeout=HANG_S) == await session.outcome("b")
        await soon(session.queued_turn().run())
        assert await said(session) == [("user", "c"), ("assistant", "re: c")]


async def test_cancelling_a_claimed_item_stops_its_turn(any_home: Home) -> None:
    gate = Gate()
    async with any_home.runtime(gate, echo) as runtime:
        session = await runtime.session("s").open()
        await session.enqueue("a").id("a")
        await session.enqueue("b").id("b")
        work = asyncio.create_task(session.queued_turn().run())
        await until(lambda: gate.asked)
        assert (await session.cancel_queued_work("a")).status == "running"  # that takes out only what waits
        receipt = await soon(session.cancel(item="a", reason="no", by="ann"))
        assert (receipt.state, receipt.item) == ("stopped", "a")
        outcome = await session.outcome("a")
        assert outcome.result is not None
        assert isinstance(outcome.result.outcome, StoppedOutcome)
        assert (outcome.result.outcome.reason, outcome.result.outcome.by) == ("cancelled", "ann")
        await soon(work)
        assert text_of(await session.outcome("b")) == "re: b"
        assert (await session.cancel(item="a")).state == "over"


async def test_cancelling_an_item_that_has_entered_a_turn_unseen_leaves_the_turn_alone(any_home: Home) -> None:
    gate = Gate()
    async with any_home.runtime(gate, echo) as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("first").run())
        await until(lambda: gate.asked)
        await session.enqueue("too").id("too").delivery("boundary")
        assert (await session.outcome("too")).status == "running"
        assert (await soon(session.cancel(item="too"))).state == "withdrawn"
        gate.open.set()
        assert (await soon(work)).text == "re: first"
        assert (await session.outcome("too")).status == "cancelled"


async def test_what_waits_when_a_session_ends_is_settled(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        session = await runtime.session("s").open()
        await session.enqueue("a").id("a")
        waiting = asyncio.create_task(session.wait_for("a"))
        await runtime.mount.holdfast.cancel("s", "away")
        assert (await soon(waiting)).status == "cancelled"
