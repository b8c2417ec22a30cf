"""What the PostgreSQL store does about journals that several sessions read: forks, and what a deletion leaves of one.

Forking locks the source (`for key share`), so that it is not deleted meanwhile. Deleting a fork locks the sessions that
it shares records of in the same way, and the tombstones of those that are gone: of two who delete the last forks of one
session at once, the second sees what the first has done, and drops the records that nobody shares any more. Locks go
from a fork to its sources, which are older, and never back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.core.errors import SessionDeletedError, SessionNotFoundError
from holdfast.store.commits import Commit, CommitReceipt
from holdfast.store.journal_rows import JournalPart, JournalRow, StoredCommit, cut_row, in_order, is_sound
from holdfast.store.postgres import statements as sql
from holdfast.store.postgres.append import PostgresAppend, append_call, write_rest
from holdfast.store.shared_history import check_reach, kept_references, shares_in, shares_of

_ROW = "first, last, at, later, checksum, body"
_PART = f"""
select {_ROW} from holdfast.journal
 where session = {{session}} and last >= {{first}} and first <= {{last}} and first >= coalesce(
       (select max(first) from holdfast.journal where session = {{session}} and first <= {{first}}), 0)
"""
"""The rows with positions from one to another: the one with a position is the last that begins there or before."""
_OWN = _PART.format(session="s.num", first="$2::bigint + 1", last="$2::bigint + $3::bigint")
_SHARED = _PART.format(
    session="h.source", first="greatest(h.first, $2::bigint + 1)", last="least(h.last, $2::bigint + $3::bigint)"
)
_READ = f"""
select {{columns}}, e.* from holdfast.sessions s left join lateral (
    select o.*, 1::bigint as begins, s.position as ends, s.id as writer from ({_OWN}) o
    union all
    select j.*, h.first, h.last, h.source_id from holdfast.shares h cross join lateral (
        {_SHARED} offset 0) j  -- which keeps the planner from reading the whole journal
     where h.session = s.num and h.first <= $2::bigint + $3::bigint and h.last > $2::bigint) e on true
 where {{wanted}}
"""
READ = _READ.format(columns="s.position as reach", wanted="s.id = $1")
READ_MANY = _READ.format(
    columns="s.id, s.position as reach", wanted="s.id = any($1::text[]) and s.position <= $3::bigint order by s.num"
)
"""The whole journals of several sessions that are no longer than `$3`; `$2` is 0."""


def parts_of(rows: Iterable[Any], after: int, limit: int) -> list[JournalPart]:
    """The parts of a journal in rows of `READ`, in order."""
    return in_order(
        JournalPart(_journal_row(columns), max(begins, after + 1), min(ends, after + limit), writer)
        for _, *columns, begins, ends, writer in rows
        if writer is not None
    )


def _journal_row(columns: Sequence[Any]) -> JournalRow:
    """A row of a journal from the columns in `_ROW`."""
    first, last, at, later, checksum, body = columns
    return JournalRow(first, last, at, later, checksum, body.encode())


async def fork(connection: Any, source: str, at: int, commit: Commit, stored: StoredCommit) -> CommitReceipt | None:
    """Make a fork in a transaction; None, to be undone, if its id is not free."""
    found = await connection.fetchrow("select num, position from holdfast.sessions where id = $1 for key share", source)
    if found is None:
        deleted = await connection.fetchval("select deleted_at from holdfast.tombstones where id = $1", source)
        raise SessionNotFoundError(source) if deleted is None else SessionDeletedError(source, deleted)
    check_reach(source, at, found["position"])
    own = await connection.fetch(
        "select first, last, source, source_id from holdfast.shares where session = $1 order by first", found["num"]
    )
    shares = shares_of(found["num"], source, shares_in(source, own), at)
    append = PostgresAppend(commit, stored, position=at)
    statement, arguments = append_call([append])
    row = await connection.fetchrow(statement, *arguments)
    if row is None:
        return None
    await connection.executemany(
        "insert into holdfast.shares (session, first, last, source, source_id)"
        " select num, $2, $3, $4, $5 from holdfast.sessions where id = $1",
        [(commit.session_id, each.first, each.last, each.source, each.source_id) for each in shares],
    )
    await write_rest(connection, append)
    return CommitReceipt(commit.session_id, at, row["epoch"])


_PLAIN = """
select num from unnest($1::bigint[]) as n (num)
 where not exists (select from holdfast.shares where session = n.num or source = n.num)
"""
"""Sessions that share nothing with a fork. While they are locked, nobody can make one of them."""


async def delete_sessions(connection: Any, sessions: Mapping[str, int], at: int) -> None:
    """Remove everything of locked sessions, by their ids, as `delete_session` does; at once where nothing is shared."""
    plain = {num for (num,) in await connection.fetch(_PLAIN, list(sessions.values()))}
    for session_id, num in sessions.items():
        if num not in plain:
            await delete_session(connection, session_id, num, at)
    if plain:
        gone = [session_id for session_id, num in sessions.items() if num in plain]
        await connection.execute("insert into holdfast.tombstones select id, $2 from unnest($1::text[]) id", gone, at)
        for table in ("mailbox", "snapshots", "checkpoints", "segments", "journal"):
            await connection.execute(f"delete from holdfast.{table} where session = any($1::bigint[])", plain)
        await connection.execute("delete from holdfast.sessions where num = any($1::bigint[])", plain)
        blobs = "delete from holdfast.blob_refs where session = any($1::bigint[]) returning blob"
        await sql.drop_unkept(connection, list({blob for (blob,) in await connection.fetch(blobs, plain)}))


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
    left = [(num, session_id), *((source, sources[source]) for source in sorted(gone))]
    await sql.drop_unkept(connection, [blob for each in left for blob in await _drop_unshared(connection, *each)])


async def _drop_unshared(connection: Any, num: int, session_id: str) -> list[str]:
    """Remove the records of a session that is gone which no fork shares; gives the blobs that it does not keep on."""
    first, last = await connection.fetchrow(
        "select coalesce(min(first), 1), coalesce(max(last), 0) from holdfast.shares where source = $1", num
    )
    deleted = await connection.execute(
        "delete from holdfast.journal where session = $1 and not (last >= $2 and first <= $3)", num, first, last
    )
    cut = await _cut_rows(connection, num, session_id, first, last) if last else 0
    if last and deleted == "DELETE 0" and not cut:
        return []
    left = await connection.fetch(
        "select body from holdfast.journal where session = $1 and strpos(body, '\"$') > 0", num
    )
    rows = await connection.fetch(
        "delete from holdfast.blob_refs where session = $1 and blob <> all($2::text[]) returning blob",
        *(num, list(kept_references(body.encode() for (body,) in left))),
    )
    return [blob for (blob,) in rows]


async def _cut_rows(connection: Any, num: int, session_id: str, first: int, last: int) -> int:
    """Leave of rows that are shared in part only what is shared; gives their number. Those that are damaged stay."""
    found = await connection.fetch(
        f"select {_ROW} from holdfast.journal where session = $1"
        " and (first < $2 and last >= $2 or first <= $3 and last > $3)",
        *(num, first, last),
    )
    rows = [row for row in map(_journal_row, found) if is_sound(session_id, row)]
    count = 0
    for row in rows:
        if (left := cut_row(session_id, row, first, last)) is not None:
            await connection.execute(
                f"update holdfast.journal set ({_ROW}) = row($3, $4, $5, $6, $7, $8) where session = $1 and first = $2",
                *(num, row.first, left.first, left.last, left.at, left.later, left.checksum, left.body.decode()),
            )
            count += 1
    return count
