"""Wake-ups through PostgreSQL: telling other processes what changed, and hearing it from them.

A NOTIFY inside a commit would take a lock that all commits of the cluster share. So the writer notes which sessions
changed, and one connection of its own announces them together, just after the commits. What is lost when a process
dies in between is found by the listeners' own slow look.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from holdfast.store.contract import Watches
from holdfast.store.limits import NOTIFY_POLL_MS

CHANNEL = "holdfast"

RECONNECT_MS = 100
"""Milliseconds before the first attempt to connect again; doubled after each that fails."""

RECONNECT_MAX_MS = 5_000
"""Milliseconds between attempts while the server stays away: soon enough for a person, seldom enough for a server."""

ANNOUNCE_PAUSE_MS = 5
"""Milliseconds between two announcements: under load one speaks for many commits, and nobody notices the wait."""

FLUSH_TIMEOUT_S = 2.0
"""Seconds that closing waits for the last announcement: it is a hint, and listeners look by themselves."""

Connect = Callable[[], Awaitable[Any]]

_TROUBLE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)

_ANNOUNCE = f"select pg_notify('{CHANNEL}', id) from unnest($1::text[]) id"

_SNAPSHOT = "select pg_current_snapshot()::text"
"""Differs from one look to the next whenever any transaction has ended in between."""

_MARKS = """
select s.id, s.xmin::text || '/' || coalesce(
           (select max(number) from holdfast.mailbox m where m.session = s.num and m.body is not null), 0) as mark
  from holdfast.sessions s where s.id = any($1::text[])
"""
"""For each session a text that differs after every commit and message: the row's last writer, and the last message."""


def next_pause(pause_ms: int) -> int:
    """How long to wait before the attempt after the next."""
    return min(pause_ms * 2, RECONNECT_MAX_MS)


class WatchedSessions(Watches):
    """The watches of a store, with what a slow look needs to know of them."""

    def ids(self) -> set[str]:
        return {session_id for session_id in self._by_session if session_id is not None}

    def notify_any(self) -> None:
        for watch in self._by_session.get(None, ()):
            watch.notify()


class Announcer:
    """Tells other processes which sessions have changed, many at a time."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._noted: set[str] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self.backend: int | None = None
        """The server's process behind this connection, by which listeners of this store know its announcements."""

    def note(self, session_id: str) -> None:
        self._noted.add(session_id)
        self._wake.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        pause = RECONNECT_MS
        while not self._closing or self._noted:
            try:
                connection = await self._connect()
                self.backend = connection.get_server_pid()
                try:
                    while not self._closing or self._noted:
                        await self._wake.wait()
                        self._wake.clear()
                        await self._announce(connection)
                        await asyncio.sleep(ANNOUNCE_PAUSE_MS / 1000)
                        pause = RECONNECT_MS
                finally:
                    await _let_go(connection)
            except _TROUBLE:
                self._wake.set()
                await asyncio.sleep(pause / 1000)
                pause = next_pause(pause)

    async def _announce(self, connection: Any) -> None:
        batch, self._noted = self._noted, set()
        try:
            await connection.execute(_ANNOUNCE, list(batch))
        except _TROUBLE:
            self._noted |= batch
            raise

    async def close(self) -> None:
        """Announce what was noted, if the server can be reached."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=FLUSH_TIMEOUT_S)
            await _stop(self._task)


class Listener:
    """Wakes watches of what other processes announce, or have done without announcing it."""

    def __init__(self, connect: Connect, watches: WatchedSessions, announcer: Announcer) -> None:
        self._connect = connect
        self._watches = watches
        self._announcer = announcer
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen from now on, for as long as anyone watches."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        pause = RECONNECT_MS
        while self._watches:
            with contextlib.suppress(*_TROUBLE):
                connection = await self._connect()
                pause = RECONNECT_MS
                try:
                    await self._listen(connection)
                finally:
                    await _let_go(connection)
            if self._watches:
                await asyncio.sleep(pause / 1000)
                pause = next_pause(pause)

    async def _listen(self, connection: Any) -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(CHANNEL, self._heard)
        snapshot, marks = "", dict[str, str]()  # nothing is known yet, so the first look wakes every watch
        while self._watches and not lost.is_set():
            ids = self._watches.ids()
            seen = await connection.fetchval(_SNAPSHOT)
            if seen != snapshot or not ids <= marks.keys():
                self._watches.notify_any()
                before, marks = marks, dict.fromkeys(ids, "")
                marks.update(await connection.fetch(_MARKS, list(ids)))
                for session_id in ids:
                    if marks[session_id] != before.get(session_id):
                        self._watches.notify(session_id)
            snapshot = seen
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NOTIFY_POLL_MS / 1000):
                    await lost.wait()

    def _heard(self, _connection: Any, backend: int, _channel: str, session_id: str) -> None:
        if backend != self._announcer.backend:
            self._watches.notify(session_id)

    async def close(self) -> None:
        if self._task is not None:
            await _stop(self._task)


async def _let_go(connection: Any) -> None:
    with contextlib.suppress(*_TROUBLE):
        await connection.close(timeout=FLUSH_TIMEOUT_S)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
