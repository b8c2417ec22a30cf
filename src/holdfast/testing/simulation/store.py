"""The simulated store: a server that all simulated OS processes share, and a client in each of them.

The server is the store in memory. A client is a `Store`, too: each of its calls travels to the server, happens there at
one moment, and travels back. In between, whatever `Link` says may go wrong: delays, errors, a reply that is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.core.decide import Message
from holdfast.core.errors import HoldfastError
from holdfast.core.records import Entry
from holdfast.core.summary import Summary
from holdfast.store.commits import Checkpoint, Commit, CommitReceipt, Lease, Segment, Snapshot, StateWrite
from holdfast.store.contract import StateItem, Store
from holdfast.store.environment import Clock
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.inventory import Tombstone
from holdfast.store.journal_rows import encode_bodies
from holdfast.store.mailbox import MailboxItem, MessageReceipt
from holdfast.store.memory import MemoryStore
from holdfast.store.overview import SessionTotals, Trait
from holdfast.store.permits import CounterUse, PermitReply, PermitRequest, PermitTurn, PermitWait
from holdfast.store.session_rows import SessionFilter, SessionPage, SessionRow
from holdfast.store.upkeep import OpenChild, OpenSession
from holdfast.store.watch import LiveItem, LiveStream, LiveStreams, MissedMessages, Watch, Watches
from holdfast.testing.simulation.call_reply import CallReply

T = TypeVar("T")

URL = "simulated:"

WRITES = frozenset(
    (
        "_append",
        "_fork",
        "_repair",
        "_release",
        "_release_expired",
        "_send",
        "_put_state",
        "_delete_state",
        "_delete",
        "_prune",
        "_take_permit",
        "_give_back_permit",
        "_renew_permits",
        "_release_permits",
    ),
)
"""Calls that change something."""


class Fate(NamedTuple):
    """What becomes of one call on its way."""

    there_s: float = 0.0
    back_s: float = 0.0
    is_refused: bool = False
    """It raises, and has done nothing."""
    is_reply_lost: bool = False
    """It happens, and its caller gets an error."""


SMOOTH = Fate()


class Link:
    """The way from one OS process to the server. This one has no faults, and works on any event loop."""

    server: Context | None = None
    """The context of what happens at the server's side."""
    client: Context | None = None
    """The context of what happens at the client's side."""
    is_short: bool = False
    """Whether calls take no time: they happen at once, where they are made."""

    def fate(self, call: str) -> Fate:
        """What becomes of a call."""
        return SMOOTH

    def is_cut(self) -> bool:
        """Whether nothing gets through now."""
        return False

    def notices_s(self) -> Sequence[float]:
        """After how many seconds a notification arrives, each time that it does."""
        return (0.0,)

    def loses_live_message(self) -> bool:
        """Whether a live message does not arrive."""
        return False


class ServerCall(NamedTuple):
    """A call as the server saw it."""

    at_s: float
    """When, on the clock of the event loop."""
    at_ms: int
    """When, on the clock of the store."""
    client: str
    name: str
    args: tuple[Any, ...]
    outcome: Any
    """What it returned, or the error that it raised."""


