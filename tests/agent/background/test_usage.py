"""What processes spend is counted by the session that they work for: in its report, and against its budget."""

from __future__ import annotations

import asyncio

from holdfast import Runtime, strategy
from holdfast.agent.machine.mailbox import SpentMessage
from holdfast.agent.processes.processes import strategy as strategy_work
from holdfast.agent.processes.terms import TurnWork
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.results import TokenUsage
from holdfast.core.queries import Usage
from holdfast.programs.native.ctx import Context
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply
from tests.agent.helpers import Home

USED = Usage(prompt_tokens=10, completion_tokens=5)


@strategy
async def thinks(ctx: Context) -> str:
    return f"{await ctx.llm('one')}{await ctx.llm('two')}"


@strategy
async def thinks_and_asks(ctx: Context) -> str:
    await ctx.llm("one")
    return str(await ctx.ask("go on?"))


def says(*_: object) -> ScriptStep:
    return reply("x", usage=USED)


def talkative(home: Home) -> Runtime:
    return home.runtime(provider=ScriptedProvider([says], loop=True))


async def test_a_process_is_in_the_report_of_its_owner(any_home: Home) -> None:
    async with talkative(any_home) as runtime:
        session = await runtime.session("chat").open()
        await session.turn("hello").run(wait=HANG_S)
        for work in (strategy_work(thinks), TurnWork(input="hi")):
            receipt = await session.processes().start(work, recovery="rerunnable")
            await soon(session.processes().wait(receipt.id))
        report = await session.usage_report()
        assert report.by_source["turn"] == TokenUsage(input=10, output=5, calls=1)
        assert report.by_source["process"] == TokenUsage(input=30, output=15, calls=3)
        assert report.total == TokenUsage(input=40, output=20, calls=4)
        assert report.by_model == {"m-1": TokenUsage(input=40, output=20, calls=4)}  # of the strategy, too
        assert (report.calls, report.unsettled) == (4, 0)
        assert (await session.observe().current()).usage == report
    async with talkative(any_home) as runtime:  # and it is read from the journal
        assert await (await runtime.session("chat").open()).usage_report() == report


async def test_the_turn_of_a_session_that_is_there_is_counted_there_and_not_twice(home: Home) -> None:
    async with talkative(home) as runtime, runtime.work():
        session = await runtime.session("chat").open()
        receipt = await session.processes().start(TurnWork(input="hi", session="chat"), recovery="rerunnable")
        await soon(session.processes().wait(receipt.id))
        assert (await session.usage_report()).by_source == {"turn": TokenUsage(input=10, output=5, calls=1)}


async def test_what_was_spent_before_a_process_was_cancelled_is_counted(any_home: Home) -> None:
    async with talkative(any_home) as runtime:
        session = await runtime.session("chat").open()
        receipt = await session.processes().start(strategy_work(thinks_and_asks), recovery="rerunnable")

        async def waits() -> bool:
            return (await session.processes().show(receipt.id)).status == "waiting"

        await until(waits)
        await session.processes().cancel(receipt.id)
        await soon(session.processes().wait(receipt.id))
        assert (await session.usage_report()).by_source == {"process": TokenUsage(input=10, output=5, calls=1)}


async def test_a_turn_whose_process_is_cancelled_ends_with_it(any_home: Home) -> None:
    begun = asyncio.Event()

    async def never(request: ModelRequest) -> ScriptStep:
        begun.set()
        await asyncio.Event().wait()
        return ""

    async with any_home.runtime(never) as runtime:
        receipt = await runtime.processes.start(TurnWork(input="hi"), recovery="rerunnable")
        await soon(begun.wait())
        await runtime.processes.cancel(receipt.id)
        await soon(runtime.processes.wait(receipt.id))
        assert (await runtime.mount.store.session(f"{receipt.id}-agent")).summary.state.is_terminal


async def test_a_process_that_tells_twice_is_counted_once(any_home: Home) -> None:
    async with talkative(any_home) as runtime:
        session = await runtime.session("chat").open()
        for _ in range(2):
            await runtime.mount.holdfast.send("chat", SpentMessage("p-1", Usage(prompt_tokens=3, llm_calls=1)))
        assert (await session.usage_report()).total == TokenUsage(input=3, calls=1)


async def test_processes_count_against_the_budget_of_their_owner(home: Home) -> None:
    async with talkative(home) as runtime:
        session = await runtime.session("chat").budget(max_llm_calls=2).open()
        receipt = await session.processes().start(strategy_work(thinks), recovery="rerunnable")
        await soon(session.processes().wait(receipt.id))
        stopped = (await session.turn("hello").run(wait=HANG_S)).stopped
        assert stopped is not None
        assert (stopped.reason, stopped.detail.count("max_llm_calls (2) reached")) == ("budget", 1)


async def test_an_owner_that_is_over_leaves_it_to_the_session_that_it_belongs_to(home: Home) -> None:
    async with talkative(home) as runtime:
        session = await runtime.session("chat").open()
        below = await runtime.session("helper").parent("chat").open()
        work = strategy_work(thinks_and_asks)
        receipt = await below.processes().start(work, recovery="rerunnable", owner_end="abandon")

        async def has_asked() -> bool:
            return (await runtime.processes.show(receipt.id)).status in ("waiting", "caller_departed")

        await until(has_asked)
        await runtime.mount.holdfast.cancel("helper")
        await runtime.processes.signal(receipt.id, "go on?", "yes")
        assert (await soon(runtime.processes.wait(receipt.id))).result == "yes"
        assert (await session.usage_report()).by_source == {"process": TokenUsage(input=10, output=5, calls=1)}
