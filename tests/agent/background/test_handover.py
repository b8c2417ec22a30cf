"""The journal of a schedule is bounded: a successor continues it, without a run, a change or the history being lost."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Runtime
from holdfast.agent.processes.terms import OutsideWork, TurnWork
from holdfast.agent.triggers import machine
from holdfast.agent.triggers.errors import RevisionConflictError
from holdfast.agent.triggers.history import RunReport
from holdfast.agent.triggers.machine import trigger_fold
from holdfast.core.errors import SessionNotFoundError
from holdfast.testing.patience import until
from tests.agent.background.clocks import MINUTE, NOON, SetClock
from tests.agent.background.test_schedules import clocked, runs
from tests.agent.helpers import Home

JOB = OutsideWork(about="nightly build")

FEW = 30
"""Records after which a schedule is continued here: some six runs."""


@pytest.fixture(autouse=True)
def short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_RECORDS", FEW)


async def times(runtime: Runtime, count: int) -> list[RunReport]:
    return await runs(runtime, "job", lambda history: len(history) >= count)


async def sessions_of(runtime: Runtime) -> list[str]:
    rows = await runtime.mount.store.all_sessions()
    return sorted(row.session_id for row in rows if row.session_id.startswith("trigger:"))


async def run_minutes(runtime: Runtime, clock: SetClock, first: int, last: int) -> None:
    """Let the clock pass minute after minute, each when the run of the one before has been started."""
    for minute in range(first, last + 1):
        clock.at = NOON + minute * MINUTE

        async def has_run(minute: int = minute) -> bool:
            return (await runtime.triggers.show("job")).next == NOON + (minute + 1) * MINUTE

        await until(has_run)


async def test_a_full_journal_is_continued_by_a_successor_that_starts_each_run_once(any_home: Home) -> None:
    clock = SetClock()
    async with clocked(any_home, clock) as runtime:
        await runtime.triggers.schedule("job", JOB, cron="* * * * *", recovery="external", overlap="cancel")
        await run_minutes(runtime, clock, 1, 16)
        views = await runtime.triggers.list()
        assert [view.name for view in views] == ["job"]
        assert views[0].id != "trigger:default:job"
        session = await runtime.mount.holdfast.session(views[0].id)
        assert session.position < FEW + 10
        handles = await runtime.processes.list(every=True)
        planned = [(await runtime.processes.show(each.id)).terms.origin["at"] for each in handles]
        assert sorted(map(int, planned)) == [NOON + minute * MINUTE for minute in range(1, 17)]


async def test_the_history_reaches_back_to_the_session_before_and_older_ones_are_deleted(home: Home) -> None:
    clock = SetClock()
    async with clocked(home, clock) as runtime:
        await runtime.triggers.schedule("job", JOB, cron="* * * * *", recovery="external", overlap="cancel")
        await run_minutes(runtime, clock, 1, 16)
        history = await runtime.triggers.history("job", limit=100)
        assert [int(run.key) for run in history] == [NOON + (16 - n) * MINUTE for n in range(len(history))]
        assert len(history) > FEW // 5
        assert [run.key for run in await runtime.triggers.history("job", limit=3)] == [run.key for run in history[:3]]
        assert len(await sessions_of(runtime)) == 2
        with pytest.raises(SessionNotFoundError):
            await runtime.mount.store.session("trigger:default:job")


async def test_terms_revisions_requests_and_the_last_run_are_handed_over(home: Home) -> None:
    clock = SetClock()
    async with clocked(home, clock) as runtime:
        made = await runtime.triggers.schedule("job", JOB, cron="* * * * *", recovery="external", overlap="cancel")
        changed = await runtime.triggers.update("job", missed="none", revision=made.revision)
        await runtime.triggers.run("job", key="by-hand")
        await run_minutes(runtime, clock, 1, 10)
        now = await runtime.triggers.show("job")
        assert (now.terms.missed, now.revision) == ("none", changed.revision)
        assert now.last is not None
        with pytest.raises(RevisionConflictError):
            await runtime.triggers.disable("job", revision=made.revision)
        await runtime.triggers.run("job", key="by-hand")  # the same request as before
        paused = await runtime.triggers.disable("job", revision=changed.revision)
        assert paused.revision > changed.revision
        started = [await runtime.processes.show(each.id) for each in await runtime.processes.list(every=True)]
        assert sum(report.terms.origin.get("type") == "request" for report in started) == 1


async def test_changes_that_come_while_it_is_handed_over_are_not_lost(any_home: Home) -> None:
    clock = SetClock()
    async with clocked(any_home, clock) as runtime:
        await runtime.triggers.schedule("job", TurnWork(input="x"), cron="* * * * *", overlap="queue")
        asked = []

        async def ask(number: int) -> None:
            await runtime.triggers.run("job", key=f"k{number}")
            asked.append(f"run:k{number}")

        for first in range(0, 24, 6):
            clock.at += MINUTE
            await asyncio.gather(*(ask(first + n) for n in range(6)))

        async def all_ran() -> bool:
            started = [await runtime.processes.show(each.id) for each in await runtime.processes.list(every=True)]
            keys = [f"run:{report.terms.origin.get('request')}" for report in started]
            return sorted(key for key in keys if key in asked) == sorted(asked)

        await until(all_ran)
        assert len(await sessions_of(runtime)) <= 3
        session = await runtime.mount.holdfast.session((await runtime.triggers.show("job")).id)
        assert trigger_fold(session).inherited is not None


async def test_a_removed_schedule_stays_removed_and_its_name_is_free(home: Home) -> None:
    clock = SetClock()
    async with clocked(home, clock) as runtime:
        await runtime.triggers.schedule("job", JOB, cron="* * * * *", recovery="external", overlap="cancel")
        await run_minutes(runtime, clock, 1, 8)
        await runtime.triggers.remove("job")
        assert await runtime.triggers.list() == []
        again = await runtime.triggers.schedule("job", JOB, every=60, recovery="external")
        assert again.last is None
        assert await runtime.triggers.history("job") == []
