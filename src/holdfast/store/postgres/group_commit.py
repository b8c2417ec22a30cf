"""Group commit for PostgreSQL: appends that wait while others are written go to the server together.

An append that finds nobody else writing is sent at once. While some are on their way, those that arrive are collected,
and sent as one statement for all their sessions: one round trip and one flush of the log instead of many. A session
that is refused in a group is left out of it, and the reason is found out as for a single append.

A row that somebody else has locked must not hold up the others of its group. So a group waits for locks only for a
moment; then those whose rows are locked are left out, and have to wait by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg

from holdfast.store.group_size import GroupSize
from holdfast.store.limits import CONNECT_TIMEOUT_S, GROUP_COMMIT_MAX
from holdfast.store.postgres.append import PostgresAppend, append_call
from holdfast.store.postgres.errors import BAD_ARGUMENT, is_broken, is_stray
from holdfast.store.postgres.pool import Connect, connect_in_turn

GROUPS_AT_ONCE = 2
"""Groups on their way at a time, each by a connection of its own: one is collected while another is flushed."""

EARLY = 8
"""Appends that are sent before the others of their turn, at least, so that the loop makes the next ones meanwhile. Few,
as a statement costs the server little more than its rows."""

Outcome: TypeAlias = int | Exception | None
"""Of an append: the epoch under which it was written, None if it was refused, or why that is not known."""

_UNLOCKED = """
select id from holdfast.sessions where id = any($1::text[]) order by id for no key update skip locked
"""
"""The sessions among these whose rows nobody has locked."""

_NOT_TOGETHER = (asyncpg.DeadlockDetectedError, asyncpg.UniqueViolationError, *BAD_ARGUMENT)
"""What one append does to a whole group: another process writes to the same sessions in another order, the id of a new
session belongs to one that was deleted, or a value is one that the server cannot hold."""


class CommitConnection:
    """A connection that commits go through, one statement at a time. Its statements stay prepared."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: Any = None
        self._prepared: dict[str, Any] = {}

    async def write(self, group: Sequence[PostgresAppend]) -> dict[str, Outcome]:
        """Write appends to different sessions; gives the outcomes of those that were not refused."""
        outcomes: dict[str, Outcome] = {}
        try:
            return await self._write(group)
        except asyncpg.LockNotAvailableError as error:
            if len(group) == 1:
                return {group[0].commit.session_id: error}
            locked = await self._locked(group)
            if locked:
                outcomes |= dict.fromkeys(locked, error)
                rest = [append for append in group if append.commit.session_id not in locked]
                return outcomes | (await self.write(rest) if rest else {})
        except _NOT_TOGETHER as error:
            if len(group) == 1:
                is_refused = isinstance(error, asyncpg.UniqueViolationError)
                return {} if is_refused else {group[0].commit.session_id: error}
        for append in group:
            outcomes |= await self.write([append])
        return outcomes

    async def _locked(self, group: Sequence[PostgresAppend]) -> set[str]:
        """The existing sessions of a group whose rows are locked."""
        ids = {append.commit.session_id for append in group if append.commit.expected}
        return ids - {row["id"] for row in await self._connection.fetch(_UNLOCKED, list(ids))}

    async def _write(self, group: Sequence[PostgresAppend]) -> dict[str, Outcome]:
        statement, arguments = append_call(group)
        try:
            if self._connection is None or self._connection.is_closed():
                self._prepared = {}
                self._connection = await connect_in_turn(self._connect)
            prepared = self._prepared.get(statement)
            if prepared is None:
                prepared = self._prepared[statement] = await self._connection.prepare(statement)
            rows = await prepared.fetch(*arguments)
        except BaseException as error:
            if is_broken(error):
                self.drop()
            raise
        return {row["id"]: row["epoch"] for row in rows}

    def drop(self) -> None:
        """Connect anew before the next statement."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close(timeout=CONNECT_TIMEOUT_S)


class GroupWriter:
    """Collects appends to different sessions into groups, and writes them. Belongs to one event loop."""

    def __init__(self, connect: Connect) -> None:
        self._connections = [CommitConnection(connect) for _ in range(GROUPS_AT_ONCE)]
        self._idle = list(self._connections)
        self._waiting: dict[str, tuple[PostgresAppend, asyncio.Future[Outcome]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = 0
        """Appends that were sent, and whose outcome is not known yet."""
        self._group_size = GroupSize(EARLY)

    async def append(self, append: PostgresAppend) -> int | None:
        """The epoch under which an append was written; None if it was refused."""
        session_id = append.commit.session_id
        if len(self._idle) == GROUPS_AT_ONCE and not self._waiting:
            outcome = (await self._write([append])).get(session_id)
        else:
            while session_id in self._waiting:
                await asyncio.wait([self._waiting[session_id][1]])
            outcome = await self._wait_for_group(append)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _wait_for_group(self, append: PostgresAppend) -> Outcome:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._flush)
        future: asyncio.Future[Outcome] = loop.create_future()
        self._waiting[append.commit.session_id] = append, future
        if len(self._waiting) >= self._group_size.early:
            self._flush()
        return await future

    def _flush(self) -> None:
        """Send what waits, as far as there are connections for it."""
        while self._waiting and self._idle:
            taken = [self._waiting.pop(session_id) for session_id in list(self._waiting)[:GROUP_COMMIT_MAX]]
            group = [(append, future) for append, future in taken if not future.done()]
            if group:
                self._under_way += len(group)
                self._group_size.begun(self._under_way)
                task = asyncio.create_task(self._write_group(group, self._idle.pop()))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _write_group(
        self, group: list[tuple[PostgresAppend, asyncio.Future[Outcome]]], by: CommitConnection
    ) -> None:
        lost: Outcome = ConnectionError("the store was closed while it was written")
        outcomes: dict[str, Outcome] = {append.commit.session_id: lost for append, _ in group}
        try:
            outcomes = await self._write([append for append, _ in group], by)
        finally:
            self._under_way -= len(group)
            for append, future in group:
                if not future.done():
                    future.set_result(outcomes.get(append.commit.session_id))

    async def _write(self, group: Sequence[PostgresAppend], by: CommitConnection | None = None) -> dict[str, Outcome]:
        connection = by or self._idle.pop()
        try:
            return await connection.write(group)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not is_stray(error):
                raise
            lost = error if isinstance(error, Exception) else ConnectionError("the connection was lost")
            return {append.commit.session_id: lost for append in group}
        finally:
            self._idle.append(connection)
            self._flush()

    async def drain(self) -> None:
        """Write everything that waits."""
        while self._waiting or self._tasks:
            self._flush()
            if self._tasks:
                await asyncio.wait(set(self._tasks))
            else:
                await asyncio.sleep(0)  # a single append is on its way, and will flush the others

    def drop_connections(self) -> None:
        """Connect anew before the next statements, as other connections of the same age turned out to be broken."""
        for connection in self._idle:
            connection.drop()

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
