"""Processes: background work of sessions, of every kind, with its statuses, wakes, signals and endings."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Approval, Failure, ProcessControls, Rule, Runtime, strategy, tool
from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.processes.errors import NotAProcessError, SignalRefusedError
from holdfast.agent.processes.processes import strategy as strategy_work
from holdfast.agent.processes.processes import tool_call
from holdfast.agent.processes.terms import OutsideWork, ToolWork, TurnWork
from holdfast.core.errors import InvalidValueError, SessionDeletedError, SessionExistsError
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptStep
from holdfast.testing.provider import tool_call as tool_call_step
from tests.agent.helpers import Home, add
from tests.agent.queue_helpers import echo, echoes, text_of


@strategy
async def doubled(ctx: Context) -> int:
    return 2 * int(ctx["number"])


@strategy
async def asked(ctx: Context) -> str:
    return f"they said {await ctx.ask('go on?')}"


safe_add = tool(name="add", recovery="safe")(add)


class Gated:
    """A tool that waits to be let go on."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun = 0

    async def gated(self) -> str:
        """Wait."""
        self.begun += 1
        await self.open.wait()
        return "done"


async def waiting_texts(items: list[Item]) -> list[str]:
    return [block.text for item in items for block in item.content if isinstance(block, TextBlock)]


async def test_a_tool_call_in_the_background(any_home: Home) -> None:
    async with echoes(any_home, tools=[add]) as runtime:
        session = await runtime.session("chat").open()
        receipt = await session.processes().start(tool_call("add", {"a": 2, "b": 40}), recovery="rerunnable")
        report = await soon(session.processes().wait(receipt.id))
        assert (report.status, report.result, report.handle.owner) == ("completed", 42, "chat")
        assert await session.processes().list() == []
        assert [each.id for each in await session.processes().list(every=True)] == [receipt.id]


