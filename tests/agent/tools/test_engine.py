"""Tools on the engine: driven by it, bounded by it, and recovered by it after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Context, strategy
from holdfast.agent.machine.conversation import tool_done
from holdfast.agent.tools import Finish, ToolContext, ToolDefinitionError, tool
from holdfast.agent.tools.runner import ModelCall, ToolRunner
from holdfast.core.decide import decide_start
from holdfast.core.queries import Failure, ToolQuery, Value
from holdfast.core.records import AnsweredRecord, AttemptedRecord, Entry, PausedRecord, Record
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.engine.drivers import Attempt, NotDone
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.lookup import find_program
from holdfast.store.commits import Commit
from holdfast.testing.patience import soon


@strategy(name="tools-asks")
async def asks(ctx: Context) -> Any:
    try:
        return await ctx.tool("work", n=2)
    except QueryFailedError as failure:
        return [failure.code, str(failure)]


@strategy(name="tools-asks-many")
async def asks_many(ctx: Context) -> Any:
    return await asyncio.gather(*(ctx.tool("work", n=n) for n in range(6)))


@pytest.fixture
async def hf() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory://", upkeep=Upkeep(on=False)) as opened:
        yield opened


async def crashed(hf: Holdfast) -> None:
    """A session as a process has left it that died in the midst of the tool."""
    records: list[Record] = [
        decide_start(find_program(asks)),
        PausedRecord(queries=[ToolQuery(id="q-0", name="work", arguments={"n": 2})]),
        AttemptedRecord(query_id="q-0", driver="tool:work"),
    ]
    entries = [Entry(position, 1, record) for position, record in enumerate(records, 1)]
    summary = summarize(Session.fold("s-1", entries))
    await hf.store.append(
        Commit(session_id="s-1", expected=0, entries=entries, summary=summary, owner="gone", hold_ms=0)
    )


async def outcome(hf: Holdfast, session_id: str) -> Any:
    return await soon(hf.result(session_id))


async def test_a_tool_answers_the_queries_to_it(hf: Holdfast) -> None:
    @tool
    def work(n: int) -> int:
        return n * 10

    ToolRunner().drive(hf, work)
    event = await soon(hf.start(asks))
    assert await outcome(hf, event.session_id) == 20


async def test_arguments_that_do_not_fit_are_a_failure_of_the_query(hf: Holdfast) -> None:
    @tool
    def work(m: int) -> int:
        return m

    ToolRunner().drive(hf, work)
    event = await soon(hf.start(asks))
    code, told = await outcome(hf, event.session_id)
    assert code == "invalid_arguments"
    assert "there is no argument 'n'" in told


async def test_a_tool_with_an_argument_that_drivers_have_themselves_is_refused(hf: Holdfast) -> None:
    @tool
    def work(attempt: int) -> int:
        return attempt

    with pytest.raises(ToolDefinitionError, match="rename that argument"):
        ToolRunner().drive(hf, work)
    assert await soon(ToolRunner().run(work, Attempt("s-1", "q-0", 1), {"attempt": 3})) == 3


async def test_no_more_calls_run_at_once_than_the_tool_allows_and_answers_keep_their_order(hf: Holdfast) -> None:
    running, most = 0, 0

    @tool(concurrency=2)
    async def work(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01 * (6 - n))
        running -= 1
        return n

    ToolRunner().drive(hf, work)
    event = await soon(hf.start(asks_many))
    assert await outcome(hf, event.session_id) == [0, 1, 2, 3, 4, 5]
    assert most == 2


async def test_a_call_of_a_model_is_answered_so_that_its_turn_can_tell_more(hf: Holdfast) -> None:
    async def about(attempt: Attempt) -> ModelCall:
        return ModelCall(turn="t-1", call_id="c-1")

    @tool
    def work(n: int) -> Finish:
        return Finish(n)

    ToolRunner(about=about).drive(hf, work)
    event = await soon(hf.start(asks))
    done = tool_done(Value(value=await outcome(hf, event.session_id)))
    assert done.finish == 2


# --- after a crash --------------------------------------------------------------------------------------


async def test_a_tool_is_never_run_twice_unless_it_says_so(hf: Holdfast) -> None:
    runs: list[int] = []

    @tool
    def work(n: int) -> None:
        runs.append(n)

    ToolRunner().drive(hf, work)
    await crashed(hf)
    await soon(hf.resume("s-1"))
    code, _ = await outcome(hf, "s-1")
    assert (code, runs) == ("unknown_outcome", [])


@pytest.mark.parametrize("recovery", ["safe", "idempotent"])
async def test_a_tool_that_may_be_run_again_has_the_same_key_then(hf: Holdfast, recovery: Any) -> None:
    @tool(recovery=recovery)
    def work(n: int, ctx: ToolContext) -> list[Any]:
        return [ctx.key, ctx.attempt]

    ToolRunner().drive(hf, work)
    await crashed(hf)
    await soon(hf.resume("s-1"))
    assert await outcome(hf, "s-1") == ["s-1/q-0", 2]


def sync_probe(attempt: Attempt) -> Any:
    return {attempt.key: (1, 2)}


async def async_probe(attempt: Attempt) -> Any:
    return {attempt.key: (1, 2)}


@pytest.mark.parametrize("probe", [sync_probe, async_probe])
async def test_a_probe_says_what_the_tool_would_have_said(hf: Holdfast, probe: Any) -> None:
    runs: list[int] = []

    @tool(recovery="confirm", probe=probe)
    def work(n: int) -> None:
        runs.append(n)

    ToolRunner().drive(hf, work)
    await crashed(hf)
    await soon(hf.resume("s-1"))
    assert await outcome(hf, "s-1") == {"s-1/q-0": [1, 2]}
    assert runs == []


async def test_a_probe_that_knows_of_nothing_has_the_tool_run(hf: Holdfast) -> None:
    @tool(recovery="confirm", probe=lambda attempt: NotDone())
    def work(n: int) -> int:
        return n

    ToolRunner().drive(hf, work)
    await crashed(hf)
    await soon(hf.resume("s-1"))
    assert await outcome(hf, "s-1") == 2


async def test_a_probe_that_hangs_leaves_the_outcome_unknown(hf: Holdfast) -> None:
    async def probe(attempt: Attempt) -> Any:
        await asyncio.sleep(60)

    @tool(recovery="confirm", probe=probe, timeout_s=0.05)
    def work(n: int) -> int:
        return n

    ToolRunner().drive(hf, work)
    await crashed(hf)
    await soon(hf.resume("s-1"))
    code, _ = await outcome(hf, "s-1")
    assert code == "unknown_outcome"


async def test_a_failure_is_recorded_once_and_its_call_not_run_again(hf: Holdfast) -> None:
    runs: list[int] = []

    @tool
    def work(n: int) -> None:
        runs.append(n)
        raise ValueError("no")

    ToolRunner().drive(hf, work)
    event = await soon(hf.start(asks))
    await outcome(hf, event.session_id)
    answers = [
        entry.record async for entry in hf.store.journal(event.session_id) if isinstance(entry.record, AnsweredRecord)
    ]
    assert [each.answer for each in answers] == [Failure("ValueError: no", "failed")]
    assert runs == [2]
