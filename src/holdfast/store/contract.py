"""The Store contract. Its docstrings are the specification, and `holdfast.testing` checks every sentence of them.

A store keeps, for each session,

- a **journal**: entries at positions 1, 2, 3, … without gaps, never changed, written only by the session's owner;
- a **mailbox**: messages from anyone, each taken at most once, by a commit of the owner;
- a **summary**: what listings need, replaced with every commit, always derivable from the journal;
- a **lease**: who may write (owner and epoch) and until when. It ends when its time runs out, when it is released and,
  where the store can tell, when its holder is gone: the store object that it was taken through, or its process;
- a **snapshot**, where its program makes them: the latest, and only while the session lives;
- a **checkpoint** and **segments**: what follows from the first part of the journal, so that it need not be read;

and beside the sessions state items. What upkeep asks of it is in `store.upkeep`, copies in `store.inventory`, and how
the calls of all processes are counted in `store.permits`.

What holds for all methods
- *Durable, then acknowledged.* When a method that writes returns, what it wrote survives the death of the process and,
  for stores on disk, of the machine. If it raises, it has written nothing. If it is cancelled, the process dies
  or the connection breaks meanwhile (`StoreUnavailableError`), it has written either everything or nothing.
- *Atomic.* Each call is one transaction: no other reader or writer, in any process, sees a part of it.
- *Checked first.* Ids (of sessions, owners, messages, state) that break the grammar raise `InvalidIdError`; values that
  JSON cannot hold exactly, and numbers past 64 bits, `InvalidValueError`; both before anything is touched.
- *Known sessions only.* A method that is given a session id raises `SessionNotFoundError` if there is none, and
  `SessionDeletedError` if there was one, unless it says otherwise.
- *Independent.* Damage to one session raises `CorruptSessionError` for that session, and for no other.
- Reads are lenient about numbers: a position or limit out of range is brought into it, so a limit of 0 gives nothing.
- Times are unix milliseconds. Times of entries and messages are the caller's; lease times are the store's own.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cached_property
from itertools import chain
from types import TracebackType
from typing import Self

import msgspec

from holdfast.core.decide import Message
from holdfast.core.errors import HoldfastError
from holdfast.core.ids import check_id
from holdfast.core.records import Entry
from holdfast.core.state import Session
from holdfast.core.summary import Summary
from holdfast.core.values import Json, check_number, check_value
from holdfast.store.commits import (
    Checkpoint,
    Commit,
    CommitReceipt,
    Lease,
    Segment,
    Snapshot,
    StateWrite,
    check_commit,
    check_fork,
    check_summary,
)
from holdfast.store.errors import StateConflictError
from holdfast.store.filters import check_filter, parse_cursor
from holdfast.store.inventory import InventoryStore
from holdfast.store.journal_pages import journal_pages
from holdfast.store.limits import READ_LIMIT
from holdfast.store.mailbox import MailboxItem, MessageReceipt
from holdfast.store.overview import OverviewStore, timed
from holdfast.store.permits import PermitStore
from holdfast.store.session_rows import SessionFilter, SessionPage, SessionRow
from holdfast.store.sound_sessions import LOADED_ENTRIES, CheckedPage, is_row_of
from holdfast.store.supervisor import Supervisor
from holdfast.store.upkeep import UpkeepStore, in_range
from holdfast.store.watch import LiveItem, LiveStream, Watch, live_item


class StateItem(msgspec.Struct, frozen=True):
    """A value under a key, and how often it has been written."""

    value: Json
    version: int


class Store(UpkeepStore, OverviewStore, InventoryStore, PermitStore):
    """Where sessions live. One object may be used by many tasks of one event loop at a time.

    The public methods are the contract, and check what they are given. A store implements `open` and `close`, and for
    each other method the one of the same name with a leading underscore, which is called with what was checked.
    """

    url: str
    append_timer: Callable[[float], None] | None = None  # is told how many seconds each append took

    @cached_property
    def supervisor(self) -> Supervisor:
        return Supervisor()  # of the store's own standing tasks

    async def server_time(self) -> int | None:
        """The time by the clock of the store's own machine (unix ms); None where that is this one."""
        return None

    # --- life ------------------------------------------------------------------------------------

    @abstractmethod
    async def open(self) -> None:
        """Make the store ready: create it if it is new, migrate it if it is old.

        One written by a newer version raises `SchemaVersionError` before anything else is read; one that cannot be
        reached, or is no store, `StoreUnavailableError`.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finish the requested writes, and close files and connections. Closing twice is fine."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- journals --------------------------------------------------------------------------------

    async def append(self, commit: Commit) -> CommitReceipt:
        """Append entries, replace the summary, take messages, and hold or release the lease: all of it, or nothing.

        `entries` are at positions `expected + 1` and on, else `InvalidValueError`. They may be empty, to take messages
        or change the lease only, but not for a new session. A `snapshot`, `checkpoint` or `segment` is of a position up
        to the last one, else `InvalidValueError`.

        With `expected` 0 the session is created: an id that exists raises `SessionExistsError`, one that was deleted
        `SessionDeletedError`. Otherwise an unknown id raises `SessionNotFoundError`.

        With an `epoch`, it must be the current one, else `LeaseLostError`: whoever claimed the session since is the
        owner. A lease that has ended but was taken by nobody still counts. Without an `epoch` the session is claimed:
        the epoch goes up by one, and of several who claim at once, one gets it. A session that another owner holds
        raises `LeaseHeldError`; one that `owner` itself holds is claimed anew, with a new epoch.

        After that, an `expected` other than the journal's position raises `PositionConflictError`. A message in `takes`
        that is not waiting raises `MessageTakenError`. A state item in `writes` that is not at its `expected` version
        raises `StateConflictError`.

        Values that a record is too large to hold are kept beside it, compressed, and once for all sessions that have
        the same. They go with the last record that needs them.

        Not idempotent: a writer that did not see the receipt finds out by reading what stands after `expected`.
        """
        if not commit.bodies:
            check_commit(commit)
        if self.append_timer is not None:
            return await timed(self._append(commit), self.append_timer)
        return await self._append(commit)

    async def fork(self, source: str, at: int, commit: Commit) -> CommitReceipt:
        """Create a session that has its first record to itself, and shares those of another from position 2 to `at`.

        `commit` creates it as `append` would, with that one entry; its summary is that of the whole. It is then a
        session like any other, and goes on after `at`: neither sees what the other appends. The shared records are not
        copied, so this costs the same wherever it is made.

        The source is looked at first: `SessionNotFoundError` or `SessionDeletedError` for it, and `ForkPositionError`
        if it has no record at `at`. It may itself be a fork, be held by anyone, and have ended.
        """
        check_fork(source, at, commit)
        return await self._fork(source, at, commit)

    async def read(self, session_id: str, after: int = 0, limit: int = READ_LIMIT) -> list[Entry]:
        """At most `limit` entries at positions above `after`, in order; empty when there are none yet.

        A record that was changed, cannot be decoded, or is missing, also at the end of the journal, raises
        `CorruptSessionError` naming its position, or those of all records that were written with it.
        """
        check_id(session_id, "session id")
        return await self._read(session_id, in_range(after), in_range(limit))

    async def position(self, session_id: str) -> int:
        """The position of the last entry, also of a session whose summary is damaged. Raises as `session` does."""
        check_id(session_id, "session id")
        return await self._position(session_id)

    async def session(self, session_id: str) -> SessionRow:
        """The session's row. `SessionNotFoundError`, or `SessionDeletedError` for one that was deleted."""
        check_id(session_id, "session id")
        return await self._session(session_id)

    async def sessions(
        self, where: SessionFilter | None = None, *, after: str | None = None, limit: int = READ_LIMIT
    ) -> SessionPage:
        """Sessions that match all conditions, the newest first, a page at a time.

        Those created meanwhile do not appear on later pages; none is shown twice. Another cursor: `InvalidIdError`.
        """
        where, before = where or SessionFilter(), parse_cursor(after)
        check_filter(where)
        return await self._sessions(where, before, in_range(limit))

    async def all_sessions(self, where: SessionFilter | None = None) -> list[SessionRow]:
        """Sessions that match all conditions, the newest first, all pages of them."""
        page = await self.sessions(where)
        rows = list(page.rows)
        while page.next is not None:
            page = await self.sessions(where, after=page.next)
            rows += page.rows
        return rows

    async def repair(self, session_id: str, summary: Summary) -> None:
        """Replace the summary alone, where it does not match the journal. Position and lease stay as they are."""
        check_id(session_id, "session id")
        check_summary(summary)
        await self._repair(session_id, summary)

    async def load(self, session_id: str) -> Session:
        """The session folded from its whole journal."""
        session = Session(session_id)
        async for entry in self.journal(session_id):
            session.apply(entry)
        return session

    async def load_sound(self, session_ids: Sequence[str], longest: int = LOADED_ENTRIES) -> list[Session]:
        """Those of these sessions that can be read and folded, as `load` gives them; for going through a store.

        One that is damaged, missing or has more than `longest` entries is left out: `load` says what is wrong with it.
        """
        found: list[Session] = []
        for session_id in session_ids:
            with contextlib.suppress(HoldfastError):
                if await self.position(session_id) <= longest:
                    found.append(await self.load(session_id))
        return found

    async def checked(self, *, after: str | None = None, limit: int = READ_LIMIT) -> CheckedPage:
        """The sessions that `sessions` would list, each compared with its whole journal, a page at a time.

        What is doubtful may be sound after all: it may be long, or have changed meanwhile. `load` and `session` tell.
        """
        page = await self.sessions(after=after, limit=limit)
        loaded = {session.id: session for session in await self.load_sound([row.session_id for row in page.rows])}
        sound, held, doubtful = list[Session](), set[str](), list(page.damaged)
        for row in page.rows:
            session = loaded.get(row.session_id)
            if session is None or not is_row_of(row, session):
                doubtful.append(row.session_id)
            else:
                sound.append(session)
                held |= {session.id} if row.owner is not None else set()
        return CheckedPage(sound, held, doubtful, page.next)

    async def journal(self, session_id: str, after: int = 0) -> AsyncIterator[Entry]:
        """All entries after a position, read a page at a time."""
        async for page in journal_pages(self.read, session_id, after):
            for entry in page:
                yield entry

    async def entries(self, session_id: str, after: int = 0, until: int | None = None) -> list[Entry]:
        """The same in one list, for those who need them all at once; with `until`, up to that position."""
        return list(chain.from_iterable([page async for page in journal_pages(self.read, session_id, after, until)]))

    async def snapshot(self, session_id: str) -> Snapshot | None:
        """The snapshot of the last commit that had one, or None if there is none or the session has ended.

        Only the latest is kept. It is not part of the journal: exports do not have it, and copies do without.

        Lenient: damage to it is a loss, not an error, since the journal makes up for it. One that cannot be read, or
        claims a position that the journal does not have, gives None. Bytes that were changed do come back.
        """
        check_id(session_id, "session id")
        return await self._snapshot(session_id)

    async def checkpoint(self, session_id: str) -> tuple[Checkpoint, list[Segment]] | None:
        """The checkpoint of the last commit that had one, with the segments up to its position, or None.

        A checkpoint replaces the one before. A segment stays, and those that begin where the one before ends make up a
        chain; one that begins earlier takes the place of all that end after its beginning. A session that has ended
        keeps them. They are not part of the journal: exports do not have them, and forks begin without.

        Lenient: they may be missing or behind at any time, and damage to any of them is a loss, not an error. Bytes
        that were changed, a chain with a gap, or a position that the journal does not have give None. The last segments
        may be missing, so the chain may end before the checkpoint.
        """
        check_id(session_id, "session id")
        return await self._checkpoint(session_id)

    # --- leases ----------------------------------------------------------------------------------

    async def release(self, lease: Lease) -> None:
        """Let go of a session, so that anyone may claim it at once. Nothing happens if it was lost already."""
        check_id(lease.session_id, "session id")
        await self._release(lease)

    # --- mailboxes -------------------------------------------------------------------------------

    async def send(self, session_id: str, key: str, message: Message, at: int) -> MessageReceipt:
        """Put a message into a session's mailbox. Anyone may, at any time, whoever the owner is.

        A commit that ends a session takes everything that is in its mailbox, and a message to a session that has ended
        is taken at once: nobody else would. So an ended session has no mail, and its senders find out why.

        Idempotent by `key`, also after the message was taken: the same message again gets the first receipt, with
        `replayed`; another one raises `MessageConflictError`. Keys belong to one session each.
        """
        check_id(session_id, "session id")
        check_id(key, "message key")
        check_number(at, "time of a message")
        return await self._send(session_id, key, message, at)

    async def mailbox(self, session_id: str, limit: int = READ_LIMIT) -> list[MailboxItem]:
        """Messages that no commit has taken, in the order in which they were sent.

        One that was changed raises `CorruptSessionError` naming its number.
        """
        check_id(session_id, "session id")
        return await self._mailbox(session_id, in_range(limit))

    # --- state -----------------------------------------------------------------------------------

    async def get_state(self, namespace: str, key: str) -> StateItem | None:
        """The item under a key, or None. `CorruptStateError` if it cannot be read."""
        _check_state_key(namespace, key)
        return await self._get_state(namespace, key)

    async def put_state(self, namespace: str, key: str, value: Json, *, expected: int | None = None) -> int:
        """Write a value and give back its version: 1 for a new key, one more each time.

        With `expected`, only if the item is at that version (0: does not exist), else `StateConflictError`.
        """
        _check_state_key(namespace, key)
        check_value(value, f"state '{namespace}/{key}'")
        return await self._put_state(StateWrite(namespace=namespace, key=key, value=value, expected=expected))

    async def delete_state(self, namespace: str, key: str) -> bool:
        """Remove an item; False if there was none. A key written again later starts at version 1."""
        _check_state_key(namespace, key)
        return await self._delete_state(namespace, key)

    async def list_state(
        self, namespace: str, *, prefix: str = "", after: str = "", limit: int = READ_LIMIT
    ) -> list[str]:
        """Keys with a prefix that come after another key, sorted by code point."""
        check_id(namespace, "state namespace")
        check_value([prefix, after], "state prefix")
        return await self._list_state(namespace, prefix, after, in_range(limit))

    async def update_state(self, namespace: str, key: str, change: Callable[[Json], Json]) -> StateItem:
        """Replace a value by a function of it (of None where there is none), atomically against all other writers.

        `change` may be called several times and must not have effects of its own.
        """
        while True:
            item = await self.get_state(namespace, key) or StateItem(None, 0)
            value = change(item.value)
            try:
                return StateItem(value, await self.put_state(namespace, key, value, expected=item.version))
            except StateConflictError:
                continue

    # --- ends ------------------------------------------------------------------------------------

    async def delete(self, session_id: str, at: int) -> None:
        """Remove a session with everything that is kept for it. Its id is remembered and never used again.

        Records that forks share stay for those, with the blobs they refer to, until the last such fork is deleted.
        Its owner, if any, gets `SessionDeletedError` at its next commit. An unknown id raises `SessionNotFoundError`;
        deleting a deleted session does nothing.
        """
        check_id(session_id, "session id")
        check_number(at, "time of a deletion")
        await self._delete(session_id, at)

    # --- change ----------------------------------------------------------------------------------

    def watch(self, session_id: str | None = None, *, own: bool = True) -> Watch:
        """A `Watch` that is notified after every commit, message or deletion of a session, or of any (None).

        By whatever process it was made, within moments and without polling where the system allows it. A notification
        is a hint: it may come without a change, and several changes may come as one; none is left out. Unless `own`,
        that does not hold for commits that are made through this store object.
        """
        if session_id is not None:
            check_id(session_id, "session id")
        return self._watch(session_id, own=own)

    # --- live messages ---------------------------------------------------------------------------

    def publish(self, session_id: str, payload: bytes) -> None:
        """Send a live message, which is kept nowhere, to whoever listens to a session. Never waits or fails for them.

        Best effort, in the order of publishing. Those who listen through this store object get it at once; others get
        it within moments where the store can reach them (PostgreSQL; on one machine, SQLite). A payload of more than
        `LIVE_BYTES` is lost. The session need not exist.
        """
        check_id(session_id, "session id")
        self._publish(session_id, live_item(payload))

    def may_be_heard(self, session_id: str) -> bool:
        """Whether anybody may listen to a session. A store that cannot tell says yes."""
        return True

    def listen(self, session_id: str) -> LiveStream:
        """The `LiveStream` of what is published about a session from now on.

        Where some are lost (a slow listener, a large message, no connection), `MissedMessages` stands in their place.
        """
        check_id(session_id, "session id")
        return self._listen(session_id)

    # --- what a store implements: called with ids, values and numbers that were checked -----------

    @abstractmethod
    async def _append(self, commit: Commit) -> CommitReceipt: ...

    @abstractmethod
    async def _fork(self, source: str, at: int, commit: Commit) -> CommitReceipt: ...

    @abstractmethod
    async def _read(self, session_id: str, after: int, limit: int) -> list[Entry]: ...

    @abstractmethod
    async def _position(self, session_id: str) -> int: ...

    @abstractmethod
    async def _session(self, session_id: str) -> SessionRow: ...

    @abstractmethod
    async def _sessions(self, where: SessionFilter, before: int | None, limit: int) -> SessionPage: ...

    @abstractmethod
    async def _repair(self, session_id: str, summary: Summary) -> None: ...

    @abstractmethod
    async def _snapshot(self, session_id: str) -> Snapshot | None: ...

    @abstractmethod
    async def _checkpoint(self, session_id: str) -> tuple[Checkpoint, list[Segment]] | None: ...

    @abstractmethod
    async def _release(self, lease: Lease) -> None: ...

    @abstractmethod
    async def _send(self, session_id: str, key: str, message: Message, at: int) -> MessageReceipt: ...

    @abstractmethod
    async def _mailbox(self, session_id: str, limit: int) -> list[MailboxItem]: ...

    @abstractmethod
    async def _get_state(self, namespace: str, key: str) -> StateItem | None: ...

    @abstractmethod
    async def _put_state(self, write: StateWrite) -> int: ...

    @abstractmethod
    async def _delete_state(self, namespace: str, key: str) -> bool: ...

    @abstractmethod
    async def _list_state(self, namespace: str, prefix: str, after: str, limit: int) -> list[str]: ...

    @abstractmethod
    async def _delete(self, session_id: str, at: int) -> None: ...

    @abstractmethod
    def _watch(self, session_id: str | None, *, own: bool) -> Watch: ...

    @abstractmethod
    def _publish(self, session_id: str, item: LiveItem) -> None: ...

    @abstractmethod
    def _listen(self, session_id: str) -> LiveStream: ...


def _check_state_key(namespace: str, key: str) -> None:
    check_id(namespace, "state namespace")
    check_id(key, "state key")
