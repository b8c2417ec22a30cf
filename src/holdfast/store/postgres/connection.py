"""How the PostgreSQL store reaches its server: the pool, calls through it, and the connections for notifications."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.store.contract import Store
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.limits import CLOSE_TIMEOUT_S, COMMAND_TIMEOUT_S, CONNECT_TIMEOUT_S
from holdfast.store.postgres.errors import BAD_ARGUMENT, BROKEN, TROUBLE, redact, unavailable
from holdfast.store.postgres.group_commit import GroupWriter
from holdfast.store.postgres.live import ChannelStreams
from holdfast.store.postgres.notify import ListenConnection, NotifyConnection, WatchedSessions
from holdfast.store.postgres.schema import create_or_migrate
from holdfast.store.watch import LiveItem, LiveStream, Watch

POOL_CONNECTIONS = 16
"""Connections for reads and writes: past this, more commits at once wait for the same log flush."""

_SETTINGS = {"application_name": "holdfast", "default_transaction_isolation": "read committed"}


async def _no_reset(_connection: Any) -> None:
    """Our statements leave nothing behind on a connection, so that a round trip to clean it is saved."""


class ConnectedStore(Store):
    """The part of the PostgreSQL store that opens, closes, watches and listens; `PostgresStore` has the rest."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._shown = redact(url)
        self._pool: Any = None
        self._groups = GroupWriter(self._connect_to_commit)
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._watches = WatchedSessions()
        self._streams = ChannelStreams()
        self._notifier, self._listener = self._connections()

    def _connections(self) -> tuple[NotifyConnection, ListenConnection]:
        notifier = NotifyConnection(self._connect)
        return notifier, ListenConnection(self._connect, self._watches, notifier, self._streams)

    # --- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._pool is not None:
            return
        try:
            connection = await self._connect()
            try:
                await create_or_migrate(connection, self._shown)
            finally:
                await connection.close(timeout=CONNECT_TIMEOUT_S)
            self._pool = await asyncpg.create_pool(
                self.url,
                min_size=1,
                max_size=POOL_CONNECTIONS,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=COMMAND_TIMEOUT_S,
                reset=_no_reset,
                server_settings=_SETTINGS,
            )
        except TROUBLE as error:
            raise unavailable(self._shown, error) from None
        self._notifier, self._listener = self._connections()

    async def _connect(self) -> Any:
        """A connection beside the pool, for migrations and wake-ups: neither needs to wait for the disk."""
        settings = {"application_name": "holdfast", "synchronous_commit": "off"}
        return await asyncpg.connect(self.url, timeout=CONNECT_TIMEOUT_S, server_settings=settings)

    async def _connect_to_commit(self) -> Any:
        """A connection for commits. Their statements are planned once, and find every row by its key: the plan is also
        good for tables that have grown since."""
        settings = _SETTINGS | {
            "plan_cache_mode": "force_generic_plan",
            **dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"), "off"),
        }
        return await asyncpg.connect(
            self.url, timeout=CONNECT_TIMEOUT_S, command_timeout=COMMAND_TIMEOUT_S, server_settings=settings
        )

    async def close(self) -> None:
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._idle.wait()
                await self._groups.drain()
                await pool.close()
        except TROUBLE:
            pool.terminate()
        await self._groups.close()
        await self._listener.close()  # after the last commit: what it holds ends with the lock
        await self._notifier.close()

    @contextlib.asynccontextmanager
    async def _call(self) -> AsyncIterator[Any]:
        """The pool, for one statement or transaction that closing has to wait for. No error of the driver gets out."""
        pool = self._begin_call()
        try:
            yield pool
        except TROUBLE as error:
            raise await self._failure(pool, error) from None
        finally:
            self._end_call()

    def _begin_call(self) -> Any:
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

    async def _failure(self, pool: Any, error: Exception) -> HoldfastError:
        """What callers see for an error of the driver."""
        if isinstance(error, BAD_ARGUMENT):
            return InvalidValueError("argument", str(error))
        if isinstance(error, BROKEN):
            await self._expire_connections(pool)
        return unavailable(self._shown, error)

    async def _expire_connections(self, pool: Any) -> None:
        """Connect anew for what comes: the other connections are as old as one that is broken, and may be broken
        without knowing it."""
        await pool.expire_connections()
        self._groups.drop_connections()

    async def _fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """Rows of a statement that only reads: once more if its connection turns out to be broken."""
        async with self._call() as pool:
            try:
                return list(await pool.fetch(statement, *arguments))
            except BROKEN:
                await self._expire_connections(pool)
                return list(await pool.fetch(statement, *arguments))

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

    def _watch(self, session_id: str | None) -> Watch:
        watch = self._watches.add(session_id)
        self._listener.start()
        return watch

    def _publish(self, session_id: str, item: LiveItem) -> None:
        self._streams.put(session_id, item)
        if self._pool is not None:
            self._notifier.live.put(session_id, item)

    def _listen(self, session_id: str) -> LiveStream:
        stream = self._streams.add(session_id)
        self._listener.tune()
        return stream
