"""While the store is away, effects go on; their outcomes are kept, and committed when it is back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.records import AnsweredRecord, attempted_in
from holdfast.engine.drivers import Attempt
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.patience import patience, soon, until
from tests.engine.helpers import sqlite

LEASE_MS = int(patience(1_000))


@strategy(name="away-one-tool")
async def one_tool(ctx: Context) -> Any:
    return await ctx.tool("work")


class CutOffStore(SqliteStore):
    """A store that can be cut off: every call then fails, as it does without a connection."""

    is_away = False

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailableError(self.url, "it is away")

    async def _run_write(self, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return await super()._run_write(*args, **kwargs)

    async def _run_read(self, *args: Any) -> Any:
        self._check()
        return await super()._run_read(*args)

    async def _run_lookup(self, *args: Any) -> Any:
        self._check()
        return await super()._run_lookup(*args)


async def _attempts(hf: Holdfast, session_id: str = "s") -> int:
    return sum(len(attempted_in(entry.record)) for entry in await hf.store.read(session_id))


async def test_an_outcome_known_while_the_store_was_away_is_committed_when_it_is_back(tmp_path: Path) -> None:
    store = CutOffStore(str(tmp_path / "sessions.db"))
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    async with open_holdfast(store) as hf:
        hf.drive("work", work)
        await hf.start(one_tool, id="s", wait=0)
        await soon(begun.wait())
        store.is_away = True
        await asyncio.sleep(0.1)
        may_end.set()
        await asyncio.sleep(0.3)
        store.is_away = False
        assert await hf.result("s", timeout=patience(30)) == "done"
        assert await _attempts(hf) == 1


async def test_an_error_that_nobody_foresaw_in_a_commit_stops_no_effect(tmp_path: Path) -> None:
    """As when a driver of a database fails in a way of its own while the lease is renewed."""
    begun, may_end = asyncio.Event(), asyncio.Event()
    failures: list[str] = []

    async def work() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    async with open_holdfast(sqlite(tmp_path), lease_ms=LEASE_MS) as hf:
        hf.drive("work", work)
        await hf.start(one_tool, id="s", wait=0)
        await soon(begun.wait())
        append = hf.store._append

        async def fail(commit: Any) -> Any:
            failures.append(commit.session_id)
            raise AttributeError("'NoneType' object has no attribute 'send'")

        hf.store._append = fail  # type: ignore[method-assign]
        await until(lambda: failures)
        hf.store._append = append  # type: ignore[method-assign]
        may_end.set()
        assert await hf.result("s", timeout=patience(30)) == "done"
        assert await _attempts(hf) == 1


async def test_an_effect_is_told_to_stop_before_another_process_may_begin_it(tmp_path: Path) -> None:
    """The store is away for longer than the lease, for one of two processes. Its tool runs in a thread."""
    store = CutOffStore(str(tmp_path / "sessions.db"))
    began = threading.Event()
    ended: list[float] = []
    again: list[float] = []

    def work(attempt: Attempt) -> str:
        began.set()
        while not attempt.is_over:
            time.sleep(0.005)
        ended.append(time.monotonic())
        return "too late"

    async def work_again() -> str:
        again.append(time.monotonic())
        return "done by another"

    async with open_holdfast(store, lease_ms=LEASE_MS) as hf:
        hf.drive("work", work, recovery="safe")
        await hf.start(one_tool, id="s", wait=0)
        await until(began.is_set)
        async with open_holdfast(sqlite(tmp_path), lease_ms=LEASE_MS) as other:
            other.drive("work", work_again, recovery="safe")
            store.is_away = True
            assert await other.result("s", timeout=patience(30)) == "done by another"
        await until(lambda: ended)
        assert ended[0] < again[0]


# --- a full disk -------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], stderr=subprocess.DEVNULL
    )
    if not mounted:
        pytest.skip("a file system can be mounted only by root, and not everywhere")
    yield disk
    subprocess.check_call(["umount", "-l", str(disk)])


def _fill(disk: Path) -> Path:
    """Take all space that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 512, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


async def test_a_disk_that_is_full_when_a_tool_returns_costs_only_time(small_disk: Path) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await may_end.wait()
        return "done" * 2_000

    async with open_holdfast(sqlite(small_disk)) as hf:
        hf.drive("work", work)
        await hf.start(one_tool, id="s", wait=0)
        await soon(begun.wait())
        filler = _fill(small_disk)
        may_end.set()
        await asyncio.sleep(1)
        assert not [e for e in await hf.store.read("s") if isinstance(e.record, AnsweredRecord)]
        filler.unlink()
        assert await hf.result("s", timeout=patience(30)) == "done" * 2_000
        assert await _attempts(hf) == 1
