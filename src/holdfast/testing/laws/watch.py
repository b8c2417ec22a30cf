"""Laws of change: watches wake after every change, and store objects on one URL see one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from holdfast.store.contract import Store
from holdfast.store.watch import Watch
from holdfast.testing.laws.base import Laws
from holdfast.testing.laws.blobs import LARGE
from holdfast.testing.laws.leases import take_turns
from holdfast.testing.sessions import ScriptedSession, begin, entries_of, feed, ids_of, messages_of, picture

SOON = 2.0
"""Seconds within which a change must be noticed."""

QUIET = 0.1
"""Seconds without a wake-up that count as silence."""


async def settle(watch: Watch) -> None:
    """Swallow what may still be under way from before."""
    while await watch.changed(QUIET):
        pass


class WatchLaws(Laws):
    """Who is woken, and by what."""

    async def test_a_watch_wakes_after_a_commit_a_message_and_a_deletion(self, store: Store) -> None:
        task = await begin(store)
        await self._wakes(store, task, store)

    async def test_a_watch_wakes_after_what_another_store_object_does(self, store: Store, store_url: str) -> None:
        async with self.share(store_url) as other:
            task = await begin(other)
            await self._wakes(other, task, store)

    @staticmethod
    async def _wakes(writer: Store, task: ScriptedSession, reader: Store) -> None:
        changes: list[Callable[[], Awaitable[object]]] = [
            lambda: task.log("a commit"),
            lambda: writer.send(task.id, "key", feed(), 1),
            lambda: writer.delete(task.id, 1),
        ]
        with reader.watch(task.id) as one, reader.watch() as every:
            await asyncio.gather(settle(one), settle(every))
            for change in changes:
                await change()
                assert await one.changed(SOON)
                assert await every.changed(SOON)
                await asyncio.gather(settle(one), settle(every))

    async def test_a_watch_that_is_not_told_of_own_commits_wakes_after_a_message_and_a_deletion(
        self, store: Store
    ) -> None:
        task = await begin(store)
        with store.watch(task.id, own=False) as watch:
            await settle(watch)
            await store.send(task.id, "key", feed(), 1)
            assert await watch.changed(SOON)
            await settle(watch)
            await store.delete(task.id, 1)
            assert await watch.changed(SOON)

    async def test_a_watch_that_is_not_told_of_own_commits_wakes_after_those_of_another_store_object(
        self, store: Store, store_url: str
    ) -> None:
        async with self.share(store_url) as other:
            task = await begin(other)
            with store.watch(task.id, own=False) as watch:
                await settle(watch)
                await task.log("a commit")
                assert await watch.changed(SOON)
                await settle(watch)
                await other.send(task.id, "key", feed(), 1)
                assert await watch.changed(SOON)

    async def test_a_watch_wakes_when_its_session_is_created(self, store: Store) -> None:
        with store.watch("s-1") as one, store.watch() as every:
            await begin(store, "s-1")
            assert await one.changed(SOON)
            assert await every.changed(SOON)

    async def test_a_change_between_reading_and_waiting_is_not_missed(self, store: Store) -> None:
        task = await begin(store)
        with store.watch(task.id) as watch:
            await settle(watch)
            assert len(await store.read(task.id)) == 1
            await task.log("while nobody waits")
            await asyncio.sleep(QUIET)
            assert await watch.changed(SOON)
            assert len(await store.read(task.id)) == 2

    async def test_a_reader_that_watches_reads_and_waits_sees_every_entry(self, store: Store) -> None:
        task = await begin(store)
        await asyncio.gather(self._follow(store, task.id, 61), self._write(task, 60))

    async def test_a_reader_in_another_store_object_sees_every_entry(self, store: Store, store_url: str) -> None:
        async with self.share(store_url) as other:
            task = await begin(other)
            await asyncio.gather(self._follow(store, task.id, 31), self._write(task, 30))

    @staticmethod
    async def _write(task: ScriptedSession, lines: int) -> None:
        for n in range(lines):
            await task.log(f"line {n}")
            await asyncio.sleep(n % 7 / 1_000)

    @staticmethod
    async def _follow(store: Store, session_id: str, until: int) -> None:
        seen = 0
        with store.watch(session_id) as watch:
            while True:
                page = await store.read(session_id, after=seen)
                assert [entry.position for entry in page] == list(range(seen + 1, seen + 1 + len(page)))
                seen += len(page)
                if seen >= until:
                    return
                assert await watch.changed(SOON), f"nobody said that there is more than {seen} entries"

    async def test_a_watch_without_a_change_times_out(self, store: Store) -> None:
        task = await begin(store)
        with store.watch(task.id) as watch:
            woken = [await watch.changed(QUIET) for _ in range(5)]
            assert False in woken, "a hint may come without a change, but not all the time"

    async def test_a_hundred_watchers_of_one_session_all_wake(self, store: Store) -> None:
        task = await begin(store)
        watches = [store.watch(task.id) for _ in range(100)]
        for watch in watches:
            watch.__enter__()
        await settle(watches[0])
        await task.log("now")
        assert all(await asyncio.gather(*(watch.changed(SOON) for watch in watches)))
        for watch in watches:
            watch.__exit__()


class SharingLaws(Laws):
    """Several store objects on one URL, and one after the other."""

    @asynccontextmanager
    async def _pair(self, store: Store, url: str) -> AsyncIterator[tuple[Store, Store]]:
        async with self.share(url) as other:
            yield store, other

    async def test_two_store_objects_see_each_others_commits_at_once(self, store: Store, store_url: str) -> None:
        async with self._pair(store, store_url) as (here, there):
            task = await begin(here)
            assert await entries_of(there, task.id) == task.entries
            task.store = there
            await task.log("from there")
            assert await entries_of(here, task.id) == task.entries
            await there.send(task.id, "key", feed(), 1)
            assert await messages_of(here, task.id) == [feed()]
            await here.put_state("notes", "key", 1)
            assert await picture(here) == await picture(there)
            await there.delete(task.id, 1)
            assert await ids_of(here) == []

    async def test_writers_in_two_store_objects_are_fenced_from_each_other(self, store: Store, store_url: str) -> None:
        async with self._pair(store, store_url) as pair:
            await begin(store, hold_ms=0)
            await asyncio.gather(*(take_turns(side, "s-1", f"owner-{n}") for n, side in enumerate(pair * 2)))
            assert (await store.load("s-1")).position == 41

    async def test_updaters_in_two_store_objects_lose_nothing(self, store: Store, store_url: str) -> None:
        async with self._pair(store, store_url) as pair:
            updates = [side.update_state("notes", "count", lambda v: (v or 0) + 1) for side in pair for _ in range(15)]
            await asyncio.gather(*updates)
            item = await store.get_state("notes", "count")
            assert item is not None
            assert (item.value, item.version) == (30, 30)

    async def test_what_was_written_is_there_after_closing_and_opening_again(
        self, store: Store, store_url: str
    ) -> None:
        again = self.share(store_url)
        # Not held: a lease may end with the store object it was taken through.
        task = await begin(store, ctx=["kept", LARGE], hold_ms=0)
        await store.send(task.id, "key", feed(), 1)
        await store.put_state("notes", "key", {"a": 1})
        before = await picture(store)
        await store.close()
        async with again:
            assert await picture(again) == before
            task.store = again
            await task.log("and goes on")

    async def test_closing_finishes_the_writes_that_were_asked_for(self, store: Store, store_url: str) -> None:
        again = self.share(store_url)
        tasks = [await begin(store, f"s-{n}") for n in range(10)]
        writes = [asyncio.create_task(task.log("asked for before closing")) for task in tasks]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*writes)
        async with again:
            for task in tasks:
                assert await entries_of(again, task.id) == task.entries

    async def test_closing_twice_is_fine(self, store: Store) -> None:
        await begin(store)
        await store.close()
        await store.close()

    async def test_a_store_tells_its_url(self, store: Store) -> None:
        assert isinstance(store.url, str)
        assert store.url
