"""Permits in PostgreSQL: see `store.permits`. Whoever takes one locks its counters first, in one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from holdfast.store.postgres.statements import NOW, escape, unescape
from holdfast.store.postgres.upkeep import UpkeepOfPostgres

LOCKS = 0x5065726D
"""The first half of the advisory locks of counters (`Perm` in ASCII). Locks of two halves are apart from all others."""

_LOCK = (
    f"select pg_advisory_xact_lock({LOCKS}, hash) from (select distinct hashtext(unnest($1::text[])) as hash"
    " order by 1) locks"
)
_CLEAN = f"""
with old as (delete from holdfast.permits where counter = any($1::text[]) and until <= {NOW})
delete from holdfast.permit_waits where counter = any($1::text[]) and until <= {NOW}
"""
_KNOWN = f"""
select {NOW} as now, w.rank, w.since,
       exists (select from holdfast.permits where ticket = $1 and held and until > {NOW}) as has_it
  from (select 1) one left join holdfast.permit_waits w on w.ticket = $1 and w.until > {NOW}
"""
_STATES = """
select (select count(*) from holdfast.permits p
         where p.counter = c.name and until > $2 and not (ticket = $3 and held)),
       (select count(*) from holdfast.permit_waits w
         where w.counter = c.name and (rank, ticket) < ($4, $3) and until > $2 and ticket <> $3),
       (select min(until) from holdfast.permits p
         where p.counter = c.name and until > $2 and not (ticket = $3 and held))
  from unnest($1::text[]) with ordinality as c (name, number) order by c.number
"""
_WAIT = """
insert into holdfast.permit_waits (ticket, session_id, owner, counter, rank, since, until)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (ticket) do update
   set owner = excluded.owner, counter = excluded.counter, rank = excluded.rank, since = excluded.since,
       until = excluded.until
"""
_TAKE = """
with waited as (delete from holdfast.permit_waits where ticket = $1),
     former as (delete from holdfast.permits where ticket = $1 and held)
insert into holdfast.permits (counter, ticket, owner, until, held)
select counter, $1, $2, until, held from unnest($3::text[], $4::bigint[], $5::bool[]) as shares (counter, until, held)
"""
_TURNS = f"""
select c.name, first.owner
  from unnest($1::text[]) as c (name) cross join lateral (
      select owner from holdfast.permit_waits w
       where w.counter = c.name and w.until > {NOW} order by rank, ticket limit 1
  ) first
"""
_END = f"""
with given as (delete from holdfast.permits where held and {{condition}} returning counter),
     departed as (delete from holdfast.permit_waits where {{condition}} returning counter),
     free as (select counter from given union select counter from departed)
select free.counter, first.owner
  from free cross join lateral (
      select owner from holdfast.permit_waits w
       where w.counter = free.counter and w.until > {NOW} and not ({{remaining}}) order by rank, ticket limit 1
  ) first order by free.counter
"""
GIVE_BACK = _END.format(condition="ticket = $1 and owner = $2", remaining="w.ticket = $1 and w.owner = $2")
RELEASE = _END.format(condition="owner = $1", remaining="w.owner = $1")
"""What a statement deletes it still sees, hence the condition on who is next."""

_RENEW = f"""
with held as (update holdfast.permits set until = {NOW} + $2 where owner = $1 and held and until > {NOW})
update holdfast.permit_waits set until = {NOW} + $2 where owner = $1 and until > {NOW}
"""
_SWEEP = f"""
with gone as (
    delete from holdfast.permit_waits where ticket in (
        select ticket from holdfast.permit_waits where until <= {NOW} limit $1 for update skip locked)
)
delete from holdfast.permits where number in (
    select number from holdfast.permits where until <= {NOW} limit $1 for update skip locked)
"""
SWEPT = 1_000
"""Rows whose time is over that are deleted in one go, of counters that nobody asks for any more."""

_WAITS = f"""
select session_id, ticket, counter, since, owner from holdfast.permit_waits
 where until > {NOW} and ($1::text[] is null or session_id = any($1::text[])) order by rank, ticket limit $2
"""
_USES = f"""
select counter, sum(taken)::bigint, sum(waiting)::bigint from (
    select counter, count(*) as taken, 0 as waiting from holdfast.permits where until > {NOW} group by counter
    union all select counter, 0, count(*) from holdfast.permit_waits where until > {NOW} group by counter
) each group by counter order by counter limit $1
"""


async def take(connection: Any, request: PermitRequest) -> PermitReply:
    """Take a permit, or a place in line, in the transaction of a connection."""
    counters, ticket = [escape(share.counter) for share in request.shares], escape(request.ticket)
    await connection.execute(_LOCK, counters)
    await connection.execute(_CLEAN, counters)
    now, rank, since, has_it = await connection.fetchrow(_KNOWN, ticket)
    rank, since = (rank_of(now, request.priority), now) if rank is None else (rank, since)
    states = [CounterState(*row) for row in await connection.fetch(_STATES, counters, now, ticket, rank)]
    full = None if has_it else first_full(request, states)
    if full is not None:
        until = now + request.hold_ms
        await connection.execute(_WAIT, ticket, request.session_id, request.owner, counters[full], rank, since, until)
        return refusal(request, full, states[full], rank, now)
    ends = [now + (share.period_ms or request.hold_ms) for share in request.shares]
    held = [not share.period_ms for share in request.shares]
    await connection.execute(_TAKE, ticket, request.owner, counters, ends, held)
    roomy = [escape(counter) for counter in with_room(request, states)]
    rows = await connection.fetch(_TURNS, roomy) if roomy else []
    return PermitReply(rank=rank, next=tuple(PermitTurn(unescape(counter), owner) for counter, owner in rows))


class PermitsOfPostgres(UpkeepOfPostgres):
    """The part of the PostgreSQL store that counts calls."""

    async def _take_permit(self, request: PermitRequest) -> PermitReply:
        async with self._transaction() as connection:
            return await take(connection, request)

    async def _give_back_permit(self, ticket: str, owner: str) -> list[PermitTurn]:
        return await self._ended(GIVE_BACK, escape(ticket), owner)

    async def _renew_permits(self, owner: str, hold_ms: int) -> None:
        await self._fetch_one(_RENEW, owner, hold_ms)
        await self._fetch_one(_SWEEP, SWEPT)

    async def _release_permits(self, owner: str) -> list[PermitTurn]:
        return await self._ended(RELEASE, owner)

    async def _ended(self, statement: str, *arguments: str) -> list[PermitTurn]:
        async with self._call() as pool:
            rows = await pool.fetch(statement, *arguments)
        return [PermitTurn(unescape(counter), owner) for counter, owner in rows]

    async def _permit_waits(self, session_ids: Sequence[str], limit: int) -> list[PermitWait]:
        rows = await self._fetch(_WAITS, list(session_ids) or None, limit)
        return [
            PermitWait(session_id, unescape(ticket), unescape(counter), since, owner)
            for session_id, ticket, counter, since, owner in rows
        ]

    async def _counter_uses(self, limit: int) -> list[CounterUse]:
        return [CounterUse(unescape(counter), *uses) for counter, *uses in await self._fetch(_USES, limit)]
