"""Triggers: declared events, subscriptions with revisions, and exactly one start for each occurrence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Runtime, strategy
from holdfast.agent.processes.processes import strategy as strategy_work
from holdfast.agent.processes.terms import EmitWork, TurnWork
from holdfast.agent.triggers.errors import (
    EmitConflictError,
    InvalidPayloadError,
    RevisionConflictError,
    TriggerExistsError,
    TriggerNotFoundError,
    UnknownEventTypeError,
)
from holdfast.agent.triggers.terms import EventSource
from holdfast.core.errors import InvalidValueError
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon, until
from tests.agent.helpers import Home
from tests.agent.queue_helpers import echoes

ORDER = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


@strategy
async def billed(ctx: Context) -> float:
    return 2 * float(ctx["payload"]["total"])


async def declared(runtime: Runtime) -> None:
    await runtime.triggers.declare("order.created", ORDER)


async def test_an_event_starts_each_of_its_triggers_once(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        await declared(runtime)
        triggers = runtime.triggers
        await triggers.register("bill", EventSource(type="order.created"), strategy_work(billed))
        await triggers.register("greet", EventSource(type="order.created"), TurnWork(input="A new order:"))
        await triggers.register("other", EventSource(type="order.created", key="eu"), strategy_work(billed))
        receipt = await triggers.emit("order.created", "us", {"total": 21}, idempotency_key="o-17")
        assert list(receipt.processes) == ["trigger:default:bill", "trigger:default:greet"]
        bill = await soon(_over(runtime, receipt.processes["trigger:default:bill"]))
        assert (bill.status, bill.result) == ("completed", 42)
        greet = await soon(_over(runtime, receipt.processes["trigger:default:greet"]))
        assert greet.result.startswith('re: A new order:\n\n{"type":"order.created","key":"us"')
        again = await triggers.emit("order.created", "us", {"total": 21}, idempotency_key="o-17")
        assert (again.replayed, again.processes) == (True, receipt.processes)
        assert len(await runtime.processes.list(every=True)) == 3  # the event itself, and what it started
        history = await triggers.history("bill")
        assert [(run.process, run.status) for run in history] == [(bill.id, "completed")]


async def _over(runtime: Runtime, process: str) -> Any:
    async def exists() -> bool:
        return any(each.id == process for each in await runtime.processes.list(every=True))

    await until(exists)
    return await runtime.processes.wait(process)


async def test_the_same_idempotency_key_with_other_content_is_a_conflict(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        await declared(runtime)
        await runtime.triggers.emit("order.created", "us", {"total": 1}, idempotency_key="o-1")
        with pytest.raises(EmitConflictError, match="o-1"):
            await runtime.triggers.emit("order.created", "us", {"total": 2}, idempotency_key="o-1")


async def test_an_event_that_was_pruned_is_not_started_again(home: Home) -> None:
    async with echoes(home, upkeep=Upkeep(on=False, keep_ended_ms=0)) as runtime:
        await declared(runtime)
        await runtime.triggers.register("bill", EventSource(type="order.created"), strategy_work(billed))
        receipt = await runtime.triggers.emit("order.created", "", {"total": 1}, idempotency_key="k")
        await soon(runtime.processes.wait(receipt.occurrence))
        await soon(_over(runtime, receipt.processes["trigger:default:bill"]))

        async def pruned() -> bool:
            await runtime.mount.holdfast.clean()
            return not await runtime.processes.list(every=True)

        await until(pruned)
        assert (await runtime.triggers.emit("order.created", "", {"total": 1}, idempotency_key="k")).replayed
        assert await runtime.processes.list(every=True) == []


async def test_payloads_are_checked_against_the_declared_schema(home: Home) -> None:
    async with echoes(home) as runtime:
        with pytest.raises(UnknownEventTypeError, match="declared are: none"):
            await runtime.triggers.emit("order.created")
        await declared(runtime)
        with pytest.raises(InvalidPayloadError, match="total"):
            await runtime.triggers.emit("order.created", "us", {"sum": 1})
        with pytest.raises(UnknownEventTypeError):
            await runtime.triggers.register("x", EventSource(type="order.paid"), TurnWork(input="x"))
        assert await runtime.processes.list(every=True) == []


async def test_a_declaration_has_a_revision(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        first = await runtime.triggers.declare("order.created", ORDER)
        assert (await runtime.triggers.declare("order.created", ORDER)).revision == first.revision == 1
        changed = await runtime.triggers.declare("order.created", {"type": "object"}, revision=1)
        assert changed.revision == 2
        with pytest.raises(RevisionConflictError, match="expected revision 1, found 2"):
            await runtime.triggers.declare("order.created", ORDER, revision=1)
        assert [each.type for each in await runtime.triggers.event_types()] == ["order.created"]


async def test_every_change_of_a_trigger_is_fenced_by_its_revision(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        await declared(runtime)
        triggers = runtime.triggers
        first = await triggers.register("bill", EventSource(type="order.created"), strategy_work(billed))
        again = await triggers.register("bill", EventSource(type="order.created"), strategy_work(billed))
        assert again == first
        with pytest.raises(TriggerExistsError):
            await triggers.register("bill", EventSource(type="order.created", key="eu"), strategy_work(billed))
        off = await triggers.disable("bill", revision=first.revision)
        assert (off.terms.enabled, off.revision > first.revision) == (False, True)
        for change in (triggers.enable, triggers.disable, triggers.remove):
            with pytest.raises(RevisionConflictError):
                await change("bill", revision=first.revision)
        with pytest.raises(RevisionConflictError):
            await triggers.update("bill", revision=first.revision, wake="chat")
        assert (await triggers.emit("order.created", "", {"total": 1})).processes == {}
        on = await triggers.enable("bill", revision=off.revision)
        assert list((await triggers.emit("order.created", "", {"total": 1})).processes) == [on.id]
        with pytest.raises(InvalidValueError, match="cannot be changed"):
            await triggers.update("bill", source=EventSource(type="order.paid"))
        gone = await triggers.remove("bill", revision=on.revision)
        assert gone.is_over
        assert await triggers.list() == []
        with pytest.raises(TriggerNotFoundError):
            await triggers.show("bill")
        revived = await triggers.register("bill", EventSource(type="order.created"), strategy_work(billed))
        assert (revived.id, revived.name) == ("trigger:default:bill=2", "bill")
        assert [each.id for each in await triggers.list()] == [revived.id]


async def test_of_two_who_change_a_trigger_one_is_refused(shared_home: Home) -> None:
    async with echoes(shared_home) as here, echoes(shared_home) as there:
        await declared(here)
        first = await here.triggers.register("bill", EventSource(type="order.created"), strategy_work(billed))
        changes = [
            each.triggers.update("bill", revision=first.revision, wake=f"s{n}") for n, each in enumerate((here, there))
        ]
        done = await asyncio.gather(*changes, return_exceptions=True)
        assert sorted(type(each).__name__ for each in done) == ["RevisionConflictError", "TriggerView"]


async def test_two_who_emit_the_same_start_it_once(shared_home: Home) -> None:
    async with echoes(shared_home) as here, echoes(shared_home) as there:
        await declared(here)
        await here.triggers.register("bill", EventSource(type="order.created"), strategy_work(billed))
        emits = [
            each.triggers.emit("order.created", "", {"total": 3}, idempotency_key="k") for each in (here, there) * 5
        ]
        receipts = await asyncio.gather(*emits)
        assert sum(not each.replayed for each in receipts) == 1
        (process,) = {each.processes["trigger:default:bill"] for each in receipts}
        assert (await soon(_over(here, process))).result == 6
        assert len([each for each in await here.processes.list(every=True) if each.work == "strategy"]) == 1


async def test_a_trigger_of_a_session_begins_its_turns_and_ends_with_it(any_home: Home) -> None:
    async with echoes(any_home) as runtime, runtime.work():
        await declared(runtime)
        session = await runtime.session("chat").open()
        await session.triggers().register("orders", EventSource(type="order.created"), "Look at this: $event")
        receipt = await session.triggers().emit("order.created", "", {"total": 3})
        (process,) = receipt.processes.values()
        report = await soon(_over(runtime, process))
        assert report.result.startswith('re: Look at this: {"type":"order.created"')
        assert [each.name for each in await session.triggers().list()] == ["orders"]
        await runtime.mount.holdfast.cancel("chat")
        assert await runtime.triggers.list() == []


async def test_an_event_may_start_another(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        await declared(runtime)
        await runtime.triggers.declare("order.billed")
        forward = EmitWork(type="order.billed", key="$key", payload="$payload")
        await runtime.triggers.register("forward", EventSource(type="order.created"), forward)
        await runtime.triggers.register("bill", EventSource(type="order.billed"), strategy_work(billed))
        await runtime.triggers.emit("order.created", "k", {"total": 4})

        async def result() -> object:
            done = [
                each for each in await runtime.processes.list(every=True) if each.work == "strategy" and each.is_over
            ]
            return (await runtime.processes.show(done[0].id)).result if done else None

        assert await until(result) == 8


async def test_triggers_of_other_services_are_not_concerned(home: Home) -> None:
    async with echoes(home, service=["shop", "bank"]) as runtime:
        await declared(runtime)
        await runtime.triggers.declare("order.created", service="bank")
        await runtime.triggers.register(
            "bill", EventSource(type="order.created"), strategy_work(billed), service="bank"
        )
        assert (await runtime.triggers.emit("order.created", "", {"total": 1})).processes == {}
        assert len((await runtime.triggers.emit("order.created", "", {"total": 1}, service="bank")).processes) == 1
