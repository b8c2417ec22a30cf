"""The SQLite store: one file, several processes, every acknowledged write on disk."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from holdfast.core.decide import Message
from holdfast.core.errors import HoldfastError, SessionDeletedError
from holdfast.core.records import Entry
from holdfast.core.state import Session
from holdfast.core.summary import Summary
from holdfast.store.codec import decode_message, decode_value, digest, encode_message
from holdfast.store.commits import Checkpoint, Commit, CommitReceipt, Lease, Segment, Snapshot, StateWrite
from holdfast.store.contract import StateItem
from holdfast.store.errors import CorruptSessionError, MessageConflictError, StoreUnavailableError
from holdfast.store.filters import parse_cursor
from holdfast.store.inventory import Tombstone
from holdfast.store.journal_rows import JournalPart, blobs_of, check_parts, decode_parts, is_large_commit
from holdfast.store.leases import next_version
from holdfast.store.limits import IN_PLACE_ENTRIES, IN_PLACE_ROWS, READ_LIMIT
from holdfast.store.mailbox import MailboxItem, MessageReceipt
from holdfast.store.off_loop import off_loop
from holdfast.store.overview import SessionTotals, Trait
from holdfast.store.session_rows import SessionFilter, SessionPage, SessionRow
from holdfast.store.sound_sessions import LOADED_ENTRIES, CheckedPage, Span
from holdfast.store.sqlite import inventory, overview, upkeep
from holdfast.store.sqlite import shared_history as sharing
from holdfast.store.sqlite import statements as sql
from holdfast.store.sqlite.append import SqliteAppend
from holdfast.store.sqlite.file_guard import FileGuard, warn_of_lost_log
from holdfast.store.sqlite.file_listeners import FileListeners
from holdfast.store.sqlite.known_rows import KnownRows
from holdfast.store.sqlite.live import SocketPublisher, SocketStreams
from holdfast.store.sqlite.loop_patience import LoopPatience
from holdfast.store.sqlite.notify import follow_changes
from holdfast.store.sqlite.permits import PermitsOfSqlite
from holdfast.store.sqlite.presence import SqlitePresence
from holdfast.store.sqlite.schema import (
    StoreConnection,
    can_write,
    configure,
    connect,
    is_current,
    never_waiting,
    prepare,
)
from holdfast.store.sqlite.sound_sessions import checked_page, checked_span, load_sound, spans_of
from holdfast.store.sqlite.writer import NotHereError, Work, Writer
from holdfast.store.upkeep import OpenChild, OpenSession, in_range
from holdfast.store.watch import LiveItem, LiveStream, Watch, Watches

T = TypeVar("T")

_READERS = 2
"""Threads that read: one long read does not hold up the others."""


class SqliteStore(PermitsOfSqlite):
    """Sessions in one SQLite file."""

    def __init__(self, path: str) -> None:
        self.url = f"sqlite:///{path}"
        self._path = os.path.abspath(path)  # the working directory may change
        self._writer: Writer | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._connections: list[StoreConnection] = []
        self._watches = Watches()
        self._streams = SocketStreams(self._path)
        self._publisher = SocketPublisher(self._streams)
        self._presence = SqlitePresence(self._path)
        self._listeners = FileListeners(self._path)
        self._listener = self.supervisor.task("listening to the file", self._follow_changes)
        self._lookups = LoopPatience()
        self._rows = KnownRows()

    # --- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._writer is not None:
            return
        warn_of_lost_log(self._path, self.url)
        here = self._connect_at_once()
        if here is None:
            here = await asyncio.to_thread(self._prepare)
        self._here, self._connections = here, [here]
        self._guard = FileGuard(self._path, self.url)
        self._writer = Writer(here, self._connect, self._guard, self._listeners)
        self._local = threading.local()
        self._readers = ThreadPoolExecutor(_READERS, "holdfast-sqlite-reader")

    def _connect_at_once(self) -> StoreConnection | None:
        """A connection that never waits, or None where the file has to be made, or something else is to be done."""
        if not os.path.exists(self._path):
            return None
        connection = connect(self._path, self.url, busy_timeout_ms=0)
        try:
            if is_current(connection, self.url):
                return self._set_up(connection)
        except HoldfastError:
            pass  # whoever prepares the file waits for locks, or finds the same
        connection.close()
        return None

    def _prepare(self) -> StoreConnection:
        """A connection that never waits, to a file that is created or migrated first if need be."""
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
        except OSError as error:
            raise StoreUnavailableError(self.url, str(error)) from None
        connection = connect(self._path, self.url)
        try:
            prepare(connection, self.url)
            return never_waiting(self._set_up(connection))
        except BaseException:
            connection.close()
            raise

    def _connect(self) -> StoreConnection:
        """One more connection to the same file, which waits for other processes, as threads may."""
        self._guard.check_file()
        connection = connect(self._path, self.url)
        try:
            self._guard.check_file()
            self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        self._connections.append(connection)
        return connection

    def _set_up(self, connection: StoreConnection) -> StoreConnection:
        configure(connection, self.url)
        self._presence.register(connection)
        # One damaged text must not keep the rest of a listing from being read.
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        return connection

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        readers, self._readers = self._readers, None
        await self._listener.stop()
        self._streams.close()
        self._publisher.close()
        if readers is not None and len(self._connections) > 1:  # a thread may have been started
            await asyncio.to_thread(readers.shutdown)
        if writer is not None:
            await writer.close()
        for connection in self._connections:
            connection.close()
        self._connections = []
        self._presence.close()
        self._listeners.close()

    async def _run_write(self, session_id: str, work: Work[T], *, is_large: bool = False) -> T:
        if self._writer is None:
            raise StoreUnavailableError(self.url, "it is not open")
        try:
            if not is_large:
                return self._writer.write_here(work)
        except NotHereError:
            pass
        except (sqlite3.Error, OSError) as error:
            raise self._translation(session_id, error) from None
        try:
            return await self._writer.submit(work, is_large=is_large)
        except (sqlite3.Error, OSError) as error:
            raise self._translation(session_id, error) from None

    async def _run_read(self, session_id: str, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._readers is None:
            raise StoreUnavailableError(self.url, "it is not open")
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, self._read_in_thread, work)
        except (sqlite3.Error, OSError) as error:
            raise self._translation(session_id, error) from None

    async def _run_lookup(self, session_id: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read a few rows by their index without a change of thread, which would take several times as long.

        As with writes: if they take long, the next ones go to the threads for a while. So do those that meet a lock.
        """
        began = time.monotonic()
        if self._readers is None or began < self._lookups.rests_until:
            return await self._run_read(session_id, work)
        try:
            return self._consistently(self._here, work, began)
        except sqlite3.Error:
            return await self._run_read(session_id, work)  # which waits for locks, and says what is wrong
        finally:
            self._lookups.waited(began, time.monotonic())

    def _read_in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
        return self._consistently(connection, work, time.monotonic())

    def _consistently(self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], now_s: float) -> T:
        connection.execute("BEGIN")
        try:
            if now_s >= self._guard.next_look_s:
                self._guard.check_contents(connection, now_s)
            return work(connection)
        finally:
            connection.execute("ROLLBACK")  # nothing was written; a COMMIT fails where a damaged page was met

    def _translation(self, session_id: str, error: Exception) -> HoldfastError:
        """What an error of SQLite or of the system means to whoever uses the store."""
        is_damage = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        if is_damage and session_id:
            return CorruptSessionError(session_id, "the database file", str(error))
        is_read_only = isinstance(error, sqlite3.OperationalError) and not can_write(self._path)
        return StoreUnavailableError(self.url, "this process may only read it" if is_read_only else str(error))

    # --- journals --------------------------------------------------------------------------------

    async def _append(self, commit: Commit) -> CommitReceipt:
        session_id, known = commit.session_id, self._rows.pop(commit.session_id, None)
        if is_large_commit(commit):
            append = await off_loop(lambda: SqliteAppend(commit, known))
            row = await self._run_write(session_id, append, is_large=True)
        else:
            row = await self._run_write(session_id, SqliteAppend(commit, known))
        self._rows.put(session_id, row)
        self._watches.committed(session_id)
        return CommitReceipt(session_id, row.position, row.epoch)

    async def _fork(self, source: str, at: int, commit: Commit) -> CommitReceipt:
        receipt = await self._run_write(commit.session_id, sharing.NewFork(source, at, commit).make)
        self._watches.notify(commit.session_id)
        return receipt

    async def _read(self, session_id: str, after: int, limit: int) -> list[Entry]:

        def work(connection: sqlite3.Connection, most: int = limit) -> tuple[list[JournalPart], Mapping[str, bytes]]:
            num, head = sql.find(connection, session_id)
            last = min(after + limit, head.position)
            if last - after > most:
                raise _TooLongError
            found = sql.read_journal(connection, session_id, num, after, limit)
            parts = check_parts(session_id, found, after, last)
            return parts, sql.read_blobs(connection, blobs_of(parts))

        try:
            parts, blobs = await self._run_lookup(session_id, partial(work, most=IN_PLACE_ENTRIES))
        except _TooLongError:
            parts, blobs = await self._run_read(session_id, work)
        return decode_parts(session_id, parts, blobs)

    async def load_sound(self, session_ids: Sequence[str], longest: int = LOADED_ENTRIES) -> list[Session]:
        """See `Store.load_sound`. All of it in one thread: to go there and back for each would take longer."""
        return await self._run_read("", lambda connection: load_sound(connection, session_ids, longest))

    async def checked(self, *, after: str | None = None, limit: int = READ_LIMIT) -> CheckedPage:
        """See `Store.checked`."""
        before = parse_cursor(after)
        return await self._run_read("", lambda connection: checked_page(connection, before, in_range(limit)))

    async def spans(self, sessions: int) -> list[Span]:
        """See `SpannedStore.spans`."""
        return await self._run_read("", lambda connection: spans_of(connection, sessions))

    async def checked_span(self, span: Span) -> CheckedPage:
        """See `SpannedStore.checked_span`."""
        return await self._run_read("", lambda connection: checked_span(connection, span))

    async def _last_entries(self, session_ids: Sequence[str], limit: int) -> dict[str, list[Entry]]:
        return await self._run_read("", lambda connection: overview.last_entries(connection, session_ids, limit))

    async def _totals(self, where: SessionFilter, by: Sequence[Trait], limit: int) -> SessionTotals:
        return await self._run_read("", lambda connection: overview.totals(connection, where, by, limit))

    async def _position(self, session_id: str) -> int:
        return await self._run_lookup(session_id, lambda connection: sql.find(connection, session_id)[1].position)

    async def _session(self, session_id: str) -> SessionRow:

        def work(connection: sqlite3.Connection) -> SessionRow:
            row = connection.execute(f"SELECT {sql.ROW} FROM sessions WHERE id = ?", (session_id,)).fetchone()
            if row is None:
                raise sql.missing(connection, session_id)
            return sql.row_of(row, sql.judged_now_ms())

        return await self._run_lookup(session_id, work)

    async def _sessions(self, where: SessionFilter, before: int | None, limit: int) -> SessionPage:
        is_quick = limit <= IN_PLACE_ROWS and where == SessionFilter()  # nothing is passed over
        run = self._run_lookup if is_quick else self._run_read
        return await run("", lambda connection: overview.listed(connection, where, before, limit))

    async def _repair(self, session_id: str, summary: Summary) -> None:

        def work(connection: sqlite3.Connection) -> None:
            num = sql.find_number(connection, session_id)
            sql.write_summary(connection, num, summary)

        self._rows.pop(session_id, None)
        await self._run_write(session_id, work)
        self._watches.notify(session_id)

    async def _snapshot(self, session_id: str) -> Snapshot | None:

        def work(connection: sqlite3.Connection) -> Snapshot | None:
            num, head = sql.find(connection, session_id)
            return sql.read_snapshot(connection, num, head.position)

        return await self._run_read(session_id, work)

    async def _checkpoint(self, session_id: str) -> tuple[Checkpoint, list[Segment]] | None:

        def work(connection: sqlite3.Connection) -> tuple[Checkpoint, list[Segment]] | None:
            num, head = sql.find(connection, session_id)
            return sql.read_checkpoint(connection, session_id, num, head.position)

        return await self._run_lookup(session_id, work)

    # --- leases ----------------------------------------------------------------------------------

    async def _release(self, lease: Lease) -> None:
        self._rows.pop(lease.session_id, None)
        await self._run_write(lease.session_id, lambda connection: sql.release(connection, lease))
        self._watches.notify(lease.session_id)

    async def _lost(self, limit: int) -> list[Lease]:
        return await self._run_lookup("", lambda connection: upkeep.lost(connection, limit))

    async def _release_expired(self, limit: int) -> int:
        if not await self._run_lookup("", lambda connection: upkeep.expired(connection, 1)):
            return 0
        self._rows.clear()
        released = await self._run_write("", lambda connection: upkeep.release_expired(connection, limit))
        self._watches.notify_all()
        return released

    # --- what is open ----------------------------------------------------------------------------

    async def _open_needs(self, services: Sequence[str], limit: int) -> list[str]:
        return await self._run_lookup("", lambda connection: upkeep.open_needs(connection, services, limit))

    async def _open_sessions(self, needs: str, services: Sequence[str], before: int, limit: int) -> list[OpenSession]:
        return await self._run_lookup(
            "", lambda connection: upkeep.open_sessions(connection, needs, services, before, limit)
        )

    async def _open_mail(self, services: Sequence[str], limit: int) -> list[OpenSession]:
        return await self._run_lookup("", lambda connection: upkeep.open_mail(connection, services, limit))

    async def _open_children(self, services: Sequence[str], before: int, limit: int) -> list[OpenChild]:
        return await self._run_lookup("", lambda connection: upkeep.open_children(connection, services, before, limit))

    # --- mailboxes -------------------------------------------------------------------------------

    async def _send(self, session_id: str, key: str, message: Message, at: int) -> MessageReceipt:
        body, mark = encode_message(session_id, message), digest(message)

        def work(connection: sqlite3.Connection) -> MessageReceipt:
            num = sql.find_number(connection, session_id)
            before = connection.execute(
                "SELECT number, digest FROM mailbox WHERE session = ? AND key = ?", (num, key)
            ).fetchone()
            if before is not None:
                if before[1] != mark:
                    raise MessageConflictError(session_id, key)
                return MessageReceipt(session_id, key, before[0], replayed=True)
            number = connection.execute(
                "INSERT INTO mailbox (session, key, at, digest, body) VALUES (?, ?, ?, ?, ?)",
                (num, key, at, mark, None if sql.has_ended(connection, num) else body),
            ).lastrowid
            return MessageReceipt(session_id, key, number or 0)

        receipt = await self._run_write(session_id, work)
        if not receipt.replayed:
            self._watches.notify(session_id)
        return receipt

    async def _mailbox(self, session_id: str, limit: int) -> list[MailboxItem]:

        def work(connection: sqlite3.Connection) -> list[tuple[int, str, int, bytes, str]]:
            num = sql.find_number(connection, session_id)
            return connection.execute(
                "SELECT number, key, at, CAST(body AS BLOB), digest FROM mailbox"
                " WHERE session = ? AND body IS NOT NULL ORDER BY number LIMIT ?",
                (num, limit),
            ).fetchall()

        return [
            MailboxItem(number, key, at, decode_message(session_id, number, body, mark))
            for number, key, at, body, mark in await self._run_lookup(session_id, work)
        ]

    # --- time ------------------------------------------------------------------------------------

    async def _due(self, now: int, limit: int, services: Sequence[str], after: int) -> list[tuple[str, int]]:
        return await self._run_lookup("", lambda connection: upkeep.due(connection, now, limit, services, after))

    # --- state -----------------------------------------------------------------------------------

    async def _get_state(self, namespace: str, key: str) -> StateItem | None:
        found = await self._run_lookup("", lambda connection: inventory.state_value(connection, namespace, key))
        return StateItem(decode_value(namespace, key, found[0]), found[1]) if found else None

    async def _put_state(self, write: StateWrite) -> int:
        def work(connection: sqlite3.Connection) -> int:
            version = next_version(write, sql.state_version(connection, write))
            sql.write_state(connection, write, version)
            return version

        return await self._run_write("", work)

    async def _delete_state(self, namespace: str, key: str) -> bool:
        return await self._run_write("", lambda connection: inventory.delete_state(connection, namespace, key))

    async def _list_state(self, namespace: str, prefix: str, after: str, limit: int) -> list[str]:
        run = self._run_lookup if limit <= READ_LIMIT else self._run_read
        return await run("", lambda connection: inventory.state_keys(connection, namespace, prefix, after, limit))

    async def _namespaces(self) -> list[str]:
        return await self._run_read("", inventory.namespaces)

    async def _tombstones(self, after: str, limit: int) -> list[Tombstone]:
        return await self._run_read("", lambda connection: inventory.tombstones(connection, after, limit))

    async def _bury(self, tombstones: Sequence[Tombstone]) -> None:
        await self._run_write("", lambda connection: inventory.bury(connection, tombstones))

    # --- ends ------------------------------------------------------------------------------------

    async def _delete(self, session_id: str, at: int) -> None:
        def work(connection: sqlite3.Connection) -> bool:
            try:
                num = sql.find_number(connection, session_id)
            except SessionDeletedError:
                return False
            sharing.delete_session(connection, session_id, num, at)
            return True

        self._rows.pop(session_id, None)
        if await self._run_write(session_id, work):
            self._watches.notify(session_id)

    async def _prune(self, ended_before: int, limit: int, services: Sequence[str]) -> list[str]:
        gone = await self._run_write("", lambda connection: upkeep.prune(connection, ended_before, limit, services))
        for session_id in gone:
            self._watches.notify(session_id)
        return gone

    async def _is_larger(self, max_bytes: int) -> bool:
        return (await self._run_lookup("", upkeep.file_pages)).used_bytes > max_bytes

    async def _give_back_space(self) -> bool:
        pages = await self._run_lookup("", upkeep.file_pages)
        if pages.has_spare:
            await self._run_write("", upkeep.free_pages)
            return True
        if os.path.getsize(self._path) > pages.file_bytes:
            await self._run_write("", lambda connection: None, is_large=True)  # after which the log is copied back
        return False

    # --- change ----------------------------------------------------------------------------------

    def _watch(self, session_id: str | None, *, own: bool) -> Watch:
        watch = self._watches.add(session_id, own=own)
        self._listener.start()
        return watch

    def _watch_others(self) -> Watch:
        self._watch(None, own=False).__exit__()  # begins to listen
        return self._watches.add_for_others()

    async def _follow_changes(self) -> None:
        read = partial(self._run_lookup, "")
        await follow_changes(self._path, self._watches, self._listeners, read, self._others_wrote)

    def _others_wrote(self) -> bool:
        return self._writer is None or self._writer.others_wrote()

    def _publish(self, session_id: str, item: LiveItem) -> None:
        self._streams.put(session_id, item)
        if self._writer is not None:  # what is opened after the end is closed by nobody
            self._publisher.put(session_id, item)

    def may_be_heard(self, session_id: str) -> bool:
        return session_id in self._streams.by_session or self._publisher.has_listeners()

    def _listen(self, session_id: str) -> LiveStream:
        return self._streams.add(session_id)


class _TooLongError(Exception):
    """A read was not done, because it would hold up the event loop."""
