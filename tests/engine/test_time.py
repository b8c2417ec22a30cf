"""What happens because time passes or a process has gone: timers, deadlines, expiry, retention, orphans."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import AnswerConflictError, SessionDeletedError
from holdfast.core.events import ExpiredEvent, PausedEvent, RunningEvent, SentEvent, event_of
from holdfast.core.queries import ChildQuery, LlmQuery, TimerQuery, ToolQuery, Value
from holdfast.core.records import (
    AnsweredRecord,
    CompletedRecord,
    ExpiredRecord,
    PausedRecord,
    Program,
    Record,
)
from holdfast.core.state import State
from holdfast.engine.errors import SessionFailedError
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs import registry
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.store.environment import Environment
from holdfast.testing.patience import soon, until
from tests.engine.helpers import LaterClock, asked, of_type, prompts, quiet, records, result, sqlite, write


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """The store as somebody else sees it."""
    async with open_store(sqlite(tmp_path)) as opened:
        yield opened


@strategy(name="time-asks")
async def asks(ctx: Context) -> str:
    return str(await ctx.llm("?"))


@strategy(name="time-sleeps-an-hour")
async def sleeps_an_hour(ctx: Context) -> str:
    await ctx.sleep(3600)
    return "rested"


@strategy(name="time-naps")
async def naps(ctx: Context) -> str:
    await ctx.sleep(0.3)
    return "rested"


def local_strategy(name: str) -> Program:
    """A program that is known in this process by its name alone, and so can become unknown."""

    async def anonymous(ctx: Context) -> str:
        return str(await ctx.llm("local?"))

    return strategy(name=name)(anonymous).program


# --- timers ---------------------------------------------------------------------------------------------


async def test_a_timer_fires_when_it_is_due(tmp_path: Path) -> None:
    async with open_holdfast(sqlite(tmp_path)) as hf:
        began = time.monotonic()
        assert result(await soon(hf.start(naps))) == "rested"
        assert time.monotonic() - began >= 0.3


async def test_a_timer_fires_in_a_new_engine_after_the_old_one_is_gone(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        event = await hf.start(naps, wait=0.01)
    async with open_holdfast(sqlite(tmp_path)) as hf:
        assert await soon(hf.result(event.session_id)) == "rested"


async def test_a_timer_that_was_due_while_nobody_ran_fires_at_once(store: Store, tmp_path: Path) -> None:
    hour_ms = 3_600_000
    asleep = PausedRecord(queries=[TimerQuery(id="q-0", delay_ms=hour_ms)])
    await write(store, "s", sleeps_an_hour.program, [asleep], at=time.time_ns() // 1_000_000 - hour_ms)
    async with open_holdfast(sqlite(tmp_path)) as hf:
        assert await soon(hf.result("s")) == "rested"


async def test_many_timers_fire_in_the_order_in_which_they_are_due(tmp_path: Path) -> None:
    async def sleeps_in_parallel(ctx: Context) -> list[float]:
        rung: list[float] = []

        async def nap(seconds: float) -> None:
            await ctx.sleep(seconds)
            rung.append(seconds)

        async with asyncio.TaskGroup() as group:
            for seconds in (0.15, 0.05, 0.1):
                group.create_task(nap(seconds))
        return rung

    async with open_holdfast(sqlite(tmp_path)) as hf:
        assert result(await soon(hf.start(sleeps_in_parallel))) == [0.05, 0.1, 0.15]


async def test_timers_of_sessions_that_cannot_run_here_do_not_hold_up_the_others(store: Store, tmp_path: Path) -> None:
    unknown = Program("native", "time-nobody-has-this")
    for n in range(120):
        await write(store, f"stuck-{n}", unknown, [PausedRecord(queries=[TimerQuery(id="q-0", delay_ms=1)])])
    async with open_holdfast(sqlite(tmp_path)) as hf:
        assert result(await soon(hf.start(naps))) == "rested"


# --- deadlines ------------------------------------------------------------------------------------------


async def test_a_question_with_a_deadline_lapses_as_a_failure_with_the_code_timeout(tmp_path: Path) -> None:
    async def asks_with_deadline(ctx: Context) -> str:
        try:
            await ctx.llm_batch([{"prompt": "?", "timeout_ms": 50}])
        except QueryFailedError as failure:
            return failure.code
        return "no"

    async with open_holdfast(sqlite(tmp_path)) as hf:
        event = await hf.start(asks_with_deadline)
        (query,) = asked(event)
        assert query.timeout_ms == 50
        assert "due_at" in event.to_json()
        assert await soon(hf.result(event.session_id)) == "timeout"
        (answered,) = await of_type(hf.store, event.session_id, AnsweredRecord)
        assert answered.by == "clock"


async def test_a_deadline_is_given_to_a_single_question_as_to_one_of_a_batch(tmp_path: Path) -> None:
    async def asks_one_with_deadline(ctx: Context) -> Any:
        return await ctx.llm("?", timeout_ms=50)

    async with quiet(sqlite(tmp_path)) as hf:
        (query,) = asked(await hf.start(asks_one_with_deadline))
        assert query.timeout_ms == 50


async def test_a_driven_question_that_lapses_stops_its_effect(tmp_path: Path) -> None:
    async def tool_with_deadline(ctx: Context) -> str:
        try:
            await ctx.llm_batch([{"prompt": "?", "timeout_ms": 100}])
        except QueryFailedError as failure:
            return failure.code
        return "no"

    async with open_holdfast(sqlite(tmp_path)) as hf:
        hf.drive("llm", lambda query: asyncio.sleep(30))
        assert result(await soon(hf.start(tool_with_deadline))) == "timeout"


# --- expiry and retention -------------------------------------------------------------------------------


async def test_a_session_that_waits_for_a_host_never_expires_by_itself(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        event = await hf.start(asks)
    async with open_holdfast(sqlite(tmp_path), environment=Environment(LaterClock(days=400))) as hf:
        assert await hf.clean() == ([], [])
        assert result(await hf.feed(event.session_id, "at last")) == "at last"


async def test_a_session_idle_past_its_time_expires_with_its_reason_and_stays_readable(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        event = await hf.start(asks)
    await asyncio.sleep(0.1)
    async with open_holdfast(sqlite(tmp_path), upkeep=Upkeep(idle_ttl_ms=50)) as hf:
        with pytest.raises(SessionFailedError, match="no answer for"):
            await soon(hf.result(event.session_id))
        assert isinstance((await records(hf.store, event.session_id))[-1], ExpiredRecord)
        status = await hf.status(event.session_id, history=True)
        assert status["phase"] == "expired"
        assert "the limit is 50 ms" in status["outcome"]["reason"]
        assert status["outcome"]["stats"]["auto"]["llm_calls"] == 1
        session = await hf.store.load(event.session_id)
        assert isinstance(event_of(session, 0), ExpiredEvent)
        fork = await hf.fork(event.session_id, at=2)
        assert prompts(fork) == {"q-0": "?"}


async def test_a_session_that_is_not_idle_long_enough_is_left_alone(tmp_path: Path) -> None:
    async with open_holdfast(sqlite(tmp_path), upkeep=Upkeep(idle_ttl_ms=60_000)) as hf:
        event = await hf.start(asks)
        await asyncio.sleep(0.1)
        assert (await hf.status(event.session_id))["phase"] == "paused"


async def test_a_session_that_waits_for_a_timer_is_not_idle(tmp_path: Path, store: Store) -> None:
    now = time.time_ns() // 1_000_000
    paused = PausedRecord(queries=[TimerQuery(id="q-0", delay_ms=60_000)])
    await write(store, "napping", naps.program, [paused], at=now - 10_000)
    async with open_holdfast(sqlite(tmp_path), upkeep=Upkeep(idle_ttl_ms=1_000)) as hf:
        await asyncio.sleep(0.2)
        assert (await hf.status("napping"))["phase"] == "paused"


async def test_a_child_that_expires_is_a_failure_to_its_parent(tmp_path: Path) -> None:
    async def parent_of_idle(ctx: Context) -> str:
        try:
            return str(await ctx.child(asks))
        except QueryFailedError as failure:
            return failure.code

    async with quiet(sqlite(tmp_path)) as hf:
        event = await soon(hf.start(parent_of_idle))
        assert isinstance(event, PausedEvent)
        await asyncio.sleep(0.02)
        await Upkeep(idle_ttl_ms=10).retention.clean(hf.engine)
        assert (await hf.status(f"{event.session_id}.q-0"))["phase"] == "expired"


async def test_ended_sessions_are_kept_for_as_long_as_was_asked(tmp_path: Path, store: Store) -> None:
    now = time.time_ns() // 1_000_000
    ended: list[Record] = [CompletedRecord(result=1)]
    await write(store, "old", asks.program, ended, at=now - 10_000)
    await write(store, "new", asks.program, ended, at=now)
    await write(store, "waiting", asks.program, [PausedRecord(queries=[LlmQuery(id="q-0", prompt="?")])], at=now)
    async with open_holdfast(sqlite(tmp_path), upkeep=Upkeep(keep_ended_ms=5_000)) as hf:

        async def pruned() -> bool:
            return [row.session_id for row in (await hf.sessions()).rows] == ["waiting", "new"]

        await until(pruned)
        with pytest.raises(SessionDeletedError):
            await hf.status("old")


async def test_nothing_is_deleted_unless_that_was_asked_for(tmp_path: Path, store: Store) -> None:
    await write(store, "ancient", asks.program, [CompletedRecord(result=1)], at=1)
    async with open_holdfast(sqlite(tmp_path)) as hf:
        await asyncio.sleep(0.1)
        assert await hf.result("ancient") == 1


# --- orphans --------------------------------------------------------------------------------------------

ANSWERED: list[Record] = [
    PausedRecord(queries=[LlmQuery(id="q-0", prompt="?")]),
    AnsweredRecord(query_id="q-0", answer=Value(value="!")),
]


async def test_a_running_session_without_owner_is_adopted(tmp_path: Path, store: Store) -> None:
    await write(store, "orphan", asks.program, ANSWERED)
    async with open_holdfast(sqlite(tmp_path)) as hf:
        assert await soon(hf.result("orphan")) == "!"


async def test_a_running_session_with_a_live_owner_is_left_alone(tmp_path: Path, store: Store) -> None:
    await write(store, "owned", asks.program, ANSWERED, hold_ms=60_000)
    async with open_holdfast(sqlite(tmp_path)) as hf:
        await asyncio.sleep(0.2)
        assert (await hf.status("owned"))["phase"] == "running"
        assert isinstance(await soon(hf.resume("owned", wait=0.05)), RunningEvent)


async def test_an_orphan_whose_program_is_not_here_is_left_alone(tmp_path: Path, store: Store) -> None:
    await write(store, "foreign", Program("native", "time-elsewhere"), ANSWERED)
    async with open_holdfast(sqlite(tmp_path)) as hf:
        await asyncio.sleep(0.2)
        assert len(await records(hf.store, "foreign")) == 3
        assert isinstance(await soon(hf.resume("foreign")), RunningEvent)


async def test_orphans_are_found_behind_many_sessions_that_cannot_run_here(tmp_path: Path, store: Store) -> None:
    await write(store, "orphan", asks.program, ANSWERED)
    for n in range(120):
        await write(store, f"foreign-{n}", Program("native", "time-elsewhere"), ANSWERED)
    async with open_holdfast(sqlite(tmp_path)) as hf:
        assert await soon(hf.result("orphan")) == "!"


async def test_an_answer_to_a_session_whose_program_is_not_here_waits_in_its_mailbox(tmp_path: Path) -> None:
    program = local_strategy("time-comes-and-goes")
    async with quiet(sqlite(tmp_path)) as hf:
        event = await hf.start(program)
    known = registry._registered.pop("time-comes-and-goes")
    async with quiet(sqlite(tmp_path)) as hf:
        fed = await soon(hf.feed(event.session_id, "!"))
        assert isinstance(fed, SentEvent)
        assert fed.program == "time-comes-and-goes"
        again = await soon(hf.feed(event.session_id, "!"))
        assert (isinstance(again, SentEvent), again.replayed) == (True, True)
        with pytest.raises(AnswerConflictError):
            await hf.feed(event.session_id, "?")
        assert isinstance((await records(hf.store, event.session_id))[-1], PausedRecord)
        assert len(await hf.store.mailbox(event.session_id)) == 1
    registry._registered[known.name] = known
    async with open_holdfast(sqlite(tmp_path)) as hf:
        assert await soon(hf.result(event.session_id)) == "!"


async def test_an_engine_without_the_program_of_a_child_does_not_answer_for_it(tmp_path: Path) -> None:
    child = local_strategy("time-child")

    async def parent_elsewhere(ctx: Context) -> str:
        return str(await ctx.child("time-child"))

    program = strategy(name="time-parent")(parent_elsewhere).program
    async with quiet(sqlite(tmp_path)) as hf:
        event = await soon(hf.start(program))
        assert isinstance(event, PausedEvent)
    known = {name: registry._registered.pop(name) for name in ("time-child", "time-parent")}
    async with open_holdfast(sqlite(tmp_path)) as hf:
        await asyncio.sleep(0.3)
        assert await of_type(hf.store, event.session_id, AnsweredRecord) == []
        assert (await hf.status(event.session_id))["phase"] == "paused"
    registry._registered.update(known)
    async with open_holdfast(sqlite(tmp_path)) as hf:
        assert result(await soon(hf.feed(f"{event.session_id}.q-0", "!"))) == "!"
        assert await soon(hf.result(event.session_id)) == "!"
    assert child.name == "time-child"


async def test_a_child_that_was_never_started_is_started_by_whoever_finds_its_parent(
    tmp_path: Path, store: Store
) -> None:
    @strategy(name="time-lost-parent")
    async def lost_parent(ctx: Context) -> str:
        return str(await ctx.child(asks))

    child = asks.program
    paused = PausedRecord(queries=[ChildQuery(id="q-0", program=child.name)])
    await write(store, "lost", lost_parent.program, [paused])
    async with open_holdfast(sqlite(tmp_path)) as hf:

        async def started() -> bool:
            return any(row.session_id == "lost.q-0" for row in (await hf.sessions()).rows)

        await until(started)
        await soon(hf.feed("lost.q-0", "!"))
        assert await soon(hf.result("lost")) == "!"


async def test_a_tool_that_waits_is_taken_up_by_an_engine_that_drives_it(tmp_path: Path) -> None:
    @strategy(name="time-waits-for-tool")
    async def waits_for_tool(ctx: Context) -> Any:
        return await ctx.tool("time-tool")

    async with quiet(sqlite(tmp_path)) as hf:
        event = await hf.start(waits_for_tool)
        assert asked(event) == [ToolQuery(id="q-0", name="time-tool")]
    async with open_holdfast(sqlite(tmp_path)) as hf:
        hf.drive("time-tool", lambda: "driven")
        assert await soon(hf.result(event.session_id)) == "driven"


async def test_the_upkeep_of_one_session_leaves_all_but_it_and_its_children_alone(tmp_path: Path, store: Store) -> None:
    asleep = [PausedRecord(queries=[TimerQuery(id="q-0", delay_ms=300)])]
    for session_id in ("mine", "mine2", "yours"):
        await write(store, session_id, naps.program, asleep, at=1)
    for session_id in ("mine.q-1", "mine3", "theirs"):
        await write(store, session_id, asks.program, ANSWERED)
    async with open_holdfast(sqlite(tmp_path), upkeep=Upkeep(only="mine")) as hf:
        assert await soon(hf.result("mine")) == "rested"
        assert await soon(hf.result("mine.q-1")) == "!"
        states = [(await store.session(each)).summary.state for each in ("mine2", "yours", "mine3", "theirs")]
    assert states == [State.PAUSED, State.PAUSED, State.RUNNING, State.RUNNING]


async def test_a_session_that_expired_is_in_its_state_for_every_listing(tmp_path: Path) -> None:
    async with open_holdfast(sqlite(tmp_path), upkeep=Upkeep(idle_ttl_ms=0)) as hf:
        event = await hf.start(asks)
        await Upkeep(idle_ttl_ms=0).retention.clean(hf.engine)
        assert (await hf.store.session(event.session_id)).summary.state is State.EXPIRED


async def test_a_timer_is_met_however_long_the_look_before_took(tmp_path: Path) -> None:
    looks: list[float] = []
    slow = open_store(sqlite(tmp_path))
    due = slow.due

    async def slowly(*arguments: Any, **options: Any) -> list[tuple[str, int]]:
        began = time.monotonic()
        await asyncio.sleep(0.5)
        found = await due(*arguments, **options)
        looks.append(time.monotonic() - began)
        return found

    slow.due = slowly  # type: ignore[method-assign]
    async with open_holdfast(slow) as hf:
        await asyncio.sleep(0)  # the first look has begun
        began = time.monotonic()
        await hf.start(naps, id="nap", wait=0)
        assert await soon(hf.result("nap")) == "rested"
        took = time.monotonic() - began
        assert took < 0.3 + 6 * max(looks), "it was put off for several times as long as a look takes"