async def test_a_strategy_in_the_background(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        receipt = await runtime.processes.start(strategy_work(doubled, {"number": 21}), recovery="rerunnable")
        report = await soon(runtime.processes.wait(receipt.id))
        assert (report.status, report.result, report.handle.work) == ("completed", 42, "strategy")


async def test_a_turn_of_a_new_agent_in_the_background(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        receipt = await runtime.processes.start(TurnWork(input="hello"), recovery="rerunnable")
        report = await soon(runtime.processes.wait(receipt.id))
        assert (report.status, report.result) == ("completed", "re: hello")
        agent = await runtime.mount.store.session(f"{receipt.id}-agent")
        assert agent.summary.state.is_terminal


async def test_a_turn_of_a_session_that_is_there(any_home: Home) -> None:
    async with echoes(any_home) as runtime, runtime.work():
        await runtime.session("chat").open()
        receipt = await runtime.processes.start(TurnWork(input="hello", session="chat"), recovery="rerunnable")
        report = await soon(runtime.processes.wait(receipt.id))
        assert (report.status, report.result) == ("completed", "re: hello")


async def test_an_outside_job_waits_for_its_report(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        job = OutsideWork(about="build 7")
        receipt = await runtime.processes.start(job, recovery="external")
        assert (await runtime.processes.show(receipt.id)).status == "waiting"
        await runtime.processes.signal(receipt.id, "priority", 3, key="s1")
        await runtime.processes.signal(receipt.id, "priority", 3, key="s1")
        shown = await runtime.processes.show(receipt.id)
        assert [(each.name, each.value) for each in shown.signals] == [("priority", 3)]
        await runtime.processes.report(receipt.id, {"ok": True})
        report = await soon(runtime.processes.wait(receipt.id))
        assert (report.status, report.result) == ("completed", {"ok": True})


async def test_an_outside_job_may_be_reported_as_failed(home: Home) -> None:
    async with echoes(home) as runtime:
        receipt = await runtime.processes.start(OutsideWork(), recovery="external")
        report = await runtime.processes.report(receipt.id, Failure("disk full"))
        assert (report.status, report.error) == ("failed", "disk full")


async def test_a_recovery_contract_has_to_fit_the_work(home: Home) -> None:
    async with echoes(home) as runtime:
        with pytest.raises(InvalidValueError, match="done outside is 'external'"):
            await runtime.processes.start(OutsideWork(), recovery="rerunnable")
        with pytest.raises(InvalidValueError, match="'external' is for work that is done outside"):
            await runtime.processes.start(ToolWork(tool="add"), recovery="external")
        with pytest.raises(TypeError):
            await runtime.processes.start(ToolWork(tool="add"))
        with pytest.raises(InvalidValueError, match="sometimes"):
            await runtime.processes.start(ToolWork(tool="add"), recovery="sometimes")
        assert await runtime.processes.list(every=True) == []


async def test_a_start_that_is_tried_again_is_replayed(any_home: Home) -> None:
    async with echoes(any_home, tools=[add]) as runtime:
        first = await runtime.processes.start(tool_call("add", {"a": 1, "b": 1}), recovery="rerunnable", id="p-1")
        again = await runtime.processes.start(tool_call("add", {"a": 1, "b": 1}), recovery="rerunnable", id="p-1")
        assert (first.replayed, again.replayed) == (False, True)
        with pytest.raises(SessionExistsError):
            await runtime.processes.start(tool_call("add", {"a": 1, "b": 2}), recovery="rerunnable", id="p-1")


async def test_a_wake_is_one_item_in_the_inbox_of_whoever_waits(any_home: Home) -> None:
    async with echoes(any_home, tools=[add]) as runtime:
        session = await runtime.session("chat").open()
        processes = session.processes()
        receipt = await processes.start(
            tool_call("add", {"a": 2, "b": 40}), recovery="rerunnable", wake=True, label="sum"
        )
        await soon(processes.wait(receipt.id))
        items = await session.queued_work()
        assert [item.id for item in items] == [f"wake-{receipt.id}"]
        assert await waiting_texts(items) == [f"Process {receipt.id} (sum) completed: 42"]


async def test_a_wake_that_nobody_can_get_is_noted(home: Home) -> None:
    async with echoes(home, tools=[add]) as runtime:
        receipt = await runtime.processes.start(
            tool_call("add", {"a": 2, "b": 40}), recovery="rerunnable", wake="nobody"
        )
        report = await soon(runtime.processes.wait(receipt.id))
        assert report.status == "completed"
        entries = [entry.record async for entry in runtime.mount.store.journal(receipt.id)]
        assert any("was not woken" in getattr(record, "message", "") for record in entries)


@pytest.mark.parametrize("how", ["cancel", "abandon"])
async def test_ending_a_process_stops_its_work_and_wakes(any_home: Home, how: str) -> None:
    gate = Gated()
    async with echoes(any_home, tools=[gate.gated]) as runtime:
        session = await runtime.session("chat").open()
        processes = session.processes()
        receipt = await processes.start(tool_call("gated"), recovery="rerunnable", wake=True)
        await until(lambda: gate.begun)
        await getattr(processes, how)(receipt.id, "not needed")
        report = await soon(processes.wait(receipt.id))
        expected = {"cancel": "cancelled", "abandon": "abandoned"}[how]
        assert (report.status, report.error) == (expected, "not needed")
        assert await waiting_texts(await session.queued_work()) == [
            f"Process {receipt.id} (gated) {expected}: not needed"
        ]
        assert (await processes.cancel(receipt.id, "again")).error == "not needed"


async def test_cancelling_a_process_cancels_its_strategy(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        receipt = await runtime.processes.start(strategy_work(asked), recovery="rerunnable")
        report = await runtime.processes.show(receipt.id)
        await until(lambda: _is_waiting(runtime, receipt.id))
        await runtime.processes.cancel(receipt.id)
        assert report.works_in is not None

        async def is_cancelled() -> bool:
            return bool((await runtime.mount.store.session(report.works_in)).summary.state == "cancelled")

        await until(is_cancelled)


async def _is_waiting(runtime: Runtime, process: str) -> bool:
    return (await runtime.processes.show(process)).status == "waiting"


async def test_a_signal_answers_the_question_of_a_strategy(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        receipt = await runtime.processes.start(strategy_work(asked), recovery="rerunnable")
        await until(lambda: _is_waiting(runtime, receipt.id))
        with pytest.raises(SignalRefusedError, match=r"waits for 'go on\?'"):
            await runtime.processes.signal(receipt.id, "stop")
        await runtime.processes.signal(receipt.id, "go on?", "yes")
        assert (await soon(runtime.processes.wait(receipt.id))).result == "they said yes"
        with pytest.raises(SignalRefusedError, match="over"):
            await runtime.processes.signal(receipt.id, "go on?", "yes")


async def test_a_process_ends_with_the_session_that_it_belongs_to(any_home: Home) -> None:
    gate = Gated()
    async with echoes(any_home, tools=[gate.gated]) as runtime:
        session = await runtime.session("chat").open()
        bound = await session.processes().start(tool_call("gated"), recovery="rerunnable")
        free = await session.processes().start(tool_call("gated"), recovery="rerunnable", owner_end="abandon")
        await until(lambda: gate.begun == 2)
        await runtime.mount.holdfast.cancel("chat", "over")
        report = await soon(runtime.processes.wait(bound.id))
        assert report.status == "cancelled"
        assert "its owner 'chat' is cancelled" in (report.error or "")

        async def has_departed() -> bool:
            return bool((await runtime.processes.show(free.id)).status == "caller_departed")

        await until(has_departed)
        gate.open.set()
        assert (await soon(runtime.processes.wait(free.id))).status == "completed"


async def test_a_process_of_a_deleted_session_is_found(home: Home) -> None:
    async with echoes(home) as runtime:
        await runtime.session("chat").open()
        receipt = await runtime.processes.start(OutsideWork(), recovery="external", owner="chat")
        await runtime.mount.holdfast.delete("chat")
        await runtime.mount.owner_ends.look()
        assert (await soon(runtime.processes.wait(receipt.id))).status == "cancelled"


async def test_observers_see_a_process_and_are_not_woken(any_home: Home) -> None:
    async with echoes(any_home) as runtime:
        session = await runtime.session("watcher").open()
        receipt = await runtime.processes.start(OutsideWork(), recovery="external", observers=["watcher"])
        assert [each.id for each in await session.processes().list()] == [receipt.id]
        await runtime.processes.report(receipt.id, 1)
        assert await session.processes().list() == []
        assert [each.id for each in await session.processes().list(every=True)] == [receipt.id]
        assert await session.queued_work() == []
        await runtime.mount.holdfast.delete(receipt.id)
        assert await session.processes().list(every=True) == []


async def test_retention_prunes_what_is_over_and_its_id_is_not_used_again(any_home: Home) -> None:
    async with echoes(any_home, upkeep=Upkeep(on=False, keep_ended_ms=0)) as runtime:
        done = await runtime.processes.start(OutsideWork(), recovery="external", id="p-done")
        left = await runtime.processes.start(OutsideWork(), recovery="external", id="p-left")
        await runtime.processes.report(done.id, 1)
        await until(lambda: _pruned(runtime, done.id))
        assert (await runtime.processes.show(left.id)).status == "waiting"
        with pytest.raises(SessionDeletedError):
            await runtime.processes.start(OutsideWork(), recovery="external", id="p-done")


async def _pruned(runtime: Runtime, process: str) -> bool:
    _, deleted = await runtime.mount.holdfast.clean()
    return process in deleted


async def test_a_process_whose_wake_is_not_delivered_is_not_pruned(home: Home) -> None:
    async with echoes(home, upkeep=Upkeep(on=False, keep_ended_ms=0)) as runtime:
        gate = asyncio.Event()
        send = runtime.mount.holdfast.send

        async def held(*arguments: object) -> object:
            await gate.wait()
            return await send(*arguments)

        session = await runtime.session("chat").open()
        runtime.mount.holdfast.send = held
        receipt = await runtime.processes.start(OutsideWork(), recovery="external", wake="chat")
        await runtime.processes.report(receipt.id, 1)
        assert (await runtime.processes.show(receipt.id)).status == "completed"
        assert await runtime.mount.holdfast.clean() == ([], [])
        gate.set()
        await soon(runtime.processes.wait(receipt.id))
        assert len(await session.queued_work()) == 1


async def test_other_sessions_are_not_processes(home: Home) -> None:
    async with echoes(home) as runtime:
        await runtime.session("chat").open()
        with pytest.raises(NotAProcessError, match="of the kind 'agent'"):
            await runtime.processes.show("chat")


async def test_work_that_is_bound_to_its_os_process_is_abandoned_when_that_is_shut_down(shared_home: Home) -> None:
    gate = Gated()
    async with echoes(shared_home, tools=[gate.gated], close_s=0.05) as runtime:
        call = await runtime.processes.start(tool_call("gated"), recovery="owner_bound")
        run = await runtime.processes.start(strategy_work(asked), recovery="owner_bound")
        again = await runtime.processes.start(strategy_work(asked), recovery="rerunnable")
        await until(lambda: gate.begun)
        await until(lambda: _is_waiting(runtime, run.id))
        await until(lambda: _is_waiting(runtime, again.id))
    async with echoes(shared_home, tools=[gate.gated]) as runtime:
        assert (await soon(runtime.processes.wait(call.id))).status == "abandoned"
        assert (await soon(runtime.processes.wait(run.id))).status == "abandoned"
        assert (await runtime.processes.show(again.id)).status == "waiting"
        assert gate.begun == 1


async def test_a_model_starts_work_and_is_woken(any_home: Home) -> None:
    script: list[ScriptStep] = [
        tool_call_step("start_process", tool="add", arguments={"a": 2, "b": 40}, label="sum"),
        "It is under way.",
        echo,
    ]
    async with any_home.runtime(*script, tools=[safe_add]) as runtime, runtime.work():
        session = await runtime.session("chat").plugin(ProcessControls()).open()
        result = await soon(session.turn("add them").run())
        process = result.tool_calls[0].result["process"]
        await soon(session.processes().wait(process))
        outcome = await soon(session.wait_for(f"wake-{process}"))
        assert text_of(outcome) == f"re: Process {process} (sum) completed: 42"


async def test_a_model_cannot_evade_approval_by_the_background(home: Home) -> None:
    script: list[ScriptStep] = [tool_call_step("start_process", tool="add", arguments={"a": 2, "b": 40}), "no"]
    async with home.runtime(*script, tools=[safe_add]) as runtime:
        rules = Approval(rules=[Rule("add", "confirm")])
        session = await runtime.session("chat").plugin(ProcessControls()).approval(rules).open()
        result = await soon(session.turn("add them").run())
        assert "need an approval" in str(result.tool_calls[0].result)
        assert await session.processes().list(every=True) == []


async def test_a_model_sees_only_its_own_processes(home: Home) -> None:
    script: list[ScriptStep] = [
        tool_call_step("cancel_process", process="p-other"),
        tool_call_step("start_process", strategy="double", arguments={"number": 4}),
        "ok",
    ]
    async with home.runtime(*script) as runtime:
        await runtime.processes.start(OutsideWork(), recovery="external", id="p-other")
        session = await runtime.session("chat").plugin(ProcessControls({"double": doubled})).open()
        result = await soon(session.turn("go").run())
        assert "no process 'p-other' of yours" in str(result.tool_calls[0].result)
        report = await soon(session.processes().wait(result.tool_calls[1].result["process"]))
        assert (report.result, report.handle.owner) == (8, "chat")
