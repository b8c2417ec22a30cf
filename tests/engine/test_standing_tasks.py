"""Every standing task of an engine and of its store is killed in every way, and all of it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.supervisor import StandingTask
from holdfast.testing.patience import patience, until
from tests.engine.helpers import sqlite
from tests.tables import each_row


@strategy(name="standing-sleeper")
async def sleeper(ctx: Context) -> str:
    await ctx.sleep(0.3)
    return str(await ctx.tool("work"))


def _standing(hf: Holdfast) -> list[StandingTask]:
    return [*hf.engine.owner.supervisor._started, *hf.store.supervisor._started]


def _cancel(task: StandingTask) -> None:
    assert task._task is not None
    task._task.cancel()


def _failing(error: BaseException) -> Callable[[StandingTask], None]:
    """Let a task fail by an error, as if it came from inside."""

    def fail(task: StandingTask) -> None:
        run = task._run

        async def fail_once() -> None:
            task._run = run
            raise error

        task._run = fail_once
        _cancel(task)

    return fail


@each_row(
    "kill",
    [
        _cancel,
        _failing(AttributeError("'NoneType' object has no attribute 'send'")),
        _failing(StoreUnavailableError("sqlite:///x.db", "it is away")),
        _failing(asyncio.CancelledError()),
    ],
)
async def test_timers_fire_and_sessions_move_after_every_standing_task_was_killed(
    tmp_path: Path, kill: Callable[[StandingTask], None]
) -> None:
    async def work() -> str:
        return "done"

    async with open_holdfast(sqlite(tmp_path)) as hf:
        hf.drive("work", work)
        with hf.store.watch():
            await until(lambda: len(_standing(hf)) >= 5)
            names = {task.name for task in _standing(hf)}
            session_id = f"s-{id(kill)}"
            await hf.start(sleeper, id=session_id, wait=0)
            for task in _standing(hf):
                if task._task is not None:
                    kill(task)
            assert await hf.result(session_id, timeout=patience(30)) == "done"
            names.discard("agreeing on the time with the store")  # which SQLite needs not
            await until(lambda: names <= {task.name for task in _standing(hf) if task._task is not None})
            assert hf.troubles()


async def test_a_process_says_in_the_store_that_it_is_not_well(tmp_path: Path) -> None:
    async with open_holdfast(sqlite(tmp_path)) as hf:

        async def is_told() -> Any:
            return [trouble for row in await hf.processes() for trouble in row.troubles]

        for task in _standing(hf):
            if task.name == "waking what is due":
                _failing(RecursionError("too deep"))(task)
        (trouble, *_) = [each for each in await until(is_told) if each.name == "waking what is due"]
        assert "cancelled" in trouble.error or "too deep" in trouble.error