class StoreServer(MemoryStore):
    """The data, and everything that has happened to it."""

    def __init__(self, clock: Clock | None = None, *, reports_deaths: bool = False) -> None:
        super().__init__(clock)
        self.url = URL
        self.calls: list[ServerCall] = []
        """Every call that was carried out, in order."""
        self.clients: list[SimulatedStore] = []
        self.caller: SimulatedStore | None = None
        """Whose call is being carried out."""
        self.reports_deaths = reports_deaths
        self.on_taken: Callable[[SimulatedStore], None] | None = None
        """Called with the client that held a session when another one has taken it."""
        self.on_commit: Callable[[SimulatedStore, Commit, CommitReceipt], None] | None = None
        """Called with each commit that was made, and who made it."""
        self._watches = _Notices(self)
        self._holders: dict[str, SimulatedStore] = {}
        self._gone: dict[str, Lease] = {}
        """Leases whose holder is gone, by session."""

    async def _encoded(self, commit: Commit) -> tuple[list[bytes], dict[str, bytes]]:
        return encode_bodies(commit)  # what is carried out is carried out at once

    def now(self) -> int:
        """The time of day by its clock (unix ms)."""
        return self._clock.now()

    def carry_out(self, client: SimulatedStore, name: str, args: tuple[Any, ...]) -> Any:
        """Do what a client asks for; raises what the call raises."""
        self.caller = client
        try:
            outcome = returned(getattr(self, name)(*args))
        except HoldfastError as error:
            outcome = error
        at_s = asyncio.get_running_loop().time()
        self.calls.append(ServerCall(at_s, self._clock.now(), client.name, name, args, outcome))
        if isinstance(outcome, HoldfastError):
            raise outcome
        if name in ("_append", "_fork"):
            commit: Commit = args[-1]
            if self.on_commit is not None:
                self.on_commit(client, commit, outcome)
            self._gone.pop(commit.session_id, None)
            former = self._holders.get(commit.session_id)
            if former is not None and former is not client and self.on_taken is not None:
                self.on_taken(former)
            if commit.hold_ms:
                self._holders[commit.session_id] = client
            else:
                self._holders.pop(commit.session_id, None)
        return outcome

    def end_leases(self, client: SimulatedStore) -> None:
        """Let others claim what a client holds, though its time is not up. What it writes first is accepted."""
        now = self._clock.now()
        for session_id, holder in self._holders.items():
            stored = self._by_id.get(session_id)
            if holder is client and stored is not None and stored.head.owner is not None:
                stored.head = stored.head._replace(lease_until=now)

    # --- holders that are gone -----------------------------------------------------------------------

    def lose_holder(self, client: SimulatedStore) -> None:
        """A client is gone: if the store can tell, its leases end."""
        if not self.reports_deaths:
            return
        for session_id, holder in list(self._holders.items()):
            stored = self._by_id.get(session_id)
            if holder is client and stored is not None and stored.head.owner is not None:
                head = stored.head
                self._gone[session_id] = Lease(session_id, head.owner or "", head.epoch, head.lease_until or 0)
                stored.head = head._replace(owner=None, lease_until=None)

    def find_holder(self, client: SimulatedStore) -> None:
        """A client that seemed to be gone is back, and so are those of its leases that nobody has claimed."""
        for session_id, lease in list(self._gone.items()):
            stored = self._by_id.get(session_id)
            if self._holders.get(session_id) is client and stored is not None:
                stored.head = stored.head._replace(owner=lease.owner, lease_until=lease.until)
                del self._gone[session_id]

    async def _lost(self, limit: int) -> list[Lease]:
        now = self._clock.now()
        return [lease for lease in self._gone.values() if lease.until > now and lease.session_id in self._by_id][:limit]


class _Notices(Watches):
    """Tells all clients of changes, and each one which commits were its own."""

    def __init__(self, server: StoreServer) -> None:
        super().__init__()
        self._server = server

    def notify(self, session_id: str) -> None:
        for client in self._server.clients:
            client.expect_notice(session_id)

    def committed(self, session_id: str) -> None:
        for client in self._server.clients:
            client.expect_notice(session_id, is_own_commit=client is self._server.caller)


