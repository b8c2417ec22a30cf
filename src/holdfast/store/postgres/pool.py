"""`ConnectionPool`: connections to PostgreSQL that statements borrow, one at a time.

The driver has a pool, too. That one mixes up who has a connection when old ones are replaced while statements are under
way, and gives up at once when the server has none left. This one drops whatever is in doubt, and waits its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import asyncpg

from holdfast.store.limits import CONNECT_TIMEOUT_S, TURN_S
from holdfast.store.postgres.errors import is_broken

IDLE_S = 5.0
"""Seconds after which a connection that nobody needs is closed, all but one: others may wait for it."""

GROW_S = 0.02
"""Seconds that a statement waits for a connection that others use before one more is made: that takes as long, and
every connection has to learn all statements anew."""

CROWDED_PAUSE_S = 0.1
"""Seconds between two tries to get one of the server's connections while all are taken."""

Connect: TypeAlias = Callable[[], Awaitable[Any]]

FULL = asyncpg.TooManyConnectionsError
"""The server has no connection left."""


async def connect_in_turn(connect: Connect) -> Any:
    """A connection; waits for a while if the server has none left."""
    deadline = asyncio.get_running_loop().time() + TURN_S
    while True:
        try:
            return await connect()
        except FULL:
            if asyncio.get_running_loop().time() >= deadline:
                raise
        await asyncio.sleep(CROWDED_PAUSE_S)


class ConnectionPool:
    """At most `most` connections, made when they are needed. Belongs to one event loop."""

    def __init__(self, connect: Connect, most: int) -> None:
        self._connect = connect
        self._most = most
        self._idle: list[tuple[Any, float]] = []
        """Connections that nobody has, and since when; the latest used is used next."""
        self._count = 0
        """Connections that are open or being made."""
        self._age: dict[Any, int] = {}
        """In which generation a connection was made."""
        self._generation = 0
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def acquire(self) -> AsyncIterator[Any]:
        """A connection. One that fails in any other way than by a refused statement is not used again."""
        connection = await self._take()
        try:
            yield connection
        except BaseException as error:
            if is_broken(error):
                self._drop(connection)
            else:
                self._give_back(connection)
            raise
        else:
            self._give_back(connection)

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """The rows of a statement."""
        async with self.acquire() as connection:
            return list(await connection.fetch(statement, *arguments))

    async def fetchrow(self, statement: str, *arguments: Any) -> Any:
        """The first row of a statement."""
        async with self.acquire() as connection:
            return await connection.fetchrow(statement, *arguments)

    async def fetchval(self, statement: str, *arguments: Any) -> Any:
        """The first value of the first row of a statement."""
        async with self.acquire() as connection:
            return await connection.fetchval(statement, *arguments)

    def renew(self) -> None:
        """Connect anew for what comes: the other connections are as old as one that is broken, and may be broken
        without knowing it."""
        self._generation += 1
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            self._drop(connection)

    async def close(self) -> None:
        """Close all connections that nobody uses. Those in use are closed when they are given back."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        self.renew()
        while self._closing:
            await asyncio.wait(set(self._closing))

    # --- inside ------------------------------------------------------------------------------------

    async def _take(self) -> Any:
        if (found := self._idle_one()) is not None:
            return found
        if not self._count:
            with contextlib.suppress(FULL):
                return await self._new()
        return await self._wait_for_turn()

    def _idle_one(self) -> Any:
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._drop(connection)
        return None

    async def _new(self) -> Any:
        self._count += 1
        generation = self._generation
        try:
            connection = await self._connect()
        except BaseException:
            self._count -= 1
            raise
        self._age[connection] = generation
        return connection

    async def _wait_for_turn(self) -> Any:
        """The next connection that is given back, or one of the server's as soon as it has one left."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TURN_S
        turn: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(turn)
        pause = GROW_S
        try:
            while loop.time() < deadline:
                await asyncio.wait([turn], timeout=min(pause, deadline - loop.time()))
                if turn.done():
                    return turn.result()
                if self._count < self._most and self._waiting[0] is turn:
                    try:
                        made = await self._new()
                    except FULL:
                        pause = CROWDED_PAUSE_S
                        continue
                    if turn.done():  # meanwhile it was given one
                        self._give_back(turn.result())
                    return made
            raise TimeoutError
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._give_back(turn.result())
            raise
        finally:
            turn.cancel()
            with contextlib.suppress(ValueError):
                self._waiting.remove(turn)

    def _give_back(self, connection: Any) -> None:
        if connection.is_closed() or self._age.get(connection) != self._generation or self._is_closed:
            self._drop(connection)
            return
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        self._idle.append((connection, asyncio.get_running_loop().time()))
        if self._sweep is None and len(self._idle) > 1:
            self._sweep = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        """Close connections that were not needed lately."""
        self._sweep = None
        before = asyncio.get_running_loop().time() - IDLE_S
        while len(self._idle) > 1 and self._idle[0][1] <= before:
            self._drop(self._idle.pop(0)[0])
        if len(self._idle) > 1:
            self._sweep = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle)

    def _drop(self, connection: Any) -> None:
        """Close a connection in the background: a statement that was given up is cancelled at the server first."""
        self._count -= 1
        self._age.pop(connection, None)
        task = asyncio.get_running_loop().create_task(_close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=CONNECT_TIMEOUT_S)
    except (Exception, asyncio.CancelledError):
        connection.terminate()
