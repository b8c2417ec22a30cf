"""Effects of turns on the engine: done once, written ahead, recovered by policy, waited for, and taken over."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import CallQuery, InputQuery, ReplyQuery
from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.tools import Tool, ToolContext
from holdfast.core.errors import AnswerConflictError, UnknownQueryError
from holdfast.core.queries import Failure, ToolQuery, Value
from holdfast.core.records import (
    AnsweredRecord,
    AttemptedRecord,
    Entry,
    PausedRecord,
    Program,
    Record,
    StartedRecord,
    attempted_in,
)
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.engine.drivers import NotDone
from holdfast.programs.errors import DivergenceError, QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store import Store
from holdfast.store.commits import Commit
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import tool_call
from tests.agent.helpers import OBJECT, Home, add, journal, said
from tests.paths import REPO


async def waiting_tool(session: AgentSession) -> str:
    """The query of a call that waits for somebody, once there is one."""
    found: list[str] = []

    async def look() -> bool:
        asked = (await session.conversation(fresh=True)).asked.values()
        found[:] = [query.id for query in asked if isinstance(query, ToolQuery)]
        return bool(found)

    await until(look)
    return found[0]


async def written_by_another(store: Store, session_id: str, *records: Record, hold_ms: int = 0) -> None:
    """A session as a process that is gone has left it."""
    policy = msgspec.to_builtins(Policy(provider="scripted", model="m-1"))
    started = StartedRecord(program=Program("agent", "agent"), ctx={"policy": policy})
    now = time.time_ns() // 1_000_000
    entries = [Entry(position, now, record) for position, record in enumerate([started, *records], 1)]
    summary = summarize(Session.fold(session_id, entries))
    await store.append(
        Commit(session_id=session_id, expected=0, entries=entries, summary=summary, owner="gone", hold_ms=hold_ms)
    )


INPUT: list[Record] = [
    PausedRecord(queries=[InputQuery(id="q-0")]),
    AnsweredRecord(query_id="q-0", answer=Value(value={"turn": "t-1", "content": [{"type": "text", "text": "go"}]})),
]
CALL = {"content": [{"type": "tool_use", "id": "c-1", "name": "work", "input": {}}], "stop": "tool_use"}


# --- once -----------------------------------------------------------------------------------------------


async def test_what_is_completed_is_returned_and_never_run_again(home: Home) -> None:
    ran: list[str] = []

    async def work(ctx: ToolContext) -> str:
        """Work."""
        ran.append(ctx.key)
        return "worked"

    hangs: Any = lambda request: asyncio.sleep(60, "late")  # noqa: E731
    async with home.runtime(tool_call("work"), hangs, tools=[work]) as runtime:
        session = await runtime.session("s").open()
        work_of_turn = asyncio.create_task(session.turn("go").id("t-1").run())
        await until(lambda: len(runtime.providers["scripted"].requests) == 2)  # type: ignore[attr-defined]
        work_of_turn.cancel()
    async with home.runtime("done", tools=[work]) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("go").id("t-1").run())
        assert (result.text, result.tool_calls[0].result) == ("done", "worked")
        assert len(runtime.providers["scripted"].requests) == 1  # type: ignore[attr-defined]
    assert len(ran) == 1


async def test_an_attempt_is_written_ahead_of_the_tool_and_its_key_names_the_call(home: Home) -> None:
    seen: list[tuple[str, int, list[str]]] = []

    async def work(ctx: ToolContext) -> None:
        """Work."""
        records = [entry.record async for entry in runtime.mount.store.journal("s")]
        attempts = [asked for record in records for asked in attempted_in(record)]
        seen.append((ctx.key, ctx.attempt, attempts))

    calls: list[Any] = [tool_call("work"), tool_call("work")]
    async with home.runtime(calls, "done", tools=[work]) as runtime:
        await soon((await runtime.session("s").open()).turn("go").run())
    assert sorted((key, attempt) for key, attempt, _ in seen) == [("s/q-2", 1), ("s/q-3", 1)]
    assert all({"q-1", "q-2", "q-3"} <= set(attempts) for *_, attempts in seen)


async def test_an_effect_in_progress_is_waited_for_by_whoever_else_wants_it(shared_home: Home) -> None:
    ran: list[str] = []
    gate = asyncio.Event()

    async def work(ctx: ToolContext) -> str:
        """Work."""
        ran.append(ctx.key)
        await gate.wait()
        return "worked"

    async with (
        shared_home.runtime(tool_call("work"), "done", tools=[work]) as runtime,
        shared_home.runtime(tools=[work]) as other,
    ):
        first = asyncio.create_task((await runtime.session("s").open()).turn("go").id("t-1").run())
        await until(lambda: ran)
        second = asyncio.create_task((await other.session("s").open()).turn("go").id("t-1").run())
        await asyncio.sleep(0.1)
        assert not second.done()
        gate.set()
        one, two = await soon(asyncio.gather(first, second))
        assert one.tool_calls[0].result == two.tool_calls[0].result == "worked"
    assert len(ran) == 1


async def test_a_journal_that_asks_something_else_than_the_turn_would_is_a_divergence_that_shows_both(
    home: Home,
) -> None:
    """The recorded query is the hash that a replay must meet."""
    async with home.runtime("never said") as runtime:
        store = runtime.mount.store
        await written_by_another(store, "s", *INPUT, PausedRecord(queries=[ToolQuery(id="q-1", name="work")]))
        session = await runtime.session("s").open()
        before = await journal(session)
        with pytest.raises(DivergenceError) as caught:
            await soon(session.answer("q-1", "worked"))
        assert "work" in str(caught.value)
        assert await journal(session) == before
        assert await said(session) == [("user", "go")]


# --- a process that is gone -----------------------------------------------------------------------------

FIRST_RUN, SECOND_RUN, FAILED = "first run", "second run", "unknown_outcome"


def _raise(attempt: Any) -> Any:
    raise OSError("the ledger is away")


@pytest.mark.parametrize(
    ("recovery", "probe", "runs", "outcome"),
    [
        ("never", None, 1, FAILED),
        ("safe", None, 2, SECOND_RUN),
        ("idempotent", None, 2, SECOND_RUN),
        ("confirm", lambda attempt: FIRST_RUN, 1, FIRST_RUN),
        ("confirm", lambda attempt: NotDone(), 2, SECOND_RUN),
        ("confirm", _raise, 1, FAILED),
        ("confirm", lambda attempt: Failure("it was refused", "refused"), 1, "refused"),
    ],
)
async def test_a_tool_whose_process_went_away_is_recovered_by_its_policy(
    home: Home, recovery: Any, probe: Callable[..., Any] | None, runs: int, outcome: str
) -> None:
    keys: list[tuple[str, int]] = []

    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        keys.append((ctx.key, ctx.attempt))
        if len(keys) == 1:
            await asyncio.sleep(60)
        return SECOND_RUN

    tool = Tool.of(pay, recovery=recovery, probe=probe)
    async with home.runtime(tool_call("pay"), tools=[tool]) as runtime:
        session = await runtime.session("s").open()
        work = asyncio.create_task(session.turn("Pay").id("t-1").run())
        await until(lambda: keys)
        work.cancel()
    async with home.runtime("I see.", tools=[tool]) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("Pay").id("t-1").run())
        assert result.text == "I see."
        (call,) = result.tool_calls
        assert (call.result["code"] if call.is_error else call.result) == outcome
    assert keys == [(keys[0][0], number + 1) for number in range(runs)]


async def test_a_session_whose_owner_is_gone_is_taken_over_when_its_lease_has_run_out(shared_home: Home) -> None:
    ran: list[tuple[float, int]] = []

    async def work(ctx: ToolContext) -> str:
        """Work."""
        ran.append((time.monotonic(), ctx.attempt))
        return "worked"

    async with shared_home.runtime("done", tools=[Tool.of(work, recovery="safe")]) as runtime:
        begun = time.monotonic()
        await written_by_another(
            runtime.mount.store,
            "s",
            *INPUT,
            PausedRecord(queries=[ReplyQuery(id="q-1", iteration=1)]),
            AttemptedRecord(query_id="q-1", driver="llm"),
            AnsweredRecord(query_id="q-1", answer=Value(value=CALL), by="llm"),
            PausedRecord(queries=[CallQuery(id="q-2", name="work", call_id="c-1")]),
            AttemptedRecord(query_id="q-2", driver="tool:work"),
            hold_ms=400,
        )
        result = await soon((await runtime.session("s").open()).turn("go").id("t-1").run())
        assert (result.text, result.tool_calls[0].result) == ("done", "worked")
        ((at, attempt),) = ran
        assert attempt == 2
        assert at - begun >= 0.39


# --- deferred -------------------------------------------------------------------------------------------


def declared(runtime: Runtime, **deadline: Any) -> Runtime:
    runtime.tools.declare("approve", "Ask somebody.", OBJECT, **deadline)
    return runtime


async def test_a_declared_tool_waits_survives_a_restart_and_is_answered_then(home: Home) -> None:
    calls: list[Any] = [tool_call("approve", what="this"), tool_call("add", a=1, b=2)]
    async with declared(home.runtime(calls, tools=[add])) as runtime:
        session = await runtime.session("s").open()
        turn = asyncio.create_task(session.turn("May I?").id("t-1").run())
        asked = await waiting_tool(session)
        with session.mount.store.watch("s") as changes:
            while len((await session.conversation()).asked) > 1:  # the other call is to be done
                await changes.changed()
        turn.cancel()
    async with declared(home.runtime("Thank you.", tools=[add])) as runtime:
        session = await runtime.session("s").open()
        turn = asyncio.create_task(session.turn("May I?").id("t-1").run())
        await session.answer(asked, {"approved": True})
        result = await soon(turn)
        assert result.text == "Thank you."
        assert [call.result for call in result.tool_calls] == [{"approved": True}, 3]


async def test_a_declared_tool_is_answered_by_another_process(shared_home: Home) -> None:
    """While this one works on another call of the same reply, and so owns the session."""
    gate = asyncio.Event()

    async def work() -> str:
        """Work."""
        await gate.wait()
        return "worked"

    async def child(answer: Any) -> str:
        command = (sys.executable, "-m", "tests.agent.answer_child", shared_home.url, "s", asked, json.dumps(answer))
        process = await asyncio.create_subprocess_exec(*command, cwd=REPO, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        return (await process.stdout.read()).decode().strip()

    calls: list[Any] = [tool_call("approve"), tool_call("work")]
    async with declared(shared_home.runtime(calls, "Thank you.", tools=[work])) as runtime:
        session = await runtime.session("s").open()
        turn = asyncio.create_task(session.turn("May I?").run())
        asked = await waiting_tool(session)
        assert await soon(child({"approved": True})) == "ok"
        assert await soon(child({"approved": False})) == "answer_conflict"
        assert not turn.done()
        gate.set()
        result = await soon(turn)
        assert [call.result for call in result.tool_calls] == [{"approved": True}, "worked"]


async def test_of_several_answers_the_first_counts_and_the_others_are_told(home: Home) -> None:
    async with declared(home.runtime([tool_call("approve"), tool_call("approve")], "Thank you.")) as runtime:
        session = await runtime.session("s").open()
        turn = asyncio.create_task(session.turn("May I?").run())
        asked = await waiting_tool(session)
        await session.answer(asked, "yes")
        await session.answer(asked, "yes")
        with pytest.raises(AnswerConflictError, match="no"):
            await session.answer(asked, "no")
        with pytest.raises(UnknownQueryError):
            await session.answer("q-99", "yes")
        await session.answer(await waiting_tool(session), Failure("nobody is in", "refused"))
        result = await soon(turn)
        assert [(call.result, call.is_error) for call in result.tool_calls] == [
            ("yes", False),
            ({"error": "nobody is in", "code": "refused"}, True),
        ]


async def test_a_deadline_that_passes_is_a_result_for_the_model(home: Home) -> None:
    async with declared(home.runtime(tool_call("approve"), "Then not."), timeout_s=0.05) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("May I?").run())
        assert result.text == "Then not."
        (call,) = result.tool_calls
        assert (call.is_error, call.result["code"]) == (True, "timeout")


async def test_a_deadline_that_passes_can_stop_the_turn(home: Home) -> None:
    runtime = declared(home.runtime(tool_call("approve"), "Hello"), timeout_s=0.05, on_timeout="stop")
    async with runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("May I?").run())
        assert isinstance(result.outcome, StoppedOutcome)
        assert (result.outcome.reason, result.outcome.tool) == ("tool_failure", "approve")
        assert (await soon(session.turn("Hi").run())).text == "Hello"


@pytest.mark.parametrize("on_timeout", ["result", "stop"])
async def test_a_deadline_passes_also_while_no_process_is_there(home: Home, on_timeout: str) -> None:
    async with declared(home.runtime(tool_call("approve")), timeout_s=0.1, on_timeout=on_timeout) as runtime:
        session = await runtime.session("s").open()
        turn = asyncio.create_task(session.turn("May I?").id("t-1").run())
        await waiting_tool(session)
        turn.cancel()
    await asyncio.sleep(0.12)
    async with home.runtime("Then not.") as runtime:  # which need not know the tool any more
        session = await runtime.session("s").open()
        result = await soon(session.turn("May I?").id("t-1").run())
        assert result.tool_calls[0].result["code"] == "timeout"
        assert result.is_success == (on_timeout == "result")


async def test_an_answer_in_time_is_an_answer(home: Home) -> None:
    async with declared(home.runtime(tool_call("approve"), "Thanks."), timeout_s=60, on_timeout="stop") as runtime:
        session = await runtime.session("s").open()
        turn = asyncio.create_task(session.turn("May I?").run())
        await session.answer(await waiting_tool(session), "yes")
        assert (await soon(turn)).text == "Thanks."


# --- groups: the tools of a runtime, as strategies call them --------------------------------------------


@strategy(name="effects-all")
async def takes_all(ctx: Context) -> Any:
    return await asyncio.gather(ctx.tool("slow"), ctx.tool("quick"))


@strategy(name="effects-first")
async def takes_first(ctx: Context) -> Any:
    slow, quick = (asyncio.ensure_future(ctx.tool(name)) for name in ("slow", "quick"))
    done, rest = await asyncio.wait([slow, quick], return_when=asyncio.FIRST_COMPLETED)
    first = [each.result() for each in done]
    if ctx["losers"] == "cancel":
        for loser in rest:
            loser.cancel()
        return [first, await ctx.tool("quick")]
    return [first, await slow]


@strategy(name="effects-success")
async def takes_first_success(ctx: Context) -> Any:
    waiting = {asyncio.ensure_future(ctx.tool(name)) for name in ("fails", "slow")}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            try:
                return each.result()
            except QueryFailedError:
                continue
    return "none"


@strategy(name="effects-options")
async def asks_with_odd_options(ctx: Context) -> Any:
    return await ctx.llm_batch([{"prompt": "x", "iteration": 3}, {"prompt": "y", "keep": 1, "remark": "no"}])


async def test_a_strategys_option_that_is_called_as_an_agents_field_is_only_an_option(home: Home) -> None:
    async with home.runtime("one", "two") as runtime:
        event = await soon(runtime.mount.holdfast.start(asks_with_odd_options, id="odd"))
        assert sorted(event.result) == ["one", "two"]
        journal = runtime.mount.store.journal("odd")
        [paused] = [entry.record async for entry in journal if isinstance(entry.record, PausedRecord)]
        assert [query.to_json()["options"] for query in paused.queries] == [
            {"iteration": 3},
            {"keep": 1, "remark": "no"},
        ]


class Group:
    """Tools of which one is slow."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.ended: list[str] = []
        self.quick_ran = asyncio.Event()

    async def slow(self) -> str:
        """Take long."""
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("done")
        return "slow"

    async def quick(self) -> str:
        """Be quick."""
        self.quick_ran.set()
        return "quick"

    async def fails(self) -> str:
        """Fail."""
        raise LookupError("nothing")

    def tools(self) -> list[Tool]:
        return [Tool.of(self.slow), Tool.of(self.quick), Tool.of(self.fails)]


