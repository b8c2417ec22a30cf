"""Schedules: due runs are started once, whatever the clock, the fleet and the run before do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Runtime
from holdfast.agent.processes.processes import tool_call
from holdfast.agent.processes.terms import EmitWork, OutsideWork, TurnWork
from holdfast.agent.triggers.history import RunReport
from holdfast.agent.triggers.terms import EventSource
from holdfast.core.errors import InvalidValueError
from holdfast.store.environment import Environment
from holdfast.testing.patience import soon, until
from tests.agent.background.clocks import HOUR, MINUTE, NOON, SetClock
from tests.agent.helpers import Home
from tests.agent.queue_helpers import echoes

JOB = OutsideWork(about="nightly build")


def clocked(home: Home, clock: SetClock, **options: Any) -> Any:
    return echoes(home, environment=Environment(clock=clock), **options)


async def runs(runtime: Runtime, name: str, wanted: Callable[[list[RunReport]], bool]) -> list[RunReport]:
    """The runs of a schedule, the earliest first, once they are as they should be."""

    found: list[RunReport] = []

    async def is_so() -> bool:
        found[:] = list(await runtime.triggers.history(name, limit=100))[::-1]
        return wanted(found)

    await until(is_so)
    return found


async def test_a_schedule_starts_a_run_at_each_of_its_times(any_home: Home) -> None:
    clock = SetClock()
    async with clocked(any_home, clock) as runtime:
        made = await runtime.triggers.schedule("tick", JOB, cron="0 * * * *", recovery="external", overlap="cancel")
        assert [each.name for each in await runtime.triggers.list(clock=True)] == ["tick"]
        assert not made.is_over
        found: list[RunReport] = []
        for hour in (1, 2):
            clock.at = NOON + hour * HOUR
            found = await runs(runtime, "tick", lambda history, hour=hour: len(history) == hour)  # type: ignore[misc]
            assert found[-1].key == str(clock.at)
        assert [each.status for each in found] == ["cancelled", "waiting"]
        report = await runtime.processes.show(found[-1].process)
        assert report.terms.origin["time"] == "2026-07-01T14:00:00Z"
        assert (await runtime.triggers.show("tick")).next == NOON + 3 * HOUR


async def test_an_overlap_is_skipped(home: Home) -> None:
    clock = SetClock()
    async with clocked(home, clock) as runtime:
        await runtime.triggers.schedule("job", JOB, every=60, recovery="external", overlap="skip")
        await until(lambda: _has_next(runtime, "job"))
        clock.at += MINUTE
        first = (await runs(runtime, "job", lambda history: len(history) == 1))[0]
        clock.at += MINUTE
        second = (await runs(runtime, "job", lambda history: len(history) == 2))[1]
        assert (first.did, second.did) == ("started", "skipped")
        assert first.process in second.why
        await runtime.processes.report(first.process, "done")
        clock.at += MINUTE
        third = (await runs(runtime, "job", lambda history: len(history) == 3))[2]
        assert third.did == "started"


async def test_an_overlap_is_queued(home: Home) -> None:
    clock = SetClock()
    async with clocked(home, clock) as runtime:
        await runtime.triggers.schedule("job", JOB, every=60, recovery="external", overlap="queue", missed="all")
        await until(lambda: _has_next(runtime, "job"))
        clock.at += 3 * MINUTE
        started = await runs(runtime, "job", lambda history: len(history) == 1)
        await until(lambda: _queued(runtime, "job", 2))
        await runtime.processes.report(started[0].process, 1)
        started = await runs(runtime, "job", lambda history: len(history) == 2)
        await runtime.processes.report(started[1].process, 2)
        started = await runs(runtime, "job", lambda history: len(history) == 3)
        assert [int(run.key) - NOON for run in started] == [MINUTE, 2 * MINUTE, 3 * MINUTE]
        assert [run.status for run in started] == ["completed", "completed", "waiting"]


async def _queued(runtime: Runtime, name: str, count: int) -> bool:
    return (await runtime.triggers.show(name)).queued == count


async def _has_next(runtime: Runtime, name: str) -> bool:
    return (await runtime.triggers.show(name)).next is not None


async def test_runs_that_were_missed_while_nobody_was_there(shared_home: Home) -> None:
    clock = SetClock()
    kinds = {"none": 0, "last": 1, "all": 3}
    async with clocked(shared_home, clock) as runtime:
        for missed in kinds:
            await runtime.triggers.schedule(
                missed, TurnWork(input="x"), cron="0 * * * *", missed=missed, missed_limit=3, overlap="queue"
            )
            await until(lambda missed=missed: _has_next(runtime, missed))  # type: ignore[misc]
    clock = SetClock(NOON + 5 * HOUR + 30 * MINUTE)
    async with clocked(shared_home, clock) as runtime:
        for missed, expected in kinds.items():
            await until(lambda missed=missed: _is_at(runtime, missed, NOON + 6 * HOUR))  # type: ignore[misc]
            await runs(runtime, missed, lambda history, expected=expected: len(history) == expected)  # type: ignore[misc]


async def _is_at(runtime: Runtime, name: str, following: int) -> bool:
    return (await runtime.triggers.show(name)).next == following


async def test_a_clock_that_jumps_starts_no_run_twice(shared_home: Home) -> None:
    clock = SetClock()
    async with clocked(shared_home, clock) as runtime:
        await runtime.triggers.schedule("job", TurnWork(input="x"), cron="0 * * * *", overlap="queue")
        await until(lambda: _has_next(runtime, "job"))
        clock.at = NOON + 1 * HOUR
        await runs(runtime, "job", lambda history: len(history) == 1)
    for jump in (-3 * HOUR, 2 * HOUR, 1 * HOUR, -24 * HOUR, 3 * HOUR):
        clock = SetClock(NOON + jump)
        async with clocked(shared_home, clock) as runtime:
            await runtime.triggers.run("job", key=f"probe{jump}")  # so that it is looked at, whatever the time
            await runs(runtime, "job", lambda history, jump=jump: any(run.key == f"run:probe{jump}" for run in history))  # type: ignore[misc]
    async with clocked(shared_home, clock) as runtime:
        await until(lambda: _is_at(runtime, "job", NOON + 4 * HOUR))
        history = await runs(runtime, "job", lambda history: len(history) >= 8)
        times = [int(run.key) - NOON for run in history if not run.key.startswith("run:")]
        assert times == [HOUR, 2 * HOUR, 3 * HOUR]
        assert len({run.process for run in history}) == len(history)


async def test_a_clock_that_jumps_while_a_process_runs_starts_no_run_twice(any_home: Home) -> None:
    clock = SetClock()
    async with clocked(any_home, clock) as runtime:
        await runtime.triggers.schedule("job", JOB, cron="0 * * * *", recovery="external", overlap="cancel")
        await until(lambda: _has_next(runtime, "job"))
        # Forwards to the first time, back by a day, forwards again, far forwards, and back a little.
        steps = [(1, 2), (-23, 2), (2, 3), (30, 31), (29, 31), (31, 32)]
        for number, (hours, following) in enumerate(steps):
            clock.at = NOON + hours * HOUR
            await runtime.triggers.run("job", key=f"probe{number}")  # so that it is looked at, whatever the time
            await runs(runtime, "job", lambda history, n=number: any(run.key == f"run:probe{n}" for run in history))  # type: ignore[misc]
            await until(lambda following=following: _is_at(runtime, "job", NOON + following * HOUR))  # type: ignore[misc]
        history = await runs(runtime, "job", lambda history: len(history) >= 10)
        times = [(int(run.key) - NOON) // HOUR for run in history if not run.key.startswith("run:")]
        assert times == [1, 2, 30, 31]
        assert len({run.process for run in history}) == len(history)


async def test_one_process_of_a_fleet_starts_each_run(shared_home: Home) -> None:
    clock = SetClock()
    async with clocked(shared_home, clock) as here, clocked(shared_home, clock) as there:
        await here.triggers.schedule("job", JOB, every=60, recovery="external", overlap="cancel")
        await until(lambda: _has_next(here, "job"))
        for number in range(1, 6):
            clock.at += MINUTE
            await runs(there, "job", lambda history, number=number: len(history) == number)  # type: ignore[misc]
        handles = await there.processes.list(every=True)
        assert len(handles) == 5


async def test_a_schedule_is_paused_resumed_run_and_removed(any_home: Home) -> None:
    clock = SetClock()
    async with clocked(any_home, clock) as runtime:
        await runtime.triggers.schedule("job", JOB, every=60, recovery="external", overlap="cancel")
        await until(lambda: _has_next(runtime, "job"))
        await runtime.triggers.disable("job")
        clock.at += 10 * MINUTE
        assert (await runtime.triggers.show("job")).next is None
        await runtime.triggers.enable("job")
        await until(lambda: _is_at(runtime, "job", NOON + 11 * MINUTE))
        assert await runtime.triggers.history("job") == []
        await runtime.triggers.run("job", key="now")
        await runtime.triggers.run("job", key="now")
        (run,) = await runs(runtime, "job", lambda history: len(history) == 1)
        assert (run.key, run.status) == ("run:now", "waiting")
        await runtime.triggers.remove("job")
        assert await runtime.triggers.list() == []
        assert (await runtime.processes.show(run.process)).status in ("waiting", "caller_departed")


async def test_a_single_run_ends_its_schedule(any_home: Home) -> None:
    clock = SetClock()
    async with clocked(any_home, clock) as runtime:
        with pytest.raises(InvalidValueError, match="has passed"):
            await runtime.triggers.schedule("late", JOB, at=NOON / 1000 - 1, recovery="external")
        await runtime.triggers.schedule("once", JOB, at=NOON / 1000 + 60, recovery="external")
        await until(lambda: _has_next(runtime, "once"))
        clock.at += MINUTE
        await runs(runtime, "once", lambda history: len(history) == 1)

        async def is_over() -> bool:
            return not await runtime.triggers.list()

        await until(is_over)


async def test_a_schedule_of_a_session_begins_its_turns(home: Home) -> None:
    clock = SetClock()
    async with clocked(home, clock) as runtime, runtime.work():
        session = await runtime.session("chat").open()
        await session.triggers().schedule("report", "Write the report. $event", every=60)
        await until(lambda: _has_next(runtime, "report"))
        clock.at += MINUTE
        (run,) = await runs(runtime, "report", lambda history: len(history) == 1)
        report = await soon(runtime.processes.wait(run.process))
        assert report.result.startswith('re: Write the report. {"type":"schedule","key":"report"')


async def test_a_schedule_may_emit(home: Home) -> None:
    clock = SetClock()
    async with clocked(home, clock) as runtime:
        await runtime.triggers.declare("hour")
        await runtime.triggers.register("listener", EventSource(type="hour"), JOB, recovery="external")
        await runtime.triggers.schedule("hourly", EmitWork(type="hour", payload={"at": "$time"}), cron="0 * * * *")
        await until(lambda: _has_next(runtime, "hourly"))
        clock.at += HOUR
        (run,) = await runs(runtime, "listener", lambda history: len(history) == 1)
        report = await runtime.processes.show(run.process)
        assert report.terms.origin["payload"] == {"at": "2026-07-01T13:00:00Z"}


async def test_what_cannot_be_started_is_in_the_history(home: Home) -> None:
    clock = SetClock()
    async with clocked(home, clock) as runtime:
        await runtime.triggers.schedule("job", tool_call("nothing"), every=60)
        await until(lambda: _has_next(runtime, "job"))
        clock.at += MINUTE
        (run,) = await runs(runtime, "job", lambda history: len(history) == 1)
        await asyncio.sleep(0)
        assert (await runtime.processes.show(run.process)).status == "running"  # it waits for who has the tool
