"""The PostgreSQL store: the whole contract for fleets of processes, nearly every call in one statement.

Needs PostgreSQL 13 or later, and connections that are ours: through a pooler, in session mode. The
statements are in `postgres.statements`; `postgres.connection` reaches the server, and `postgres.upkeep` has what upkeep
asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import asyncpg

from holdfast.core.decide import Message
from holdfast.core.errors import SessionDeletedError, SessionExistsError, SessionNotFoundError
from holdfast.core.records import Entry
from holdfast.core.state import Session
from holdfast.core.summary import Summary
from holdfast.store.checkpoints import open_rows
from holdfast.store.codec import (
    decode_message,
    decode_snapshot,
    decode_value,
    digest,
    encode_message,
    unpack_blob,
)
from holdfast.store.commits import Checkpoint, Commit, CommitReceipt, Lease, Segment, Snapshot, StateWrite
from holdfast.store.contract import StateItem
from holdfast.store.errors import (
    CorruptSessionError,
    MessageConflictError,
    MessageTakenError,
)
from holdfast.store.filters import cursor_of
from holdfast.store.inventory import Tombstone
from holdfast.store.journal_rows import (
    JournalPart,
    StoredCommit,
    blobs_of,
    check_parts,
    decode_parts,
    encode_commit,
    is_large_commit,
)
from holdfast.store.leases import (
    NEW,
    LeaseState,
    commit_epoch,
)
from holdfast.store.limits import READ_LIMIT
from holdfast.store.mailbox import MailboxItem, MessageReceipt
from holdfast.store.off_loop import off_loop
from holdfast.store.overview import SessionTotals, Trait
from holdfast.store.postgres import overview
from holdfast.store.postgres import shared_history as sharing
from holdfast.store.postgres import statements as sql
from holdfast.store.postgres.append import PostgresAppend, append_call, write_rest
from holdfast.store.postgres.errors import redact
from holdfast.store.postgres.permits import PermitsOfPostgres
from holdfast.store.postgres.pool import ConnectionPool
from holdfast.store.postgres.reads_together import ReadsTogether
from holdfast.store.session_rows import SessionFilter, SessionPage, SessionRow
from holdfast.store.sound_sessions import LOADED_ENTRIES, fold_sound

__all__ = ["PostgresStore", "redact"]


class PostgresStore(PermitsOfPostgres):
    """Sessions in the schema `holdfast` of a PostgreSQL database, shared by any number of processes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._positions = ReadsTogether(self._read_positions)
        self._mailboxes = ReadsTogether(self._read_mailboxes)

    async def server_time(self) -> int | None:
        rows = await self._fetch(f"select {sql.NOW}")
        return int(rows[0][0])

    async def _missing(self, session_id: str) -> SessionNotFoundError:
        rows = await self._fetch("select deleted_at from holdfast.tombstones where id = $1", session_id)
        return SessionDeletedError(session_id, rows[0]["deleted_at"]) if rows else SessionNotFoundError(session_id)

    async def _find(self, session_id: str) -> tuple[int, LeaseState, int]:
        """A session's number and head, and the server's time."""
        for num, position, epoch, owner, lease_until, now in await self._fetch(sql.FOUND, session_id):
            return num, LeaseState(position, epoch, owner, lease_until), now
        raise await self._missing(session_id)

    # --- journals --------------------------------------------------------------------------------

    async def _append(self, commit: Commit) -> CommitReceipt:
        is_large = is_large_commit(commit)
        stored = await off_loop(lambda: encode_commit(commit)) if is_large else encode_commit(commit)
        pool = self._begin_call()  # closing waits for all of it
        try:
            with self._renewing(pool):
                lock = await self._listener.lock() if commit.hold_ms else None
                if is_large:
                    append = await off_loop(lambda: PostgresAppend(commit, stored, lock))
                else:
                    append = PostgresAppend(commit, stored, lock)
                while (epoch := await self._try_append(pool, append)) is None:
                    await self._explain(commit)  # or, if the reason is gone by now, try again
        finally:
            self._end_call()
        self._watches.committed(commit.session_id)
        self._notifier.note(commit.session_id)
        return CommitReceipt(commit.session_id, append.position, epoch)

    async def _try_append(self, pool: ConnectionPool, append: PostgresAppend) -> int | None:
        """The epoch under which an append was written; None if it was refused."""
        commit = append.commit
        epoch: int | None
        if commit.expected == 0 and (commit.takes or commit.epoch not in (None, NEW.epoch)):
            return None
        if append.can_be_grouped:
            with contextlib.suppress(asyncpg.LockNotAvailableError):  # it waits by itself, and holds up no other
                return await self._groups.append(append)
        statement, arguments = append_call([append])
        try:
            if not (commit.writes or append.more_rows):
                row = await pool.fetchrow(statement, *arguments)
                return None if row is None else row[1]
            async with pool.acquire() as connection, connection.transaction():
                epoch = await connection.fetchval(statement, *arguments, column=1)
                if epoch is not None:
                    await write_rest(connection, append)
                return epoch
        except asyncpg.UniqueViolationError:  # the id was deleted
            return None

    async def _explain(self, commit: Commit) -> None:
        """Raise the reason why a commit was refused, the first in the order of the contract, if there still is one."""
        session_id = commit.session_id
        if commit.expected == 0:
            num, head, now = 0, NEW, 0
            if await self._fetch(sql.FOUND, session_id):
                raise SessionExistsError(session_id)
            missing = await self._missing(session_id)
            if isinstance(missing, SessionDeletedError):
                raise missing
        else:
            num, head, now = await self._find(session_id)
        commit_epoch(commit, head, now)
        rows = await self._fetch(sql.WAITING, num, list(commit.takes))
        waiting = {row["number"] for row in rows}
        for number in commit.takes:
            if number not in waiting:
                raise MessageTakenError(session_id, number)

    async def _fork(self, source: str, at: int, commit: Commit) -> CommitReceipt:
        stored = encode_commit(commit)
        while (receipt := await self._try_fork(source, at, commit, stored)) is None:
            await self._explain(commit)
        self._changed(commit.session_id)
        return receipt

    async def _try_fork(self, source: str, at: int, commit: Commit, stored: StoredCommit) -> CommitReceipt | None:
        async with self._call() as pool:
            try:
                async with pool.acquire() as connection, connection.transaction():
                    return await sharing.fork(connection, source, at, commit, stored)
            except asyncpg.UniqueViolationError:  # the id was deleted
                return None

    async def _read(self, session_id: str, after: int, limit: int) -> list[Entry]:
        rows = await self._fetch(sharing.READ, session_id, after, limit)
        if not rows:
            raise await self._missing(session_id)
        last = min(rows[0]["reach"], after + limit)
        parts = check_parts(session_id, sharing.parts_of(rows, after, limit), after, last)
        return decode_parts(session_id, parts, await self._blobs(session_id, blobs_of(parts)))

    async def load_sound(self, session_ids: Sequence[str], longest: int = LOADED_ENTRIES) -> list[Session]:
        """See `Store.load_sound`: all of them in one statement."""
        rows = await self._fetch(sharing.READ_MANY, list(session_ids), 0, longest)
        journals: dict[str, list[JournalPart]] = {}
        for session_id, lines in groupby(rows, key=itemgetter("id")):
            own = [tuple(line)[1:] for line in lines]
            with contextlib.suppress(CorruptSessionError):
                parts = sharing.parts_of(own, 0, longest)
                journals[session_id] = check_parts(session_id, parts, 0, own[0][0])
        blobs: dict[str, bytes] = {}
        for session_id, parts in journals.items():
            with contextlib.suppress(SessionNotFoundError, SessionDeletedError):
                blobs |= await self._blobs(session_id, blobs_of(parts))

        def folded() -> list[Session]:
            found = (fold_sound(session_id, parts, blobs) for session_id, parts in journals.items())
            return [session for session in found if session is not None]

        return await asyncio.to_thread(folded)

    async def _blobs(self, session_id: str, wanted: set[str]) -> dict[str, bytes]:
        """The content of those blobs that are there and unharmed."""
        if not wanted:
            return {}
        rows = await self._fetch("select * from holdfast.blobs where id = any($1::text[])", list(wanted))
        found = {row["id"]: unpack_blob(*row) for row in rows}
        if len(rows) < len(wanted):
            await self._find(session_id)  # a session deleted since its entries were read is not damaged
        return {blob_id: data for blob_id, data in found.items() if data is not None}

    async def _position(self, session_id: str) -> int:
        found = await self._positions.get(session_id)
        if found is None:
            raise await self._missing(session_id)
        return found

    async def _read_positions(self, session_ids: Collection[str]) -> dict[str, int]:
        statement = "select id, position from holdfast.sessions where id = any($1::text[])"
        return dict(await self._fetch(statement, list(session_ids)))

    async def _session(self, session_id: str) -> SessionRow:
        for row in await self._fetch(f"select {sql.ROW} from holdfast.sessions where id = $1", session_id):
            return sql.row_of(row)
        raise await self._missing(session_id)

    async def _sessions(self, where: SessionFilter, before: int | None, limit: int) -> SessionPage:
        conditions, values = sql.conditions(where, before)
        statement = f"select num, {sql.ROW} from holdfast.sessions where {conditions} order by num desc"
        found = await self._fetch(f"{statement} limit ${len(values) + 1}", *values, limit + 1) if limit else []
        rows, damaged = list[SessionRow](), list[str]()
        for row in found[:limit]:
            try:
                rows.append(sql.row_of(row))
            except CorruptSessionError:
                damaged.append(row["id"])
        return SessionPage(rows, cursor_of(found[limit - 1]["num"]) if len(found) > limit else None, damaged)

    async def _totals(self, where: SessionFilter, by: Sequence[Trait], limit: int) -> SessionTotals:
        statement, values = overview.totals_call(where, by, limit)
        return overview.totals_of(by, await self._fetch(statement, *values))

    async def _last_entries(self, session_ids: Sequence[str], limit: int) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for row in await self._fetch(overview.POSITIONS, list(session_ids)):
            with contextlib.suppress(SessionNotFoundError, CorruptSessionError):
                found[row["id"]] = await self._read(row["id"], max(0, row["position"] - limit), limit)
        return found

    async def _repair(self, session_id: str, summary: Summary) -> None:
        if await self._fetch_one(sql.REPAIR, session_id, *sql.summary_columns(summary)) is None:
            raise await self._missing(session_id)
        self._changed(session_id)

    async def _snapshot(self, session_id: str) -> Snapshot | None:
        for row in await self._fetch(sql.SNAPSHOT, session_id):
            return decode_snapshot(*row)
        raise await self._missing(session_id)

    async def _checkpoint(self, session_id: str) -> tuple[Checkpoint, list[Segment]] | None:
        for reach, position, checksum, state, segments in await self._fetch(sql.CHECKPOINT, session_id):
            row = None if position is None else (0, position, checksum, state)
            return open_rows(session_id, reach, row, segments)
        raise await self._missing(session_id)

    # --- leases ----------------------------------------------------------------------------------

    async def _release(self, lease: Lease) -> None:
        await self._fetch_one(
            "update holdfast.sessions set owner = null, lease_until = null, lease_lock = null"
            " where id = $1 and epoch = $2",
            *(lease.session_id, lease.epoch),
        )
        self._changed(lease.session_id)

    # --- mailboxes -------------------------------------------------------------------------------

    async def _send(self, session_id: str, key: str, message: Message, at: int) -> MessageReceipt:
        body, mark = encode_message(session_id, message), digest(message)
        row = await self._fetch_one(sql.SEND, session_id, key, at, mark, body)
        if row is None:
            raise await self._missing(session_id)
        if row["number"] is not None:
            self._changed(session_id)
            return MessageReceipt(session_id, key, row["number"])
        first = await self._fetch(
            "select number, digest from holdfast.mailbox where session = $1 and key = $2", row["num"], key
        )
        if not first:
            raise await self._missing(session_id)
        if first[0]["digest"] != mark:
            raise MessageConflictError(session_id, key)
        return MessageReceipt(session_id, key, first[0]["number"], replayed=True)

    async def _mailbox(self, session_id: str, limit: int) -> list[MailboxItem]:
        if limit == READ_LIMIT:
            rows = await self._mailboxes.get(session_id)
        else:
            rows = (await self._read_mailboxes([session_id], limit)).get(session_id)
        if rows is None:
            raise await self._missing(session_id)
        return [
            MailboxItem(number, key, at, decode_message(session_id, number, body, mark))
            for _, number, key, at, body, mark in rows
            if number is not None
        ]

    async def _read_mailboxes(self, session_ids: Collection[str], limit: int = READ_LIMIT) -> dict[str, list[Any]]:
        """Up to so many rows of each mailbox; the only one of an empty mailbox has no number."""
        found: dict[str, list[Any]] = {}
        for row in await self._fetch(sql.MAILBOXES, list(session_ids), limit):
            found.setdefault(row["id"], []).append(row)
        return found

    # --- state -----------------------------------------------------------------------------------

    async def _get_state(self, namespace: str, key: str) -> StateItem | None:
        statement = "select value, version from holdfast.state where namespace = $1 and key = $2"
        for value, version in await self._fetch(statement, namespace, key):
            return StateItem(decode_value(namespace, key, value), version)
        return None

    async def _put_state(self, write: StateWrite) -> int:
        async with self._call() as pool:
            return await sql.write_state(pool, write)

    async def _delete_state(self, namespace: str, key: str) -> bool:
        async with self._call() as pool:
            return await sql.write_state(pool, StateWrite(namespace=namespace, key=key, delete=True)) > 0

    async def _list_state(self, namespace: str, prefix: str, after: str, limit: int) -> list[str]:
        statement = (
            "select key from holdfast.state"
            " where namespace = $1 and starts_with(key, $2) and key > $3 order by key limit $4"
        )
        # No key holds the character NUL, so what comes after it in `after` makes no difference.
        arguments = (namespace, sql.escape(prefix), after.partition("\0")[0], limit)
        return [key for (key,) in await self._fetch(statement, *arguments)]

    async def _namespaces(self) -> list[str]:
        return sorted(name for (name,) in await self._fetch("select distinct namespace from holdfast.state"))

    async def _tombstones(self, after: str, limit: int) -> list[Tombstone]:
        statement = "select id, deleted_at from holdfast.tombstones where id > $1 order by id limit $2"
        return [Tombstone(*row) for row in await self._fetch(statement, after.partition("\0")[0], limit)]

    async def _bury(self, tombstones: Sequence[Tombstone]) -> None:
        ids, times = [each.session_id for each in tombstones], [each.deleted_at for each in tombstones]
        await self._fetch_one(
            "insert into holdfast.tombstones select id, at from unnest($1::text[], $2::bigint[]) as given (id, at)"
            " where not exists (select from holdfast.sessions s where s.id = given.id) on conflict do nothing",
            ids,
            times,
        )

    # --- ends ------------------------------------------------------------------------------------

    async def _delete(self, session_id: str, at: int) -> None:
        async with self._transaction() as connection:
            num = await connection.fetchval("select num from holdfast.sessions where id = $1 for update", session_id)
            if num is not None:
                await sharing.delete_session(connection, session_id, num, at)
        if num is not None:
            self._changed(session_id)
            return
        missing = await self._missing(session_id)
        if not isinstance(missing, SessionDeletedError):
            raise missing
