"""What upkeep asks of PostgreSQL. Each statement finds its rows by an index: a test reads their query plans."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.commits import Lease
from holdfast.store.postgres import shared_history as sharing
from holdfast.store.postgres import size
from holdfast.store.postgres.connection import ConnectedStore
from holdfast.store.postgres.presence import BURY, DEAD, GONE
from holdfast.store.postgres.statements import LIVING, NOW, escape
from holdfast.store.upkeep import OpenChild, OpenSession
from holdfast.store.watch import Watch

LOST = f"""
select id, owner, epoch, lease_until from holdfast.sessions
 where lease_lock is not null and lease_lock = any($1::bigint[]) and lease_until > {NOW}
   and {GONE.format(lock="lease_lock")} order by num limit $2
"""
RELEASE_EXPIRED = f"""
with expired as (
    select num from holdfast.sessions where lease_until is not null and lease_until <= (select {NOW})
     order by lease_until limit $1 for no key update skip locked
)
update holdfast.sessions s set owner = null, lease_until = null, lease_lock = null
  from expired where s.num = expired.num and s.lease_until <= {NOW} returning s.id
"""
_EACH = "unnest({services}::text[]) as served (service) cross join lateral"
"""Each service by itself: an index gives its rows in their order, and those of several would all have to be sorted.
Where the order is that of `num`, the rows are bounded by all columns of the index: else the server may walk through the
primary key instead, past all sessions that do not fit."""

DUE = f"""
select id, due_at from {_EACH.format(services="$3")} (
    select id, due_at, num from holdfast.sessions s
     where due_at is not null and due_at > $4 and due_at <= $1 and s.service = served.service
     order by due_at limit $2
) found order by due_at, num limit $2
"""
_OPEN = "owner is null and needs <> ''"
NEEDS = f"""
with recursive found (needs) as (
    (select min(needs) from holdfast.sessions where {_OPEN} and service = $1)
    union all
    select (select min(needs) from holdfast.sessions s where {_OPEN} and service = $1 and s.needs > found.needs)
      from found where found.needs is not null
)
select needs from found where needs is not null limit $2
"""
"""From one to the next, so that all sessions with the same needs cost as much as one of them."""

SERVICES = """
with recursive found (service) as (
    (select min(service) from holdfast.sessions)
    union all
    select (select min(service) from holdfast.sessions s where s.service > found.service)
      from found where found.service is not null
)
select service from found where service is not null
"""
OPEN_SESSIONS = f"""
select id, position, epoch, num from {_EACH.format(services="$2")} (
    select id, position, epoch, num from holdfast.sessions s
     where {_OPEN} and (s.service, needs, num) < (served.service, $1, $3)
       and (s.service, needs, num) >= (served.service, $1, 0)
     order by s.service desc, needs desc, num desc limit $4
) found order by num desc limit $4
"""
MAIL = f"""
select s.id, s.position, s.epoch, s.num, mail.last
  from (select session, min(number) as first, max(number) as last
          from holdfast.mailbox where body is not null group by session) mail
  join holdfast.sessions s on s.num = mail.session
 where s.owner is null and s.{LIVING} and s.service = any($1::text[])
 order by mail.first limit $2
"""
OPEN_CHILDREN = f"""
select id, parent, num from {_EACH.format(services="$1")} (
    select id, parent, num from holdfast.sessions s
     where parent is not null and {LIVING} and owner is null
       and (s.service, num) < (served.service, $2) and (s.service, num) >= (served.service, 0)
     order by s.service desc, num desc limit $3
) found order by num desc limit $3
"""
OVER = f"""
select id, num from {_EACH.format(services="$2")} (
    select id, num, ended_at from holdfast.sessions s
     where ended_at is not null and ended_at < $1 and s.service = served.service
     order by ended_at limit $3 for update skip locked
) found order by ended_at, num limit $3
"""


class UpkeepOfPostgres(ConnectedStore):
    """The part of the PostgreSQL store that upkeep asks."""

    async def _services(self, services: Sequence[str]) -> list[str]:
        """These services, or all."""
        return list(map(escape, services)) or [service for (service,) in await self._fetch(SERVICES)]

    async def _lost(self, limit: int) -> list[Lease]:
        dead = [lock for (lock,) in await self._fetch(DEAD)]
        if not dead or limit < 1:
            return []
        rows = await self._fetch(LOST, dead, limit)
        if not rows:
            await self._fetch_one(BURY, dead)
        return [Lease(*row) for row in rows]

    async def _release_expired(self, limit: int) -> int:
        async with self._call() as pool:
            released = [session_id for (session_id,) in await pool.fetch(RELEASE_EXPIRED, limit)]
        for session_id in released:
            self._changed(session_id)
        return len(released)

    async def _due(self, now: int, limit: int, services: Sequence[str], after: int) -> list[tuple[str, int]]:
        rows = await self._fetch(DUE, now, limit, await self._services(services), after)
        return [(session_id, due_at) for session_id, due_at in rows]

    async def _open_needs(self, services: Sequence[str], limit: int) -> list[str]:
        found: set[str] = set()
        for service in await self._services(services):
            found.update(needs for (needs,) in await self._fetch(NEEDS, service, limit))
        return sorted(found)[:limit]

    async def _open_sessions(self, needs: str, services: Sequence[str], before: int, limit: int) -> list[OpenSession]:
        rows = await self._fetch(OPEN_SESSIONS, escape(needs), await self._services(services), before, limit)
        return [OpenSession(*row) for row in rows]

    async def _open_mail(self, services: Sequence[str], limit: int) -> list[OpenSession]:
        return [OpenSession(*row) for row in await self._fetch(MAIL, await self._services(services), limit)]

    async def _open_children(self, services: Sequence[str], before: int, limit: int) -> list[OpenChild]:
        rows = await self._fetch(OPEN_CHILDREN, await self._services(services), before, limit)
        return [OpenChild(*row) for row in rows]

    async def _prune(self, ended_before: int, limit: int, services: Sequence[str]) -> list[str]:
        of = await self._services(services)
        async with self._transaction() as connection:
            over = await connection.fetch(OVER, ended_before, of, limit)
            await sharing.delete_sessions(connection, dict(over), ended_before)
        for session_id, _ in over:
            self._changed(session_id)
        return [session_id for session_id, _ in over]

    async def _is_larger(self, max_bytes: int) -> bool:
        async with self._call() as pool:
            return await size.used_bytes(pool, max_bytes) > max_bytes

    async def _give_back_space(self) -> bool:
        return False  # the server's own vacuum does

    def _watch_others(self) -> Watch:
        self._listener.start()
        return self._watches.add_for_others()
