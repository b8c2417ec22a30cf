"""Two connections beside the pool: one tells other processes what changed here, one hears it from them.

A NOTIFY inside a commit would take a lock that all commits of the cluster share. So the writer notes which sessions
changed, and one connection of its own announces them together, just after the commits. What is lost when a process
dies in between is found by the listeners' own slow look.

The listening connection stays for as long as the store is open, once it is needed: the lock that shows that this store
lives hangs on it too (see `postgres.presence`). Live messages use both (see `postgres.live`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from holdfast.store.errors import StoreUnavailableError
from holdfast.store.limits import CONNECT_TIMEOUT_S, NOTIFY_POLL_MS
from holdfast.store.postgres.audience import Audience
from holdfast.store.postgres.errors import store_trouble
from holdfast.store.postgres.live import SEND, ChannelStreams, IncomingFrames, OutgoingFrames
from holdfast.store.postgres.presence import PostgresPresence
from holdfast.store.supervisor import Supervisor
from holdfast.store.watch import Watches

CHANNEL = "holdfast"

ANNOUNCE_PAUSE_MS = 5
"""Milliseconds between two announcements: under load one speaks for many commits, and nobody notices the wait."""

FLUSH_TIMEOUT_S = 2.0
"""Seconds that closing waits for the last announcement: it is a hint, and listeners look by themselves."""


class Server(NamedTuple):
    """How standing connections reach the server, and who keeps them at work."""

    shown: str
    """Its URL as it may be shown."""
    connect: Callable[[], Awaitable[Any]]
    supervisor: Supervisor


NOTICE_CHARS = 7_500
"""Characters of session ids in one notification, which holds less than 8,000: each costs the server and every listener
as much as a statement, however short it is."""

_ANNOUNCE = f"select pg_notify('{CHANNEL}', notice) from unnest($1::text[]) notice"

_SNAPSHOT = "select pg_current_snapshot()::text"
"""Differs from one look to the next whenever any transaction has ended in between."""

_MARKS = """
select s.id, s.xmin::text || '/' || coalesce(
           (select max(number) from holdfast.mailbox m where m.session = s.num and m.body is not null), 0) as mark
  from holdfast.sessions s where s.id = any($1::text[])
"""
"""For each session a text that differs after every commit and message: the row's last writer, and the last message."""


_BETWEEN = " "
"""Between the ids in a notification. No id has it."""


def notices(session_ids: Iterable[str]) -> list[str]:
    """The ids of sessions that have changed, as few notifications."""
    text = _BETWEEN.join(session_ids)
    cut: list[str] = []
    while len(text) > NOTICE_CHARS:
        end = text.rindex(_BETWEEN, 0, NOTICE_CHARS)
        cut.append(text[:end])
        text = text[end + 1 :]
    return [*cut, text]


class WatchedSessions(Watches):
    """The watches of a store, with what a slow look needs to know of them."""

    def ids(self) -> set[str]:
        return {session_id for session_id in self._by_session if session_id is not None}

    def notify_any(self) -> None:
        for watch in self._by_session.get(None, ()):
            watch.notify()


class NotifyConnection:
    """Tells other processes which sessions have changed, many at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.live = OutgoingFrames(self._send_live)
        self._live_is_due = False
        self._noted: set[str] = set()
        self._wake = asyncio.Event()
        self._task = server.supervisor.task("announcing changes", self._run)
        self._closing = False
        self.backend: int | None = None
        """The server's process behind this connection, by which listeners of this store know its announcements."""

    def note(self, session_id: str) -> None:
        self._noted.add(session_id)
        self._start()

    def _send_live(self) -> None:
        self._live_is_due = True
        self._start()

    def _start(self) -> None:
        self._wake.set()
        if not self._closing:
            self._task.start()

    async def _run(self) -> None:
        with store_trouble(self._server.shown):
            connection = await self._server.connect()
            self._wake.set()  # for what could not be announced before
            self.backend = connection.get_server_pid()
            try:
                while self._goes_on:
                    await self._wake.wait()
                    self._wake.clear()
                    await self._announce(connection)
                    await self._pass_on(connection)
                    await asyncio.sleep(ANNOUNCE_PAUSE_MS / 1000)
            finally:
                await _let_go(connection)

    @property
    def _goes_on(self) -> bool:
        return not self._closing or bool(self._noted) or self._live_is_due

    async def _announce(self, connection: Any) -> None:
        batch, self._noted = self._noted, set()
        try:
            if batch:
                await connection.execute(_ANNOUNCE, notices(batch), timeout=CONNECT_TIMEOUT_S)
        except BaseException:
            self._noted |= batch
            raise

    async def _pass_on(self, connection: Any) -> None:
        if not self._live_is_due:
            return
        self._live_is_due = False
        try:
            await connection.execute(SEND, *self.live.take(), timeout=CONNECT_TIMEOUT_S)
        except BaseException:
            self.live.lost()
            raise

    async def close(self) -> None:
        """Announce what was noted, and pass on what was published, if the server can be reached."""
        if self.live:
            self._send_live()
        self._closing = True
        self._wake.set()
        if self._task.is_started:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_TIMEOUT_S):
                    await self._task.until_over()
            await self._task.stop()


