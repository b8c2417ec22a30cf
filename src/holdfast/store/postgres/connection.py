"""How the PostgreSQL store reaches its server: the pool, calls through it, and the connections for notifications.

Whatever goes wrong with a connection is trouble with the store (`postgres.errors`): no error of the driver gets out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.store.contract import Store
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.limits import CLOSE_TIMEOUT_S, COMMAND_TIMEOUT_S, CONNECT_TIMEOUT_S
from holdfast.store.postgres.errors import BAD_ARGUMENT, is_broken, is_trouble, redact, store_trouble, unavailable
from holdfast.store.postgres.group_commit import GroupWriter
from holdfast.store.postgres.live import ChannelStreams, channel_of
from holdfast.store.postgres.notify import ListenConnection, NotifyConnection, Server, WatchedSessions
from holdfast.store.postgres.pool import ConnectionPool, connect_in_turn
from holdfast.store.postgres.pooler import check_pooling, connect_with
from holdfast.store.postgres.schema import create_or_migrate
from holdfast.store.watch import LiveItem, LiveStream, Watch

POOL_CONNECTIONS = 16
"""Connections for reads and writes: past this, more commits at once wait for the same log flush."""

STANDING_CONNECTIONS = 4
"""Connections of a process beside the pool: two for commits, one to announce changes, and one to hear of them."""

PROCESSES = 8
"""Processes that the connections of a server suffice for. The pool of each is made no larger than its share."""

LOCK_WAIT_S = 10
"""Seconds that a statement waits for a row that somebody else has locked, before that is an error."""

GROUP_LOCK_WAIT_MS = 100
"""Milliseconds that a group of commits waits for such a row. After that the others go on without it."""

_SETTINGS = {
    "application_name": "holdfast",
    "default_transaction_isolation": "read committed",
    "lock_timeout": f"{LOCK_WAIT_S}s",
}

_SHARE = """
select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
"""


class ConnectedStore(Store):
    """The part of the PostgreSQL store that opens, closes, watches and listens; `PostgresStore` has the rest."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._shown = redact(url)
        self._pool: ConnectionPool | None = None
        self._groups = GroupWriter(self._connect_to_commit)
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._watches = WatchedSessions()
        self._streams = ChannelStreams()
        self._notifier, self._listener = self._connections()

    def _connections(self) -> tuple[NotifyConnection, ListenConnection]:
        server = Server(self._shown, self._connect, self.supervisor)
        notifier = NotifyConnection(server)
        return notifier, ListenConnection(server, self._watches, notifier, self._streams)

    # --- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._pool is not None:
            return
        with store_trouble(self._shown):
            connection = await connect_in_turn(self._connect)
            try:
                await check_pooling(connection, self._connect, self._shown)
                await create_or_migrate(connection, self._shown)
                share = await connection.fetchval(_SHARE) // PROCESSES - STANDING_CONNECTIONS
            finally:
                await connection.close(timeout=CONNECT_TIMEOUT_S)
        self._pool = ConnectionPool(self._connect_to_call, max(1, min(share, POOL_CONNECTIONS)))
        self._notifier, self._listener = self._connections()

    async def _connect(self) -> Any:
        """A connection beside the pool, for migrations and wake-ups: neither needs to wait for the disk."""
        return await connect_with(self.url, {"application_name": "holdfast", "synchronous_commit": "off"})

    async def _connect_to_call(self) -> Any:
        """A connection for the pool."""
        return await connect_with(self.url, _SETTINGS, command_timeout=COMMAND_TIMEOUT_S)

    async def _connect_to_commit(self) -> Any:
        """A connection for commits. Their statements are planned once, and find every row by its key: the plan is also
        good for tables that have grown since."""
        settings = _SETTINGS | {
            "lock_timeout": f"{GROUP_LOCK_WAIT_MS}ms",
            "plan_cache_mode": "force_generic_plan",
            **dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"), "off"),
        }
        return await connect_with(self.url, settings, command_timeout=COMMAND_TIMEOUT_S)

    async def close(self) -> None:
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._idle.wait()
                await self._groups.drain()
        except TimeoutError:
            pass  # what is still under way is told that the connection was closed
        await pool.close()
        await self._groups.close()
        await self._listener.close()  # after the last commit: what it holds ends with the lock
        await self._notifier.close()

    @contextlib.asynccontextmanager
    async def _call(self) -> AsyncIterator[ConnectionPool]:
        """The pool, for one statement or transaction that closing has to wait for. No error of the driver gets out."""
        pool = self._begin_call()
        try:
            with self._renewing(pool):
                yield pool
        finally:
            self._end_call()

    def _begin_call(self) -> ConnectionPool:
        """The pool, if the store is open. Closing waits for the end of the call."""
        if self._pool is None:
            raise StoreUnavailableError(self._shown, "it is not open")
        self._calls += 1
        self._idle.clear()
        return self._pool

    def _end_call(self) -> None:
        self._calls -= 1
        if not self._calls:
            self._idle.set()

    @contextlib.contextmanager
    def _renewing(self, pool: ConnectionPool) -> Iterator[None]:
        """Let no error of the driver out; connect anew after one that tells of a broken connection."""
        try:
            yield
        except HoldfastError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if not is_trouble(error):
                raise
            if isinstance(error, BAD_ARGUMENT):
                raise InvalidValueError("argument", str(error)) from None
            if is_broken(error):
                self._renew_connections(pool)
            raise unavailable(self._shown, error) from None

    def _renew_connections(self, pool: ConnectionPool) -> None:
        pool.renew()
        self._groups.drop_connections()

    async def _fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """Rows of a statement that only reads: once more if its connection turns out to be broken."""
        async with self._call() as pool:
            try:
                return await pool.fetch(statement, *arguments)
            except Exception as error:
                if not is_broken(error) or isinstance(error, TimeoutError):
                    raise
                self._renew_connections(pool)
                return await pool.fetch(statement, *arguments)

    async def _fetch_one(self, statement: str, *arguments: Any) -> Any:
        """The first row of a statement that writes, and is its own transaction."""
        async with self._call() as pool:
            return await pool.fetchrow(statement, *arguments)

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        async with self._call() as pool, pool.acquire() as connection, connection.transaction():
            yield connection

    # --- change ----------------------------------------------------------------------------------

    def _changed(self, session_id: str) -> None:
        self._watches.notify(session_id)
        self._notifier.note(session_id)

    def _watch(self, session_id: str | None, *, own: bool) -> Watch:
        watch = self._watches.add(session_id, own=own)
        self._listener.start()
        return watch

    def _publish(self, session_id: str, item: LiveItem) -> None:
        self._streams.put(session_id, item)
        if self._pool is not None:
            self._notifier.live.put(session_id, item)

    def may_be_heard(self, session_id: str) -> bool:
        return self._listener.audience.may_hear(channel_of(session_id))

    def _listen(self, session_id: str) -> LiveStream:
        stream = self._streams.add(session_id)
        self._listener.tune()
        return stream
