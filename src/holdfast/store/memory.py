"""The store in memory: the whole contract, for tests and for work that need not outlive its process."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.core.decide import Message
from holdfast.core.errors import HoldfastError, SessionDeletedError, SessionExistsError, SessionNotFoundError
from holdfast.core.records import Entry
from holdfast.core.summary import Summary
from holdfast.store.checkpoints import chain_of
from holdfast.store.codec import decode_message, decode_value, digest, encode_message, encode_value
from holdfast.store.commits import Checkpoint, Commit, CommitReceipt, Lease, Segment, Snapshot, StateWrite
from holdfast.store.contract import StateItem, Store
from holdfast.store.environment import Clock, SystemClock
from holdfast.store.errors import MessageConflictError, MessageTakenError
from holdfast.store.filters import cursor_of, matches
from holdfast.store.inventory import Tombstone
from holdfast.store.journal_rows import decode_bodies, encode_bodies, is_large_commit
from holdfast.store.leases import (
    NEW,
    LeaseState,
    commit_epoch,
    lease_columns,
    next_version,
    write_versions,
)
from holdfast.store.limits import TOTALLED_SESSIONS
from holdfast.store.mailbox import MailboxItem, MessageReceipt
from holdfast.store.off_loop import off_loop
from holdfast.store.overview import DAY_MS, SessionTotals, Trait, total_of
from holdfast.store.permits import CounterUse, PermitBook, PermitReply, PermitRequest, PermitTurn, PermitWait
from holdfast.store.session_rows import SessionFilter, SessionPage, SessionRow
from holdfast.store.shared_history import check_reach, kept_references
from holdfast.store.upkeep import OpenChild, OpenSession
from holdfast.store.watch import LiveItem, LiveStream, LiveStreams, Watch, Watches


@dataclass
class _Mail:
    number: int
    at: int
    body: str
    digest: str
    taken: bool = False


@dataclass
class _Stored:
    num: int
    head: LeaseState
    summary: Summary
    times: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    """The JSON of its records, by position."""
    mail: dict[str, _Mail] = field(default_factory=dict)
    refs: set[str] = field(default_factory=set)
    snapshot: Snapshot | None = None
    checkpoint: Checkpoint | None = None
    segments: list[Segment] = field(default_factory=list)


class MemoryStore(Store):
    """Everything in dictionaries. No call waits, so each is atomic by itself."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.url = "memory:"
        self._clock = clock or SystemClock()
        self._by_id: dict[str, _Stored] = {}
        self._deleted: dict[str, int] = {}
        self._blobs: dict[str, bytes] = {}
        self._state: dict[tuple[str, str], tuple[str, int]] = {}
        self._permits = PermitBook()
        self._numbers = 0
        self._watches = Watches()
        self._streams = LiveStreams()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def _find(self, session_id: str) -> _Stored:
        if session_id in self._deleted:
            raise SessionDeletedError(session_id, self._deleted[session_id])
        if session_id not in self._by_id:
            raise SessionNotFoundError(session_id)
        return self._by_id[session_id]

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # --- journals --------------------------------------------------------------------------------

    async def _encoded(self, commit: Commit) -> tuple[list[bytes], dict[str, bytes]]:
        """The bodies and blobs of a large commit."""
        return await off_loop(lambda: encode_bodies(commit))

    async def _append(self, commit: Commit) -> CommitReceipt:
        bodies, blobs = await self._encoded(commit) if is_large_commit(commit) else encode_bodies(commit)
        session_id, now = commit.session_id, self._clock.now()
        if commit.expected == 0:
            if session_id in self._deleted:
                raise SessionDeletedError(session_id, self._deleted[session_id])
            if session_id in self._by_id:
                raise SessionExistsError(session_id)
            session = _Stored(0, NEW, commit.summary)
        else:
            session = self._find(session_id)
        epoch = commit_epoch(commit, session.head, now)
        taken = self._waiting(session_id, session, commit.takes) if commit.takes else []
        versions = write_versions(commit.writes, self._version) if commit.writes else []
        if not session.num:
            session.num = self._next_number()
            self._by_id[session_id] = session
        for mail in taken:
            mail.taken = True
        for write, version in zip(commit.writes, versions, strict=True):
            self._write(write, version)
        session.bodies += bodies
        session.times += [entry.at for entry in commit.entries]
        if blobs:
            self._blobs |= blobs
            session.refs |= blobs.keys()
        position = commit.expected + len(bodies)
        session.head = LeaseState(position, epoch, *lease_columns(commit.owner, commit.hold_ms, now))
        session.summary = commit.summary
        if commit.summary.state.is_terminal:
            session.snapshot = None
            for mail in session.mail.values():
                mail.taken = True
        elif commit.snapshot is not None:
            session.snapshot = commit.snapshot
        if commit.checkpoint is not None:
            session.checkpoint = commit.checkpoint
        if commit.segment is not None:
            kept = [segment for segment in session.segments if segment.position <= commit.segment.after]
            session.segments = [*kept, commit.segment]
        self._watches.committed(session_id)
        self._watches.notify_of_others()  # several engines may share this object
        return CommitReceipt(session_id, position, epoch)

    def _waiting(self, session_id: str, session: _Stored, numbers: Sequence[int]) -> list[_Mail]:
        """The mail with these numbers; `MessageTakenError` if any was taken."""
        waiting = {mail.number: mail for mail in session.mail.values() if not mail.taken}
        for number in numbers:
            if number not in waiting:
                raise MessageTakenError(session_id, number)
        return [waiting[number] for number in numbers]

    async def _fork(self, source: str, at: int, commit: Commit) -> CommitReceipt:
        shared = self._find(source)
        check_reach(source, at, shared.head.position)
        receipt = await self._append(commit)
        session = self._by_id[commit.session_id]
        session.bodies += shared.bodies[1:at]  # the same objects, which go with the last session that has them
        session.times += shared.times[1:at]
        session.refs |= kept_references(session.bodies)
        session.head = session.head._replace(position=at)
        return msgspec.structs.replace(receipt, position=at)

    async def _read(self, session_id: str, after: int, limit: int) -> list[Entry]:
        session, part = self._find(session_id), slice(after, after + limit)
        records = decode_bodies(session_id, after + 1, session.bodies[part], self._blobs)
        times = session.times[part]
        return [Entry(after + n, at, record) for n, (at, record) in enumerate(zip(times, records, strict=True), 1)]

    async def _position(self, session_id: str) -> int:
        return self._find(session_id).head.position

    async def _session(self, session_id: str) -> SessionRow:
        return self._row(session_id, self._find(session_id))

    def _row(self, session_id: str, session: _Stored) -> SessionRow:
        head = session.head
        owner = head.holder(self._clock.now())
        return SessionRow(
            session_id=session_id,
            summary=session.summary,
            position=head.position,
            epoch=head.epoch,
            owner=owner,
            lease_until=head.lease_until if owner else None,
        )

    async def _sessions(self, where: SessionFilter, before: int | None, limit: int) -> SessionPage:
        found: list[SessionRow] = []
        last = 0
        for session_id, session in reversed(self._by_id.items()):
            if before is not None and session.num >= before:
                continue
            if not matches(where, session_id, session.summary):
                continue
            if where.has_mail and all(mail.taken for mail in session.mail.values()):
                continue
            if len(found) == limit:
                return SessionPage(found, cursor_of(last))
            found.append(self._row(session_id, session))
            last = session.num
        return SessionPage(found, None)

    async def _totals(self, where: SessionFilter, by: Sequence[Trait], limit: int) -> SessionTotals:
        sums: dict[tuple[str, ...], list[float]] = {}
        found = [
            (session_id, session)
            for session_id, session in reversed(self._by_id.items())
            if matches(where, session_id, session.summary)
            and not (where.has_mail and all(mail.taken for mail in session.mail.values()))
        ]
        for session_id, session in found[: TOTALLED_SESSIONS + 1]:
            summary = session.summary
            values: dict[Trait, object] = {
                "session": session_id,
                "labels": ",".join(summary.labels),
                "day": summary.created_at // DAY_MS,
                "owner": session.head.owner,
            }
            key = tuple(str(values[trait] or "") if trait in values else str(getattr(summary, trait)) for trait in by)
            added = (1, summary.asks, summary.tokens, summary.cost)
            sums[key] = [before + more for before, more in zip(sums.get(key, (0.0,) * 4), added, strict=True)]
        rows = sorted(sums.items(), key=lambda item: (-item[1][3], -item[1][2], -item[1][0], item[0]))
        is_partial = len(found) > TOTALLED_SESSIONS
        return SessionTotals([total_of(by, (*key, *each)) for key, each in rows[:limit]], is_partial)

    async def _last_entries(self, session_ids: Sequence[str], limit: int) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for session_id in session_ids:
            with contextlib.suppress(HoldfastError):
                after = max(0, self._find(session_id).head.position - limit)
                found[session_id] = await self._read(session_id, after, limit)
        return found

    async def _repair(self, session_id: str, summary: Summary) -> None:
        self._find(session_id).summary = summary
        self._changed(session_id)

    async def _snapshot(self, session_id: str) -> Snapshot | None:
        return self._find(session_id).snapshot

    async def _checkpoint(self, session_id: str) -> tuple[Checkpoint, list[Segment]] | None:
        session = self._find(session_id)
        return chain_of(session.head.position, session.checkpoint, session.segments)

    # --- leases ----------------------------------------------------------------------------------

    async def _release(self, lease: Lease) -> None:
        session = self._by_id.get(lease.session_id)
        if session is not None and session.head.epoch == lease.epoch:
            session.head = session.head._replace(owner=None, lease_until=None)
            self._changed(lease.session_id)

    async def _lost(self, limit: int) -> list[Lease]:
        return []  # this process is not gone

    async def _release_expired(self, limit: int) -> int:
        now = self._clock.now()
        expired = [
            (session.head.lease_until, session_id)
            for session_id, session in self._by_id.items()
            if session.head.lease_until is not None and session.head.lease_until <= now
        ]
        for _, session_id in sorted(expired)[:limit]:
            session = self._by_id[session_id]
            session.head = session.head._replace(owner=None, lease_until=None)
            self._changed(session_id)
        return min(limit, len(expired))

    # --- what is open ----------------------------------------------------------------------------

    def _open(self, services: Sequence[str]) -> list[tuple[str, _Stored]]:
        """The open sessions, the newest first."""
        return [
            (session_id, session)
            for session_id, session in reversed(self._by_id.items())
            if session.head.owner is None
            and not session.summary.state.is_terminal
            and (not services or session.summary.service in services)
        ]

    def _open_session(self, session_id: str, session: _Stored, mail: int = 0) -> OpenSession:
        return OpenSession(session_id, session.head.position, session.head.epoch, session.num, mail)

    async def _open_needs(self, services: Sequence[str], limit: int) -> list[str]:
        return sorted({session.summary.needs for _, session in self._open(services)} - {""})[:limit]

    async def _open_sessions(self, needs: str, services: Sequence[str], before: int, limit: int) -> list[OpenSession]:
        return [
            self._open_session(session_id, session)
            for session_id, session in self._open(services)
            if session.summary.needs == needs != "" and session.num < before
        ][:limit]

    async def _open_mail(self, services: Sequence[str], limit: int) -> list[OpenSession]:
        found = []
        for session_id, session in self._open(services):
            waiting = [mail.number for mail in session.mail.values() if not mail.taken]
            if waiting:
                found.append((min(waiting), self._open_session(session_id, session, max(waiting))))
        return [each for _, each in sorted(found, key=lambda item: item[0])][:limit]

    async def _open_children(self, services: Sequence[str], before: int, limit: int) -> list[OpenChild]:
        return [
            OpenChild(session_id, session.summary.parent, session.num)
            for session_id, session in self._open(services)
            if session.summary.parent is not None and session.num < before
        ][:limit]

    # --- mailboxes -------------------------------------------------------------------------------

    async def _send(self, session_id: str, key: str, message: Message, at: int) -> MessageReceipt:
        body, mark = encode_message(session_id, message), digest(message)
        session = self._find(session_id)
        before = session.mail.get(key)
        if before is not None:
            if before.digest != mark:
                raise MessageConflictError(session_id, key)
            return MessageReceipt(session_id, key, before.number, replayed=True)
        has_ended = session.summary.state.is_terminal
        mail = session.mail[key] = _Mail(self._next_number(), at, body, mark, taken=has_ended)
        self._changed(session_id)
        return MessageReceipt(session_id, key, mail.number)

    async def _mailbox(self, session_id: str, limit: int) -> list[MailboxItem]:
        waiting = [(key, mail) for key, mail in self._find(session_id).mail.items() if not mail.taken]
        return [
            MailboxItem(mail.number, key, mail.at, decode_message(session_id, mail.number, mail.body, mail.digest))
            for key, mail in waiting[:limit]
        ]

    # --- time ------------------------------------------------------------------------------------

    async def _due(self, now: int, limit: int, services: Sequence[str], after: int) -> list[tuple[str, int]]:
        found = [
            (session_id, session.summary.due_at)
            for session_id, session in self._by_id.items()
            if session.summary.due_at is not None
            and after < session.summary.due_at <= now
            and (not services or session.summary.service in services)
        ]
        return sorted(found, key=lambda item: item[1])[:limit]

    # --- blobs -----------------------------------------------------------------------------------

    def _drop_unkept(self, blob_ids: list[str]) -> None:
        for blob_id in blob_ids:
            if not any(blob_id in session.refs for session in self._by_id.values()):
                self._blobs.pop(blob_id, None)

    # --- state -----------------------------------------------------------------------------------

    async def _get_state(self, namespace: str, key: str) -> StateItem | None:
        found = self._state.get((namespace, key))
        return StateItem(decode_value(namespace, key, found[0]), found[1]) if found else None

    async def _put_state(self, write: StateWrite) -> int:
        version = next_version(write, self._version(write))
        self._write(write, version)
        return version

    def _version(self, write: StateWrite) -> int:
        found = self._state.get((write.namespace, write.key))
        return found[1] if found else 0

    def _write(self, write: StateWrite, version: int) -> None:
        if write.delete:
            self._state.pop((write.namespace, write.key), None)
        else:
            self._state[write.namespace, write.key] = (encode_value(write.value), version)

    async def _delete_state(self, namespace: str, key: str) -> bool:
        return self._state.pop((namespace, key), None) is not None

    async def _list_state(self, namespace: str, prefix: str, after: str, limit: int) -> list[str]:
        keys = (key for space, key in self._state if space == namespace)
        return sorted(key for key in keys if key.startswith(prefix) and key > after)[:limit]

    async def _namespaces(self) -> list[str]:
        return sorted({namespace for namespace, _ in self._state})

    async def _tombstones(self, after: str, limit: int) -> list[Tombstone]:
        return [Tombstone(each, self._deleted[each]) for each in sorted(self._deleted) if each > after][:limit]

    async def _bury(self, tombstones: Sequence[Tombstone]) -> None:
        for each in tombstones:
            if each.session_id not in self._by_id:
                self._deleted.setdefault(each.session_id, each.deleted_at)

    # --- permits ---------------------------------------------------------------------------------

    async def _take_permit(self, request: PermitRequest) -> PermitReply:
        return self._permits.take(request, self._clock.now())

    async def _give_back_permit(self, ticket: str, owner: str) -> list[PermitTurn]:
        return self._permits.give_back(ticket, owner, self._clock.now())

    async def _renew_permits(self, owner: str, hold_ms: int) -> None:
        self._permits.renew(owner, hold_ms, self._clock.now())

    async def _release_permits(self, owner: str) -> list[PermitTurn]:
        return self._permits.release(owner, self._clock.now())

    async def _permit_waits(self, session_ids: Sequence[str], limit: int) -> list[PermitWait]:
        return self._permits.waits(session_ids, limit, self._clock.now())

    async def _counter_uses(self, limit: int) -> list[CounterUse]:
        return self._permits.uses(limit, self._clock.now())

    # --- ends and change ---------------------------------------------------------------------------

    async def _delete(self, session_id: str, at: int) -> None:
        if session_id in self._deleted:
            return
        session = self._find(session_id)
        del self._by_id[session_id]
        self._deleted[session_id] = at
        self._drop_unkept([*session.refs])
        self._changed(session_id)

    async def _prune(self, ended_before: int, limit: int, services: Sequence[str]) -> list[str]:
        over = sorted(
            (session.summary.updated_at, session.num, session_id)
            for session_id, session in self._by_id.items()
            if session.summary.state.is_terminal
            and session.summary.updated_at < ended_before
            and (not services or session.summary.service in services)
        )[:limit]
        for _, _, session_id in over:
            await self._delete(session_id, ended_before)
        return [session_id for _, _, session_id in over]

    async def _is_larger(self, max_bytes: int) -> bool:
        journals = sum(len(body) for session in self._by_id.values() for body in session.bodies)
        return journals + sum(map(len, self._blobs.values())) > max_bytes

    async def _give_back_space(self) -> bool:
        return False

    def _changed(self, session_id: str) -> None:
        self._watches.notify(session_id)
        self._watches.notify_of_others()  # several engines may share this object

    def _watch(self, session_id: str | None, *, own: bool) -> Watch:
        return self._watches.add(session_id, own=own)

    def _watch_others(self) -> Watch:
        return self._watches.add_for_others()

    def _publish(self, session_id: str, item: LiveItem) -> None:
        self._streams.put(session_id, item)

    def may_be_heard(self, session_id: str) -> bool:
        return session_id in self._streams.by_session

    def _listen(self, session_id: str) -> LiveStream:
        return self._streams.add(session_id)
