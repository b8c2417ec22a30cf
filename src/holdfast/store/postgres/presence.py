"""Presence: an advisory lock that a store keeps for as long as its standing connection lives.

Leases carry the number of that lock. The server lets go of it the moment the connection ends, however the process
died, so that a lease whose lock is free has lost its holder. A holder that was only cut off takes the same lock again,
or moves its leases to another one, and they count as before; if somebody has claimed a session meanwhile, its epoch
protects that.

The upper half of the number says when the server was started. After a restart nobody has had the time to come back, and
on another server nobody ever had the lock: there a free lock proves nothing, and only time ends such a lease.

The locks that were taken stand in the table `holders`, so that looking for dead ones does not mean looking at sessions.
"""

from __future__ import annotations

import secrets
from typing import Any

import asyncpg

COME_BACK_S = 1.0
"""Seconds to wait for our own lock after a loss of connection, until the server has noticed that loss too."""

_STARTED = "(extract(epoch from pg_postmaster_start_time())::bigint & 2147483647)"

GONE = f"(coalesce({{lock}} >> 32 = {_STARTED}, false) and pg_try_advisory_xact_lock_shared({{lock}}))"
"""Whether the holder of a lock is gone. Those who ask share the lock until their transaction ends: they do not wait for
each other, and a holder who comes back waits for them."""

_REGISTER = f"""
with old as (delete from holdfast.holders where lock >> 32 <> {_STARTED})
insert into holdfast.holders (lock) values ($1) on conflict do nothing
"""
_UNREGISTER = """
delete from holdfast.holders where lock = $1 and not exists (select from holdfast.sessions where lease_lock = $1)
"""
_MOVE = "update holdfast.sessions set lease_lock = $2 where lease_lock = $1"
DEAD = f"select lock from holdfast.holders where {GONE.format(lock='lock')}"
BURY = f"delete from holdfast.holders where lock = any($1::bigint[]) and {GONE.format(lock='lock')}"


class PostgresPresence:
    """The lock of one open store."""

    def __init__(self) -> None:
        self.lock: int | None = None
        """Its number while it is held, as far as is known here."""
        self._number = 0

    async def take(self, connection: Any) -> None:
        """Hold the lock by a new connection: the same as before, if that can be had."""
        started: int = await connection.fetchval(f"select {_STARTED}")
        former = self._number
        if former >> 32 != started or not await self._come_back(connection):
            self._number = await self._new(connection, started)
        await connection.execute(_REGISTER, self._number)
        self.lock = self._number
        if former and former != self.lock:
            await connection.execute(_MOVE, former, self.lock)

    async def _come_back(self, connection: Any) -> bool:
        try:
            await connection.execute("select pg_advisory_lock($1)", self._number, timeout=COME_BACK_S)
        except (TimeoutError, asyncpg.QueryCanceledError):
            return False  # the server still takes our old connection for alive; its end must not end our leases
        return True

    @staticmethod
    async def _new(connection: Any, started: int) -> int:
        while True:
            number = started << 32 | secrets.randbits(32)
            if await connection.fetchval("select pg_try_advisory_lock($1)", number):
                return number

    async def leave(self, connection: Any) -> None:
        """Give up the lock for good. It stays in the table if there are leases that end with it, for others to find."""
        number, self.lock = self.lock, None
        if number is not None:
            await connection.execute(_UNREGISTER, number)
            await connection.execute("select pg_advisory_unlock($1)", number)  # the server may be slow to hang up
