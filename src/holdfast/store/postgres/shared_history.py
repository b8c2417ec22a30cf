"""What the PostgreSQL store does about journals that several sessions read: forks, and what a deletion leaves of one.

Forking locks the source (`for key share`), so that it is not deleted meanwhile. Deleting a fork locks the sessions that
it shares records of in the same way, and the tombstones of those that are gone: of two who delete the last forks of one
session at once, the second sees what the first has done, and drops the records that nobody shares any more. Locks go
from a fork to its sources, which are older, and never back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.errors import SessionDeletedError, SessionNotFoundError
from holdfast.store.codec import StoredEntry
from holdfast.store.commits import Commit, CommitReceipt
from holdfast.store.postgres import statements as sql
from holdfast.store.shared_history import Share, check_reach, kept_references, shares_of

READ = """
select s.position as reach, e.* from holdfast.sessions s left join lateral (
    select position, at, checksum, body, null as writer from holdfast.journal
     where session = s.num and position between $2::bigint + 1 and $2::bigint + $3::bigint
    union all
    select j.*, h.source_id from holdfast.shares h cross join lateral (
        select position, at, checksum, body from holdfast.journal
         where session = h.source
           and position between greatest(h.first, $2::bigint + 1) and least(h.last, $2::bigint + $3::bigint)
        offset 0) j  -- which keeps the planner from reading the whole journal
     where h.session = s.num and h.first <= $2::bigint + $3::bigint and h.last > $2::bigint) e on true
 where s.id = $1 order by e.position
"""


async def fork(
    connection: Any, source: str, at: int, commit: Commit, stored: Sequence[StoredEntry]
) -> CommitReceipt | None:
    """Make a fork in a transaction; None, to be undone, if its id is not free."""
    found = await connection.fetchrow("select num, position from holdfast.sessions where id = $1 for key share", source)
    if found is None:
        deleted = await connection.fetchval("select deleted_at from holdfast.tombstones where id = $1", source)
        raise SessionNotFoundError(source) if deleted is None else SessionDeletedError(source, deleted)
    check_reach(source, at, found["position"])
    own = await connection.fetch(
        "select first, last, source, source_id from holdfast.shares where session = $1 order by first", found["num"]
    )
    shares = shares_of(found["num"], source, [Share(*row) for row in own], at)
    blobs = {blob_id: data for entry in stored for blob_id, data in entry.blobs.items()}
    statement = sql.append_statement(True, False, bool(blobs), sql.snapshot_change(commit))
    row = await connection.fetchrow(statement, *sql.append_arguments(commit, stored, [], blobs, None))
    if row is None:
        return None
    num = await connection.fetchval(
        "update holdfast.sessions set position = $2 where id = $1 returning num", commit.session_id, at
    )
    await connection.executemany(
        "insert into holdfast.shares (session, first, last, source, source_id) values ($1, $2, $3, $4, $5)",
        [(num, each.first, each.last, each.source, each.source_id) for each in shares],
    )
    for write in sorted(commit.writes, key=lambda write: (write.namespace, write.key)):
        await sql.write_state(connection, write)
    await sql.write_checkpoint(connection, commit)
    return CommitReceipt(commit.session_id, at, row["epoch"])


async def delete_session(connection: Any, session_id: str, num: int, at: int) -> None:
    """Remove everything of a locked session but its id, and the records that forks share; and with a fork, what it was
    the last to share of sessions that are gone."""
    await connection.execute("insert into holdfast.tombstones values ($1, $2)", session_id, at)
    for table in ("mailbox", "snapshots", "checkpoints", "segments"):
        await connection.execute(f"delete from holdfast.{table} where session = $1", num)
    rows = await connection.fetch("delete from holdfast.shares where session = $1 returning source, source_id", num)
    sources = {row["source"]: row["source_id"] for row in rows}
    alive = await connection.fetch(
        "select num from holdfast.sessions where num = any($1::bigint[]) order by num for key share", list(sources)
    )
    gone = sources.keys() - {row["num"] for row in alive}
    await connection.execute(
        "select from holdfast.tombstones where id = any($1::text[]) order by id for update",
        [sources[source] for source in gone],
    )
    await connection.execute("delete from holdfast.sessions where num = $1", num)
    blobs = [blob for each in (num, *sorted(gone)) for blob in await _drop_unshared(connection, each)]
    await sql.drop_unkept(connection, blobs)


async def _drop_unshared(connection: Any, num: int) -> list[str]:
    """Remove the records of a session that is gone which no fork shares; gives the blobs that it does not keep on."""
    first, last = await connection.fetchrow("select min(first), max(last) from holdfast.shares where source = $1", num)
    done = await connection.execute(
        "delete from holdfast.journal where session = $1 and not position between $2 and $3", num, first or 1, last or 0
    )
    if done == "DELETE 0" and last:
        return []
    left = await connection.fetch(
        "select body from holdfast.journal where session = $1 and strpos(body, '\"$') > 0", num
    )
    rows = await connection.fetch(
        "delete from holdfast.blob_refs where session = $1 and blob <> all($2::text[]) returning blob",
        *(num, list(kept_references(body for (body,) in left))),
    )
    return [blob for (blob,) in rows]