async def test_a_group_that_takes_all_waits_for_the_last(home: Home) -> None:
    group = Group()
    async with home.runtime(tools=group.tools()) as runtime:
        hf = runtime.mount.holdfast
        await hf.start(takes_all, id="s", wait=0)
        await soon(group.quick_ran.wait())
        group.gate.set()
        assert await soon(hf.result("s")) == ["slow", "quick"]


async def test_a_group_that_takes_the_first_lets_the_losers_run_to_completion(home: Home) -> None:
    group = Group()
    async with home.runtime(tools=group.tools()) as runtime:
        hf = runtime.mount.holdfast
        await hf.start(takes_first, id="s", ctx={"losers": "run"}, wait=0)
        await soon(group.quick_ran.wait())
        group.gate.set()
        assert await soon(hf.result("s")) == [["quick"], "slow"]
    assert group.ended == ["done"]


async def test_a_group_that_takes_the_first_can_cancel_the_losers(home: Home) -> None:
    group = Group()
    async with home.runtime(tools=group.tools()) as runtime:
        hf = runtime.mount.holdfast
        await hf.start(takes_first, id="s", ctx={"losers": "cancel"}, wait=0)
        assert await soon(hf.result("s")) == [["quick"], "quick"]
        await until(lambda: group.ended)
    assert group.ended == ["cancelled"]


async def test_a_group_that_takes_the_first_success_passes_over_failures(home: Home) -> None:
    group = Group()
    group.gate.set()
    async with home.runtime(tools=group.tools()) as runtime:
        hf = runtime.mount.holdfast
        await hf.start(takes_first_success, id="s", wait=0)
        assert await soon(hf.result("s")) == "slow"
