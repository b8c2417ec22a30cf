"""Permits in a SQLite file: see `store.permits`. Each call is one write, so that no other comes in between."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.store.contract import Store
from holdfast.store.permits import (
    CounterState,
    CounterUse,
    PermitReply,
    PermitRequest,
    PermitTurn,
    PermitWait,
    first_full,
    rank_of,
    refusal,
    with_room,
)
from holdfast.store.sqlite.statements import now_ms

T = TypeVar("T")

_STATE = """
SELECT (SELECT count(*) FROM permits WHERE counter = ?1 AND until > ?2 AND NOT (ticket = ?3 AND held)),
       (SELECT count(*) FROM permit_waits
         WHERE counter = ?1 AND (rank, ticket) < (?4, ?3) AND until > ?2 AND ticket <> ?3),
       (SELECT min(until) FROM permits WHERE counter = ?1 AND until > ?2 AND NOT (ticket = ?3 AND held))
"""
_NEXT = "SELECT owner FROM permit_waits WHERE counter = ? AND until > ? ORDER BY rank, ticket LIMIT 1"
_USES = """
SELECT counter, sum(taken), sum(waiting) FROM (
    SELECT counter, count(*) AS taken, 0 AS waiting FROM permits WHERE until > ?1 GROUP BY counter
    UNION ALL SELECT counter, 0, count(*) FROM permit_waits WHERE until > ?1 GROUP BY counter
) GROUP BY counter ORDER BY counter LIMIT ?2
"""


def take(connection: sqlite3.Connection, request: PermitRequest) -> PermitReply:
    """Take a permit, or a place in line."""
    now, ticket = now_ms(), request.ticket
    for share in request.shares:
        connection.execute("DELETE FROM permits WHERE counter = ? AND until <= ?", (share.counter, now))
        connection.execute("DELETE FROM permit_waits WHERE counter = ? AND until <= ?", (share.counter, now))
    waiting = connection.execute(
        "SELECT rank, since FROM permit_waits WHERE ticket = ? AND until > ?", (ticket, now)
    ).fetchone()
    rank, since = waiting or (rank_of(now, request.priority), now)
    has_it = connection.execute(
        "SELECT 1 FROM permits WHERE ticket = ? AND held AND until > ? LIMIT 1", (ticket, now)
    ).fetchone()
    states = [
        CounterState(*connection.execute(_STATE, (share.counter, now, ticket, rank)).fetchone())
        for share in request.shares
    ]
    full = None if has_it else first_full(request, states)
    if full is not None:
        connection.execute(
            "INSERT OR REPLACE INTO permit_waits (ticket, session_id, owner, counter, rank, since, until)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *(ticket, request.session_id, request.owner, request.shares[full].counter),
                *(rank, since, now + request.hold_ms),
            ),
        )
        return refusal(request, full, states[full], rank, now)
    connection.execute("DELETE FROM permit_waits WHERE ticket = ?", (ticket,))
    connection.execute("DELETE FROM permits WHERE ticket = ? AND held", (ticket,))
    connection.executemany(
        "INSERT INTO permits (counter, ticket, owner, until, held) VALUES (?, ?, ?, ?, ?)",
        [
            (share.counter, ticket, request.owner, now + (share.period_ms or request.hold_ms), not share.period_ms)
            for share in request.shares
        ],
    )
    return PermitReply(rank=rank, next=tuple(_turns(connection, with_room(request, states))))


def end(connection: sqlite3.Connection, condition: str, values: tuple[str, ...]) -> list[PermitTurn]:
    """Give back the places at once, and leave the lines, that meet a condition."""
    rows = connection.execute(f"DELETE FROM permits WHERE held AND {condition} RETURNING counter", values).fetchall()
    rows += connection.execute(f"DELETE FROM permit_waits WHERE {condition} RETURNING counter", values).fetchall()
    return _turns(connection, sorted({counter for (counter,) in rows}))


def _turns(connection: sqlite3.Connection, counters: Sequence[str]) -> list[PermitTurn]:
    """Who is first in the lines of these counters."""
    now = now_ms()
    firsts = [(counter, connection.execute(_NEXT, (counter, now)).fetchone()) for counter in counters]
    return [PermitTurn(counter, first[0]) for counter, first in firsts if first is not None]


def renew(connection: sqlite3.Connection, owner: str, hold_ms: int) -> None:
    now = now_ms()
    for statement in (
        "UPDATE permits SET until = ? WHERE owner = ? AND held AND until > ?",
        "UPDATE permit_waits SET until = ? WHERE owner = ? AND until > ?",
    ):
        connection.execute(statement, (now + hold_ms, owner, now))
    for table in ("permits", "permit_waits"):
        connection.execute(f"DELETE FROM {table} WHERE until <= ?", (now,))


def waits(connection: sqlite3.Connection, session_ids: Sequence[str], limit: int) -> list[PermitWait]:
    among = f"session_id IN ({', '.join('?' * len(session_ids))})" if session_ids else "1"
    statement = (
        "SELECT session_id, ticket, counter, since, owner FROM permit_waits"
        f" WHERE until > ? AND {among} ORDER BY rank, ticket LIMIT ?"
    )
    return [PermitWait(*row) for row in connection.execute(statement, (now_ms(), *session_ids, limit))]


class PermitsOfSqlite(Store):
    """The part of the SQLite store that counts calls."""

    @abstractmethod
    async def _run_write(self, session_id: str, work: Callable[[sqlite3.Connection], T]) -> T: ...

    @abstractmethod
    async def _run_lookup(self, session_id: str, work: Callable[[sqlite3.Connection], T]) -> T: ...

    async def _take_permit(self, request: PermitRequest) -> PermitReply:
        return await self._run_write("", lambda connection: take(connection, request))

    async def _give_back_permit(self, ticket: str, owner: str) -> list[PermitTurn]:
        return await self._run_write(
            "", lambda connection: end(connection, "ticket = ? AND owner = ?", (ticket, owner))
        )

    async def _renew_permits(self, owner: str, hold_ms: int) -> None:
        await self._run_write("", lambda connection: renew(connection, owner, hold_ms))

    async def _release_permits(self, owner: str) -> list[PermitTurn]:
        return await self._run_write("", lambda connection: end(connection, "owner = ?", (owner,)))

    async def _permit_waits(self, session_ids: Sequence[str], limit: int) -> list[PermitWait]:
        return await self._run_lookup("", lambda connection: waits(connection, session_ids, limit))

    async def _counter_uses(self, limit: int) -> list[CounterUse]:
        return await self._run_lookup(
            "", lambda connection: [CounterUse(*row) for row in connection.execute(_USES, (now_ms(), limit))]
        )
