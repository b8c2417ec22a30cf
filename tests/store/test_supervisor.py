"""Standing tasks go on, whatever ends them, until they return or are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.store import supervisor as supervisor_module
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.supervisor import StandingTask, Supervisor
from holdfast.testing.patience import until
from tests.tables import each_row


class Work:
    """Something that is done again and again; `ends` are the ways in which it ends, one after the other."""

    def __init__(self, *ends: BaseException | None) -> None:
        self.ends = list(ends)
        self.begun = 0

    async def run(self) -> None:
        self.begun += 1
        if self.ends:
            end = self.ends.pop(0)
            if end is not None:
                raise end
            return
        await asyncio.Event().wait()


def _running(supervisor: Supervisor) -> asyncio.Task[None]:
    (task,) = supervisor._started
    assert task._task is not None
    return task._task


@each_row(
    "error",
    [
        StoreUnavailableError("sqlite:///x.db", "disk I/O error"),
        AttributeError("'NoneType' object has no attribute 'send'"),
        asyncio.InvalidStateError("invalid state"),
        asyncio.CancelledError(),
        TimeoutError(),
        RecursionError("maximum recursion depth exceeded"),
    ],
)
async def test_a_task_that_fails_is_logged_and_begun_again(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor, work = Supervisor(), Work(error)
    supervisor.task("listening", work.run).start()
    await until(lambda: work.begun == 2)
    assert "listening has failed (1 in a row)" in caplog.text
    assert [trouble.failures for trouble in supervisor.troubles()] == [1]
    await supervisor.stop()
    assert supervisor.names == []


async def test_a_task_that_somebody_cancels_is_begun_again() -> None:
    supervisor, work = Supervisor(), Work()
    supervisor.task("listening", work.run).start()
    await until(lambda: work.begun == 1)
    _running(supervisor).cancel()
    await until(lambda: work.begun == 2)
    _running(supervisor).cancel()
    await until(lambda: work.begun == 3)
    await supervisor.stop()


async def test_one_that_returns_is_over_and_can_be_started_again() -> None:
    supervisor, work = Supervisor(), Work(None, None)
    task = supervisor.task("listening", work.run)
    for begun in (1, 2):
        task.start()
        await task.until_over()
        assert (work.begun, task.is_started) == (begun, False)


async def test_one_that_is_stopped_is_not_begun_again() -> None:
    supervisor, work = Supervisor(), Work(ValueError("once"))
    task = supervisor.task("listening", work.run)
    task.start()
    await until(supervisor.troubles)
    await task.stop()
    await asyncio.sleep(2 * supervisor_module.FIRST_PAUSE_S)
    assert work.begun == 1
    assert not task.is_started


async def test_it_can_stop_itself() -> None:
    supervisor = Supervisor()
    seen: list[StandingTask] = []

    async def run() -> None:
        seen[0].cancel()
        raise ValueError("after that nobody listens")

    seen.append(supervisor.task("listening", run))
    seen[0].start()
    await seen[0].until_over()
    await asyncio.sleep(2 * supervisor_module.FIRST_PAUSE_S)
    assert supervisor.names == []


async def test_pauses_grow_and_shrink_again_once_it_was_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_PAUSE_S", 0.001)
    supervisor, work = Supervisor(), Work(*(ValueError(str(number)) for number in range(5)))
    heard: list[int] = []
    listener: Callable[[], None] = lambda: heard.append(supervisor.troubles()[0].failures)  # noqa: E731
    supervisor.on_trouble.append(listener)
    supervisor.task("listening", work.run).start()
    await until(lambda: work.begun == 6)
    assert heard == [1, 2, 3, 4, 5]
    monkeypatch.setattr(supervisor_module, "STEADY_S", 0.0)
    assert supervisor.troubles() == []
    _running(supervisor).cancel()
    await until(lambda: work.begun == 7)
    assert heard[-1] == 1
    await supervisor.stop()
