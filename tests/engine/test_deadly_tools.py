"""A tool that takes its process down may not take down every process that opens the store."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import strategy
from holdfast.core.errors import InvalidValueError
from holdfast.core.records import AttemptedRecord, InterruptedRecord
from holdfast.engine.drivers import MAX_DEATHS
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.store import open_store
from holdfast.store.commits import Commit, CommitReceipt
from holdfast.store.environment import Environment, SystemClock
from holdfast.store.errors import StoreUnavailableError
from holdfast.testing.patience import soon, until
from tests.core.helpers import Journal, llm
from tests.engine.helpers import attempts_at, of_type, quiet, sqlite
from tests.paths import REPO


async def deaths(url: str, recovery: str, **options: Any) -> tuple[int, str]:
    """How many processes died, one after the other, and what the first that survived says of the session."""
    died = 0
    while True:
        command = (sys.executable, "-m", "tests.engine.deadly_child", url, recovery, json.dumps(options))
        process = await asyncio.create_subprocess_exec(*command, cwd=REPO, stdout=asyncio.subprocess.PIPE)
        output, _ = await soon(process.communicate())
        if process.returncode == 0:
            return died, output.decode()
        assert process.returncode == 9
        died += 1
        assert died < 10, "it goes on without end"


@pytest.mark.parametrize(
    ("recovery", "options", "most"), [("safe", {}, MAX_DEATHS), ("idempotent", {"max_deaths": 5}, 5), ("never", {}, 1)]
)
async def test_a_call_at_which_processes_die_is_given_up(
    tmp_path: Path, recovery: str, options: dict[str, Any], most: int
) -> None:
    died, shown = await deaths(sqlite(tmp_path), recovery, **options)
    assert died == most
    wanted = "may or may not have run" if recovery == "never" else f"was begun {most} times, and each time its process"
    assert wanted in shown
    async with open_store(sqlite(tmp_path)) as store:
        assert len(await attempts_at(store, "s")) == most


def test_an_attempt_that_a_shutdown_interrupted_is_no_death() -> None:
    journal = Journal().start().ask(llm())
    pending = journal.session.pending["q-0"]
    for attempt, is_interrupted, in_a_row in [(1, False, 1), (2, False, 2), (3, True, 0), (4, False, 1)]:
        journal.write(AttemptedRecord(query_id="q-0", driver="llm"))
        if is_interrupted:
            journal.write(InterruptedRecord(query_id="q-0"))
        assert (pending.attempts, pending.deaths) == (attempt, in_a_row)


def test_an_attempt_that_was_not_begun_is_not_counted_among_the_deaths() -> None:
    journal = Journal().start().ask(llm())
    pending = journal.session.pending["q-0"]
    for attempt, was_begun, in_a_row in [(1, True, 1), (2, False, 1), (3, True, 2), (4, False, 2)]:
        journal.write(AttemptedRecord(query_id="q-0", driver="llm"))
        if not was_begun:
            journal.write(InterruptedRecord(query_id="q-0", was_begun=False))
        assert (pending.attempts, pending.deaths) == (attempt, in_a_row)


def test_a_call_is_begun_at_least_once() -> None:
    with pytest.raises(InvalidValueError, match="at least once"):
        open_holdfast("memory:", max_deaths=0)


class StandingClock(SystemClock):
    """A clock that is behind: all processes then write the time that the session has reached already."""

    def now(self) -> int:
        return 0


@strategy(name="deadly-work")
async def deadly_work(ctx: Context) -> Any:
    return await ctx.tool("work")


async def test_an_attempt_of_another_process_is_a_death_although_ours_of_the_same_number_was_not_begun(
    tmp_path: Path,
) -> None:
    begun: list[str] = []

    async def work(name: str) -> None:
        begun.append(name)
        await asyncio.Event().wait()

    async def dies_of_it() -> None:
        dying.drive("work", partial(work, "dying"), recovery="safe")
        await dying.engine.attend("s")
        await until(lambda: bool(begun))
        live = dying.engine.live("s")
        lease = live.lease
        assert lease is not None
        live.forget()
        await dying.store.release(lease)

    environment = Environment(clock=StandingClock())
    async with (
        quiet(sqlite(tmp_path)) as client,
        quiet(sqlite(tmp_path), environment=environment) as dying,
        quiet(sqlite(tmp_path), environment=environment) as other,
    ):
        await client.start(deadly_work, id="s", wait=0)
        append = other.store.append

        async def fail(commit: Commit) -> CommitReceipt:
            other.store.append = append  # type: ignore[method-assign]
            await dies_of_it()
            raise StoreUnavailableError(other.store.url, "it is away")

        other.drive("work", partial(work, "other"), recovery="safe")
        other.store.append = fail  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailableError):
            await other.engine.attend("s")
        await other.engine.attend("s")
        await until(lambda: len(begun) == 2)
        pending = (await other.session("s")).pending["q-0"]
        assert (pending.attempts, pending.deaths) == (2, 2)


async def test_a_call_that_its_living_process_stopped_again_and_again_is_not_given_up(tmp_path: Path) -> None:
    begun: list[str] = []

    async def work(name: str) -> str:
        begun.append(name)
        if len(begun) <= MAX_DEATHS + 1:
            await asyncio.Event().wait()
        return "done"

    async with quiet(sqlite(tmp_path)) as holdfast:
        holdfast.drive("work", partial(work, "here"), recovery="safe")
        await holdfast.start(deadly_work, id="s", wait=0)
        for number in range(1, MAX_DEATHS + 2):
            await until(lambda number=number: len(begun) == number)  # type: ignore[misc]
            live = holdfast.engine.live("s")
            live.stop_executing()
            await until(lambda live=live: not live.is_under_way)  # type: ignore[misc]
            await holdfast.engine.attend("s")
        assert await soon(holdfast.result("s")) == "done"
        stopped = await of_type(holdfast.store, "s", InterruptedRecord)
        assert [each.was_begun for each in stopped] == [True] * (MAX_DEATHS + 1)
