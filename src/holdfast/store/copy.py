"""Copies of whole stores: every session with its journal and mail, all state items, and the ids of deleted sessions.

A session is copied in one commit, so that it is never seen in part. A copy that was broken off is continued by making
it again: what is there is compared, and only what is missing is added. What the source can make anew from journals
(snapshots, checkpoints) is not copied, nor are leases: in the copy nobody owns a session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from itertools import zip_longest

import msgspec

from holdfast.core.errors import HoldfastError, SessionDeletedError, SessionNotFoundError
from holdfast.core.records import Entry, Fork, StartedRecord
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store.commits import Commit
from holdfast.store.contract import Store
from holdfast.store.errors import StoreError
from holdfast.store.inventory import Tombstone
from holdfast.store.session_rows import SessionRow

OWNER = "copy"
"""Who the commits of a copy are by."""

MAILBOX_ITEMS = 1_000_000
"""Messages of one session that are copied: far more than may wait in a mailbox."""


class SkippedSession(msgspec.Struct, frozen=True):
    """A session that was not copied, and why."""

    session_id: str
    why: str


class CopyReport(msgspec.Struct):
    """What a copy has done so far."""

    sessions: int = 0
    """Sessions that the source has."""
    copied: int = 0
    """Those that were written, or of which something was missing."""
    equal: int = 0
    """Those that were there already, just as they are."""
    records: int = 0
    messages: int = 0
    items: int = 0
    """State items that were written."""
    deleted: int = 0
    """Ids of deleted sessions."""
    skipped: list[SkippedSession] = []

    @property
    def is_whole(self) -> bool:
        return not self.skipped

    @property
    def done(self) -> int:
        return self.copied + self.equal + len(self.skipped)


class CopyMismatchError(StoreError):
    """The target has another session under the same id."""

    session_id: str
    position: int
    kind = "copy_mismatch"

    def __str__(self) -> str:
        return (
            f"session '{self.session_id}' of the target is another one: it differs at position {self.position};"
            " copy into a new store, or delete that session there"
        )


class SessionOwnedError(StoreError):
    """A session cannot be copied while a process may write to it."""

    session_id: str
    owner: str
    kind = "session_owned"

    def __str__(self) -> str:
        return f"session '{self.session_id}' is owned by {self.owner}: stop that process, and copy again"


async def copy_store(source: Store, target: Store, *, leave_out: Collection[str] = ()) -> AsyncIterator[CopyReport]:
    """Copy everything, and give the report after each session and at the end.

    Namespaces of state in `leave_out` are not copied. A session that a process owns, that cannot be read, or that is
    another one in the target is skipped, and the report says why. What was written is read again and compared.
    """
    report = CopyReport()
    async for buried in _tombstones(source):
        await target.bury(buried)
        report.deleted += len(buried)
    for namespace in await source.namespaces():
        if namespace not in leave_out:
            report.items += await _copy_state(source, target, namespace)
    session_ids = await _oldest_first(source)
    report.sessions = len(session_ids)
    yield report
    for session_id in session_ids:
        try:
            await _copy_session(source, target, session_id, report)
        except HoldfastError as error:
            report.skipped.append(SkippedSession(session_id, str(error)))
        yield report


async def _tombstones(source: Store) -> AsyncIterator[list[Tombstone]]:
    after = ""
    while page := await source.tombstones(after):
        yield page
        after = page[-1].session_id


async def _oldest_first(source: Store) -> list[str]:
    """All sessions in the order of their creation: a fork comes after what it was forked from."""
    page = await source.sessions()
    found = _ids(page.rows) + page.damaged
    while page.next is not None:
        page = await source.sessions(after=page.next)
        found += _ids(page.rows) + page.damaged
    return found[::-1]


def _ids(rows: list[SessionRow]) -> list[str]:
    return [row.session_id for row in rows]


async def _copy_state(source: Store, target: Store, namespace: str) -> int:
    """Copy the items of a namespace that differ; gives how many."""
    written, after = 0, ""
    while keys := await source.list_state(namespace, after=after):
        for key in keys:
            item, present = await source.get_state(namespace, key), await target.get_state(namespace, key)
            if item is not None and (present is None or repr(present.value) != repr(item.value)):
                await target.put_state(namespace, key, item.value)
                written += 1
        after = keys[-1]
    return written


async def _copy_session(source: Store, target: Store, session_id: str, report: CopyReport) -> None:
    row = await source.session(session_id)
    if row.owner is not None:
        raise SessionOwnedError(session_id, row.owner)
    entries = await source.entries(session_id, until=row.position)
    present = await _position(target, session_id)
    await _check_same(target, session_id, entries[:present], present)
    if present < row.position:
        await _append(target, row, entries, present)
        await _check_same(target, session_id, entries, row.position)
        report.records += row.position - present
    sent = await _copy_mail(source, target, session_id)
    report.messages += sent
    if present < row.position or sent:
        report.copied += 1
    else:
        report.equal += 1


async def _position(target: Store, session_id: str) -> int:
    """How far a session is in the target; 0 if it is not there."""
    try:
        return await target.position(session_id)
    except SessionDeletedError:
        raise
    except SessionNotFoundError:
        return 0


async def _append(target: Store, row: SessionRow, entries: list[Entry], present: int) -> None:
    """Write the entries that are missing. A fork shares its history in the target, too, if its source is there."""
    epoch = None
    if present == 0 and (fork := await _fork_in(target, entries)) is not None:
        begun = Session.fold(row.session_id, entries[: fork.position])
        first = Commit(
            session_id=row.session_id, expected=0, entries=entries[:1], summary=summarize(begun), owner=OWNER
        )
        receipt = await target.fork(fork.session_id, fork.position, first)
        present, epoch = receipt.position, receipt.epoch
    await target.append(
        Commit(
            session_id=row.session_id,
            expected=present,
            entries=entries[present:],
            summary=row.summary,
            owner=OWNER,
            epoch=epoch,
            hold_ms=0,
        )
    )


async def _fork_in(target: Store, entries: list[Entry]) -> Fork | None:
    """What a session was forked from, if the target has that up to the place of the fork."""
    started = entries[0].record
    if not isinstance(started, StartedRecord) or (fork := started.forked_from) is None:
        return None
    try:
        reach = await target.position(fork.session_id)
    except SessionNotFoundError:
        return None
    return fork if reach >= fork.position else None


async def _check_same(target: Store, session_id: str, entries: list[Entry], until: int) -> None:
    """Raise `CopyMismatchError` if a session of the target does not begin with these entries."""
    present = await target.entries(session_id, until=until) if until else []
    for position, (ours, theirs) in enumerate(zip_longest(entries, present), 1):
        if ours != theirs:
            raise CopyMismatchError(session_id, position)


async def _copy_mail(source: Store, target: Store, session_id: str) -> int:
    """Send the messages that wait in a mailbox, in their order; those that were sent already are not sent again."""
    sent = {item.key for item in await target.mailbox(session_id, MAILBOX_ITEMS)}
    waiting = [item for item in await source.mailbox(session_id, MAILBOX_ITEMS) if item.key not in sent]
    for item in waiting:
        await target.send(session_id, item.key, item.message, item.at)
    return len(waiting)