class SimulatedStore(Store):
    """The store as one simulated OS process sees it."""

    def __init__(self, server: StoreServer, link: Link, name: str = "client") -> None:
        self.url = URL
        self.name = name
        self._server = server
        self._link = link
        self._watches = Watches()
        self._streams = LiveStreams()
        self._under_way: dict[CallReply, None] = {}
        self._is_open = False

    async def open(self) -> None:
        await self._travel()
        if not self._is_open:
            self._is_open = True
            self._server.clients.append(self)

    async def close(self) -> None:
        while self._under_way:
            under_way: list[Any] = list(self._under_way)
            await asyncio.wait(under_way)
        if self._is_open:
            self._is_open = False
            self._server.clients.remove(self)
            self._server.lose_holder(self)

    async def _travel(self) -> None:
        """Go there and back for nothing."""
        if self._link.is_cut() or (fate := self._link.fate("open")).is_refused:
            raise StoreUnavailableError(self.url, "it does not answer")
        await asyncio.sleep(fate.there_s + fate.back_s)

    # --- calls ---------------------------------------------------------------------------------------

    async def _call(self, name: str, *args: Any) -> Any:
        if self._link.is_short:
            return self._server.carry_out(self, name, args)
        loop = asyncio.get_running_loop()
        reply = CallReply(loop)
        fate = self._link.fate(name)
        self._under_way[reply] = None
        try:
            loop.call_later(fate.there_s, self._arrive, name, args, fate, reply, context=self._link.server)
            return await reply
        finally:
            del self._under_way[reply]

    def _arrive(self, name: str, args: tuple[Any, ...], fate: Fate, reply: CallReply) -> None:
        """The request is at the server, also if the process that sent it has died meanwhile."""
        outcome: Any
        if self._link.is_cut():
            outcome = StoreUnavailableError(self.url, "the connection broke before the call")
        elif fate.is_refused:
            outcome = StoreUnavailableError(self.url, "it is in trouble, and has done nothing")
        else:
            try:
                outcome = self._server.carry_out(self, name, args)
            except HoldfastError as error:
                outcome = error
            if fate.is_reply_lost:
                outcome = StoreUnavailableError(self.url, "the connection broke, and nobody knows what happened")
        loop = asyncio.get_running_loop()
        loop.call_later(fate.back_s, self._return, outcome, reply, context=self._link.client)

    def _return(self, outcome: Any, reply: CallReply) -> None:
        if self._link.is_cut():
            outcome = StoreUnavailableError(self.url, "the connection broke during the call")
        reply.bring(outcome)

    def expect_notice(self, session_id: str, *, is_own_commit: bool = False) -> None:
        """Something has changed at the server: the watches here hear of it soon."""
        if self._watches:
            loop = asyncio.get_running_loop()
            for after_s in self._link.notices_s():
                loop.call_later(after_s, self._notice, session_id, is_own_commit, context=self._link.client)

    def _notice(self, session_id: str, is_own_commit: bool) -> None:
        if is_own_commit:
            self._watches.committed(session_id)
        else:
            self._watches.notify(session_id)
        self._watches.notify_of_others()

    def _watch_others(self) -> Watch:
        return self._watches.add_for_others()

    def _watch(self, session_id: str | None, *, own: bool) -> Watch:
        return self._watches.add(session_id, own=own)

    def _publish(self, session_id: str, item: LiveItem) -> None:
        self._streams.put(session_id, item)
        loop = asyncio.get_running_loop()
        for other in self._server.clients:
            if other is not self and not self._link.is_cut():
                sent = MissedMessages() if other._link.loses_live_message() else item
                after_s = min(other._link.notices_s())
                loop.call_later(after_s, other._streams.put, session_id, sent, context=other._link.client)

    def _listen(self, session_id: str) -> LiveStream:
        return self._streams.add(session_id)

    # --- the calls of the contract, one by one ---------------------------------------------------------

    async def _append(self, commit: Commit) -> CommitReceipt:
        return await self._call("_append", _sent(commit))  # type: ignore[no-any-return]

    async def _fork(self, source: str, at: int, commit: Commit) -> CommitReceipt:
        return await self._call("_fork", source, at, _sent(commit))  # type: ignore[no-any-return]

    async def _read(self, session_id: str, after: int, limit: int) -> list[Entry]:
        return await self._call("_read", session_id, after, limit)  # type: ignore[no-any-return]

    async def _position(self, session_id: str) -> int:
        return await self._call("_position", session_id)  # type: ignore[no-any-return]

    async def _session(self, session_id: str) -> SessionRow:
        return await self._call("_session", session_id)  # type: ignore[no-any-return]

    async def _sessions(self, where: SessionFilter, before: int | None, limit: int) -> SessionPage:
        return await self._call("_sessions", where, before, limit)  # type: ignore[no-any-return]

    async def _take_permit(self, request: PermitRequest) -> PermitReply:
        return await self._call("_take_permit", request)  # type: ignore[no-any-return]

    async def _give_back_permit(self, ticket: str, owner: str) -> list[PermitTurn]:
        return await self._call("_give_back_permit", ticket, owner)  # type: ignore[no-any-return]

    async def _renew_permits(self, owner: str, hold_ms: int) -> None:
        await self._call("_renew_permits", owner, hold_ms)

    async def _release_permits(self, owner: str) -> list[PermitTurn]:
        return await self._call("_release_permits", owner)  # type: ignore[no-any-return]

    async def _permit_waits(self, session_ids: Sequence[str], limit: int) -> list[PermitWait]:
        return await self._call("_permit_waits", session_ids, limit)  # type: ignore[no-any-return]

    async def _counter_uses(self, limit: int) -> list[CounterUse]:
        return await self._call("_counter_uses", limit)  # type: ignore[no-any-return]

    async def _totals(self, where: SessionFilter, by: Sequence[Trait], limit: int) -> SessionTotals:
        return await self._call("_totals", where, by, limit)  # type: ignore[no-any-return]

    async def _last_entries(self, session_ids: Sequence[str], limit: int) -> dict[str, list[Entry]]:
        return await self._call("_last_entries", session_ids, limit)  # type: ignore[no-any-return]

    async def _repair(self, session_id: str, summary: Summary) -> None:
        await self._call("_repair", session_id, summary)

    async def _snapshot(self, session_id: str) -> Snapshot | None:
        return await self._call("_snapshot", session_id)  # type: ignore[no-any-return]

    async def _checkpoint(self, session_id: str) -> tuple[Checkpoint, list[Segment]] | None:
        return await self._call("_checkpoint", session_id)  # type: ignore[no-any-return]

    async def _release(self, lease: Lease) -> None:
        await self._call("_release", lease)

    async def _lost(self, limit: int) -> list[Lease]:
        return await self._call("_lost", limit)  # type: ignore[no-any-return]

    async def _send(self, session_id: str, key: str, message: Message, at: int) -> MessageReceipt:
        return await self._call("_send", session_id, key, message, at)  # type: ignore[no-any-return]

    async def _mailbox(self, session_id: str, limit: int) -> list[MailboxItem]:
        return await self._call("_mailbox", session_id, limit)  # type: ignore[no-any-return]

    async def _release_expired(self, limit: int) -> int:
        return await self._call("_release_expired", limit)  # type: ignore[no-any-return]

    async def _due(self, now: int, limit: int, services: Sequence[str], after: int) -> list[tuple[str, int]]:
        return await self._call("_due", now, limit, services, after)  # type: ignore[no-any-return]

    async def _open_needs(self, services: Sequence[str], limit: int) -> list[str]:
        return await self._call("_open_needs", services, limit)  # type: ignore[no-any-return]

    async def _open_sessions(self, needs: str, services: Sequence[str], before: int, limit: int) -> list[OpenSession]:
        return await self._call("_open_sessions", needs, services, before, limit)  # type: ignore[no-any-return]

    async def _open_mail(self, services: Sequence[str], limit: int) -> list[OpenSession]:
        return await self._call("_open_mail", services, limit)  # type: ignore[no-any-return]

    async def _open_children(self, services: Sequence[str], before: int, limit: int) -> list[OpenChild]:
        return await self._call("_open_children", services, before, limit)  # type: ignore[no-any-return]

    async def _prune(self, ended_before: int, limit: int, services: Sequence[str]) -> list[str]:
        return await self._call("_prune", ended_before, limit, services)  # type: ignore[no-any-return]

    async def _is_larger(self, max_bytes: int) -> bool:
        return await self._call("_is_larger", max_bytes)  # type: ignore[no-any-return]

    async def _give_back_space(self) -> bool:
        return await self._call("_give_back_space")  # type: ignore[no-any-return]

    async def _get_state(self, namespace: str, key: str) -> StateItem | None:
        return await self._call("_get_state", namespace, key)  # type: ignore[no-any-return]

    async def _put_state(self, write: StateWrite) -> int:
        return await self._call("_put_state", write)  # type: ignore[no-any-return]

    async def _delete_state(self, namespace: str, key: str) -> bool:
        return await self._call("_delete_state", namespace, key)  # type: ignore[no-any-return]

    async def _list_state(self, namespace: str, prefix: str, after: str, limit: int) -> list[str]:
        return await self._call("_list_state", namespace, prefix, after, limit)  # type: ignore[no-any-return]

    async def _delete(self, session_id: str, at: int) -> None:
        await self._call("_delete", session_id, at)

    async def _namespaces(self) -> list[str]:
        return await self._call("_namespaces")  # type: ignore[no-any-return]

    async def _tombstones(self, after: str, limit: int) -> list[Tombstone]:
        return await self._call("_tombstones", after, limit)  # type: ignore[no-any-return]

    async def _bury(self, tombstones: Sequence[Tombstone]) -> None:
        await self._call("_bury", tombstones)


def returned(call: Coroutine[Any, Any, T]) -> T:
    """What a call of the store in memory returns: it never waits."""
    try:
        call.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("a call of the store in memory has waited")


def _sent(commit: Commit) -> Commit:
    """A commit as it is when it is sent, whatever its writer does with its lists afterwards."""
    return msgspec.structs.replace(
        commit,
        entries=list(commit.entries),
        bodies=list(commit.bodies),
        takes=list(commit.takes),
        writes=list(commit.writes),
    )
