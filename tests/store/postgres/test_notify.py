"""Watches on PostgreSQL wake when another store or process changes something, without polling."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import pytest

from holdfast.store.postgres.notify import NOTICE_CHARS, notices
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.sessions import begin, feed
from tests.store.postgres.helpers import settle


@pytest.mark.usefixtures("no_polling")
async def test_two_pools_see_each_others_changes_without_polling(store: PostgresStore, database: str) -> None:
    async with PostgresStore(database) as other:
        task = await begin(other)
        with store.watch(task.id) as one, store.watch() as every, store.watch("s-none") as nobody:
            await asyncio.gather(settle(one), settle(every), settle(nobody))
            await task.log("a commit")
            assert await one.changed(1)
            assert await every.changed(1)
            await other.send(task.id, "key", feed(), 1)
            assert await one.changed(1)
            await other.delete(task.id, 1)
            assert await one.changed(1)
            assert not await nobody.changed(0.1)


_WRITER = """
import asyncio, sys
from holdfast.store.postgres.notify import NOTICE_CHARS, notices
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.sessions import begin

async def main():
    async with PostgresStore(sys.argv[1]) as store:
        task = await begin(store, "s-afar")
        await asyncio.to_thread(sys.stdin.readline)
        await task.log("from another process")
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@pytest.mark.usefixtures("no_polling")
async def test_another_process_wakes_us_without_polling(store: PostgresStore, database: str) -> None:
    pipe = asyncio.subprocess.PIPE
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", _WRITER, database, stdin=pipe)
    assert writer.stdin is not None
    with store.watch("s-afar") as watch:
        await settle(watch)
        while "s-afar" not in [row.session_id for row in (await store.sessions()).rows]:
            assert await watch.changed(20)
        await asyncio.sleep(0.3)
        await watch.changed(0)
        writer.stdin.write(b"go\n")
        assert await watch.changed(5)
        assert len(await store.read("s-afar")) == 2
    await writer.communicate(b"end\n")
    assert writer.returncode == 0


async def test_a_change_that_nobody_announced_is_found(
    store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresStore(database) as silent:
        monkeypatch.setattr(silent._notifier, "note", lambda session_id: None)
        task, bystander = await begin(silent), await begin(silent, "s-2")
        with store.watch(task.id) as one, store.watch() as every, store.watch(bystander.id) as other:
            await asyncio.gather(settle(one), settle(every), settle(other))
            await task.log("a commit")
            assert await one.changed(3)
            assert await every.changed(3)
            await silent.send(task.id, "key", feed(), 1)
            assert await one.changed(3)
            await silent.delete(task.id, 1)
            assert await one.changed(3)
            assert not await other.changed(0)


async def test_closing_announces_what_was_committed_last(store: PostgresStore, database: str) -> None:
    with store.watch("s-1") as watch:
        await settle(watch)
        async with PostgresStore(database) as brief:
            await begin(brief, "s-1")
        assert await watch.changed(1)


@pytest.mark.usefixtures("no_polling")
async def test_every_session_of_a_long_announcement_is_heard_of(store: PostgresStore, database: str) -> None:
    """More ids than one notification holds, which change while an announcement is on its way."""
    async with PostgresStore(database) as other:
        tasks = [await begin(other, f"s-{number:0>100}") for number in range(200)]
        with contextlib.ExitStack() as watching:
            watches = [watching.enter_context(store.watch(task.id)) for task in tasks]
            await asyncio.gather(*map(settle, watches))
            await asyncio.gather(*(task.log("a commit") for task in tasks))
            assert all(await asyncio.gather(*(watch.changed(5) for watch in watches)))


def test_an_announcement_is_cut_between_ids() -> None:
    ids = [f"s-{number}-{'x' * (number % 250)}" for number in range(500)]
    cut = notices(ids)
    assert [each for notice in cut for each in notice.split(" ")] == ids
    assert max(map(len, cut)) <= NOTICE_CHARS
    assert len(cut) <= sum(map(len, ids)) // (NOTICE_CHARS - 300) + 1
