"""Changes that other processes make to the SQLite file are noticed within moments, at little cost."""

from __future__ import annotations

import asyncio
import time

from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.patience import HANG_S
from holdfast.testing.sessions import begin
from tests.store.sqlite.helpers import heard, lines_until_end, python, tell

ACTOR = """
import asyncio, sys, time
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.sessions import ScriptedSession, entries_of, feed

async def main(path):
    async with SqliteStore(path) as store:
        session = ScriptedSession(store, "s-1", "bob")
        session.entries = await entries_of(store, "s-1")
        print("ready", flush=True)
        while action := sys.stdin.readline().strip():
            if action == "append":
                await session.log("from another process")
            elif action == "send":
                await store.send("s-1", "m-1", feed("hello"), 1)
            elif action == "delete":
                await store.delete("s-1", 1)
            print(time.time(), flush=True)

asyncio.run(main(sys.argv[1]))
"""


class LiveSession:
    """Another process that does one thing when asked, and says when it was done."""

    def __init__(self, path: str) -> None:
        self.process = python(ACTOR, path)

    async def does(self, action: str) -> float:
        tell(self.process, action)
        return float(await self.says())

    async def says(self) -> str:
        return await asyncio.to_thread(heard, self.process)

    def ends(self) -> None:
        lines_until_end(self.process)


async def test_what_another_process_does_is_noticed_within_moments(store: SqliteStore, path: str) -> None:
    await begin(store, hold_ms=0)
    await begin(store, "s-2", hold_ms=0)
    live = LiveSession(path)
    assert await live.says() == "ready"
    with store.watch("s-1") as watch, store.watch() as any_session:
        for action in ("append", "send", "delete"):
            while await watch.changed(0.1) or await any_session.changed(0.1):
                pass
            doing = asyncio.create_task(live.does(action))
            assert await watch.changed(HANG_S)
            noticed = time.time()
            assert noticed - await doing < 0.5
            assert await any_session.changed(0.5)
    live.ends()


async def test_watching_an_idle_file_costs_next_to_nothing(store: SqliteStore, path: str) -> None:
    await begin(store)
    with store.watch("s-1") as watch:
        while await watch.changed(0.2):
            pass
        before = time.process_time()
        assert not await watch.changed(1.5)
        assert time.process_time() - before < 0.1


NO_NOTIFICATIONS = """
import asyncio, contextlib, os, resource, sys
from holdfast.store.sqlite.store import SqliteStore

async def main(path):
    async with SqliteStore(path) as store:
        await asyncio.gather(*(store.due(0) for _ in range(20)))
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
        with contextlib.suppress(OSError):
            while True:
                os.open("/dev/null", os.O_RDONLY)
        with store.watch("s-1") as watch:
            while await watch.changed(0.3):
                pass
            print("ready", flush=True)
            print(await watch.changed(5), flush=True)

asyncio.run(main(sys.argv[1]))
"""


async def test_a_system_that_has_no_notifications_left_is_watched_by_looking(store: SqliteStore, path: str) -> None:
    session = await begin(store)
    watcher = python(NO_NOTIFICATIONS, path)
    assert await asyncio.to_thread(heard, watcher) == "ready"
    await session.log("one")
    assert await asyncio.to_thread(lines_until_end, watcher) == ["True"]