class ListenConnection:
    """Wakes watches when other processes have changed a session, announced or not, and shows that this store lives."""

    def __init__(
        self, server: Server, watches: WatchedSessions, notifier: NotifyConnection, streams: ChannelStreams
    ) -> None:
        self._server = server
        self._watches = watches
        self._notifier = notifier
        self._streams = streams
        self._incoming = IncomingFrames(streams, notifier.live.sender)
        self.audience = Audience(streams.channels, lambda: asyncio.get_running_loop().time(), self.wake)
        self._presence = PostgresPresence()
        self._tried = asyncio.Event()
        self._wake = asyncio.Event()
        self._task = server.supervisor.task("listening to the server", self._run)
        self._closing = False

    def start(self) -> None:
        """Listen from now on."""
        if not self._closing:
            self._task.start()

    def tune(self) -> None:
        """Listen to other channels from now on: the streams have changed."""
        self._wake.set()
        self.start()

    def wake(self) -> None:
        """Look again at what there is to do."""
        self._wake.set()

    async def lock(self) -> int | None:
        """The lock by which others can tell that this store lives; None while it is not held."""
        if not self._tried.is_set():
            self.start()
            await self._tried.wait()
        return self._presence.lock

    async def _run(self) -> None:
        try:
            with store_trouble(self._server.shown):
                await self._keep_connection()
        finally:
            self._tried.set()  # whoever waits for the lock does without

    async def _keep_connection(self) -> None:
        connection = await self._server.connect()
        try:
            await self._presence.take(connection)
            self._tried.set()
            await self._listen(connection)
        finally:
            if self._closing:
                await self._leave(connection)
            self._presence.lock = None
            self.audience.disconnect()
            await _let_go(connection)

    async def _leave(self, connection: Any) -> None:
        with contextlib.suppress(Exception):  # the lock goes with the connection
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self._presence.leave(connection)

    async def _listen(self, connection: Any) -> None:
        lost = asyncio.Event()

        def broken(_: object) -> None:
            lost.set()
            self._wake.set()

        connection.add_termination_listener(broken)
        # A look is then one exchange with the server: if this process is held up meanwhile, the answer still counts.
        snapshot = await connection.prepare(_SNAPSHOT, timeout=CONNECT_TIMEOUT_S)
        await connection.add_listener(CHANNEL, self._heard)
        await self.audience.connect(connection)
        seen = _Seen(snapshot)
        tuned: set[str] = set()
        look_at = 0.0
        while True:
            self._wake.clear()
            if lost.is_set():
                raise StoreUnavailableError(self._server.shown, "the server has ended the connection for notifications")
            await self._tune_in(connection, tuned)
            await self.audience.announce(connection)
            clock = asyncio.get_running_loop().time()
            if clock >= look_at:
                await self._look(connection, seen)
                look_at = clock + NOTIFY_POLL_MS / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(look_at):
                    await self._wake.wait()

    async def _tune_in(self, connection: Any, tuned: set[str]) -> None:
        wanted = set(self._streams.channels)
        for channel in tuned - wanted:
            await connection.remove_listener(channel, self._heard_live)
        for channel in wanted - tuned:
            await connection.add_listener(channel, self._heard_live)
            self._streams.miss(channel)  # what was published before this
        tuned.clear()
        tuned.update(wanted)

    async def _look(self, connection: Any, seen: _Seen) -> None:
        """Find out what nobody announced. Also shows, once in a while, that the connection is alive."""
        ids = self._watches.ids()
        snapshot = await seen.look.fetchval(timeout=CONNECT_TIMEOUT_S)
        if snapshot != seen.snapshot or not ids <= seen.marks.keys():
            self._watches.notify_any()
            self._watches.notify_of_others()
            before, seen.marks = seen.marks, dict.fromkeys(ids, "")
            if ids:
                seen.marks.update(await connection.fetch(_MARKS, list(ids)))
            for session_id in ids:
                if seen.marks[session_id] != before.get(session_id):
                    self._watches.notify(session_id)
        seen.snapshot = snapshot

    def _heard(self, _connection: Any, backend: int, _channel: str, notice: str) -> None:
        if backend != self._notifier.backend:
            self._watches.notify_of_others()
            for session_id in notice.split(_BETWEEN):
                self._watches.notify(session_id)

    def _heard_live(self, _connection: Any, _backend: int, _channel: str, piece: str) -> None:
        self._incoming.add_piece(piece)

    async def close(self) -> None:
        self._closing = True
        await self._task.stop()
        self._tried.set()


class _Seen:
    """What the last look has seen. Nothing is known at first, so the first look wakes every watch."""

    def __init__(self, look: Any) -> None:
        self.look = look
        """The prepared statement of a look."""
        self.snapshot = ""
        self.marks: dict[str, str] = {}


async def _let_go(connection: Any) -> None:
    """Close a connection, whatever state it is in."""
    try:
        await connection.close(timeout=FLUSH_TIMEOUT_S)
    except Exception:
        connection.terminate()
