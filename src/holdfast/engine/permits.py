"""The permits of this OS process: how its calls keep to the limits of the fleet (see `fleet_limits`).

A call asks the store for a permit before it begins. If there is no room, it waits here, in the same order as in the
line of the store, and only the first of each line asks again: when the store's message says that it is its turn, and
else every second. While there are permits or lines, they are renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.labels import priority_of
from holdfast.core.needs import ANY, HOST
from holdfast.core.queries import LlmQuery, Query, ToolQuery, is_own
from holdfast.core.state import Session
from holdfast.engine.fleet_limits import Call, Limit, declare_limits, read_limits
from holdfast.engine.store_trouble import insist
from holdfast.store.contract import Store
from holdfast.store.patience import pause
from holdfast.store.permits import PermitReply, PermitRequest, PermitShare, PermitTurn
from holdfast.store.supervisor import Supervisor
from holdfast.store.watch import LiveStream

log = logging.getLogger("holdfast.engine")

READ_S = pause(10.0)
"""Seconds between looks at the declared limits: they change when an operator changes them."""

AGAIN_S = pause(1.0)
"""Seconds after which the first of a line asks again if nothing is heard: messages can be lost, and leases end."""

IDLE_S = 30.0
"""Seconds after the last permit for which messages are listened to."""

TOPIC = "holdfast.permits"
"""The live messages that say whose turn it is."""

MIN_CROWD = 16
"""Calls of this process that wait in a line before it is crowded: enough to have one ready whenever there is room."""

NameModel: TypeAlias = Callable[[Session, LlmQuery], Sequence[str]]
"""The names of the model that would answer a query here."""


class Permit:
    """The permit of one call."""

    def __init__(self, permits: FleetPermits, request: PermitRequest) -> None:
        self._permits = permits
        self._request = request
        self._asking: asyncio.Task[PermitReply] | None = None
        """The latest time that it was asked for, if it was not given back since."""
        self._giving: asyncio.Task[None] | None = None
        """What gives it back, if that is under way."""
        self._turn: asyncio.Future[None] | None = None
        """Done when it is worthwhile to ask again; cancelled when nobody waits for that any more."""

    async def take(self) -> PermitReply:
        """Ask for it. With a counter in the reply, it has to be asked for again, after `room`."""
        if self._giving is not None:
            await asyncio.wait([self._giving])
            self._giving = None
        self._asking = asyncio.get_running_loop().create_task(self._permits.ask(self._request))
        with self._permits.asking():
            reply = await asyncio.shield(self._asking)  # what was asked for has to be given back, and in this order
            if reply.waits_for is None:
                self._permits.took(self, reply)
            else:
                self._turn = self._permits.stand_in_line(reply, self._request)
        return reply

    async def room(self) -> None:
        """Wait until it is worthwhile to ask again, or it was given back meanwhile."""
        if self._turn is not None:
            await asyncio.wait([self._turn])

    def give_back(self) -> None:
        """Give it back, or leave the line, in the background."""
        if self._turn is not None:
            self._turn.cancel()
        if self._asking is not None:
            asking, self._asking = self._asking, None
            self._giving = self._permits.give_back(self, self._request.ticket, asking)


class _Waiter(msgspec.Struct, eq=False):
    place: tuple[int, str]
    """The rank and the ticket: the order of the line in the store."""
    turn: asyncio.Future[None]


class _Line:
    """Calls of this process that wait in a line of the store."""

    def __init__(self) -> None:
        self.waiters: list[_Waiter] = []
        self.again_at = 0.0
        """When the first of them asks again, by the event loop's clock."""

    def call_next(self) -> bool:
        """It may be the turn of the first of those who were not called yet; False if there is none."""
        waiting = [each for each in self.waiters if not each.turn.done()]
        if waiting:
            min(waiting, key=lambda each: each.place).turn.set_result(None)
        return bool(waiting)


class FleetPermits:
    """What the calls of one process may do now. Belongs to one event loop."""

    def __init__(self, store: Store, owner: str, lease_ms: int, supervisor: Supervisor) -> None:
        self._store = store
        self._owner = owner
        self._lease_ms = lease_ms
        self.limits: tuple[Limit, ...] = ()
        """Those in force here."""
        self.name_model: NameModel = recorded_models
        self.on_room: Callable[[], None] = lambda: None
        """Called when a line has become short."""
        self.on_wait: Callable[[], None] = lambda: None
        """Called when a call has to wait."""
        self.waiting: Counter[str] = Counter()
        """Calls in line here, by session."""
        self._lines: dict[str, _Line] = {}
        self._held: set[Permit] = set()
        self._asking = 0
        """How many ask the store just now."""
        self._missed: set[str] = set()
        """Lines in which it was somebody's turn when nobody stood in them here."""
        self._giving: set[asyncio.Task[None]] = set()
        self._news: LiveStream | None = None
        self._idle_since = 0.0
        self._keeping = supervisor.task("keeping the permits of calls", self._keep)

    # --- limits --------------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Read the limits that are declared in the store. What cannot be read changes nothing."""
        try:
            self.limits = tuple(await read_limits(self._store))
        except HoldfastError as error:
            log.warning("the limits of the fleet cannot be read, and stay as they were: %s", error)

    async def declare(self, limits: Sequence[Limit]) -> None:
        """Declare limits for all processes on the store."""
        for limit in await declare_limits(self._store, limits) if limits else []:
            log.info("the fleet's limit %s is declared", limit)
        await self.read()

    async def run(self) -> None:
        """Read them again and again, until cancelled."""
        while True:
            await asyncio.sleep(READ_S)
            await self.read()

    def permit(self, session: Session, query: Query) -> Permit | None:
        """The permit that the call for a query needs; None if it needs none."""
        shares = self.shares(session, query)
        if not shares:
            return None
        request = PermitRequest(
            ticket=f"{session.id}/{query.id}",
            session_id=session.id,
            owner=self._owner,
            shares=shares,
            priority=priority_of(session.labels),
            hold_ms=self._lease_ms,
        )
        return Permit(self, request)

    def shares(self, session: Session, query: Query) -> tuple[PermitShare, ...]:
        """What the call for a query counts in: nothing, if no limit is on it."""
        if not self.limits or session.started is None:
            return ()
        call = Call(session.started.service, session.started.program.name, session.labels)
        match query:
            case LlmQuery():
                call = call._replace(models=self.name_model(session, query))
            case ToolQuery(name=name) if not is_own(query):
                call = call._replace(tool=name)
            case _:
                return ()
        return tuple(share for limit in self.limits if (share := limit.share(call)) is not None)

    def is_crowded(self, session: Session) -> bool:
        """Whether so many calls wait here already for what a call of this session would count in, whatever it calls."""
        if not self._lines or session.started is None:
            return False
        call = Call(session.started.service, session.started.program.name, session.labels)
        for limit in self.limits:
            share = limit.share(call)
            line = self._lines.get(share.counter) if share is not None else None
            if line is not None and share is not None and len(line.waiters) >= max(MIN_CROWD, share.most):
                return True
        return False

    # --- permits -------------------------------------------------------------------------------------------

    async def ask(self, request: PermitRequest) -> PermitReply:
        """Ask the store for a permit, until it can be reached."""
        if not self._keeping.is_started:
            self._keeping.start()
        return await insist(self._store.take_permit, request)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Somebody asks, and takes the place in line that the reply gives, before it is left."""
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                self._missed.clear()

    def took(self, permit: Permit, reply: PermitReply) -> None:
        """A call has its permit."""
        self._held.add(permit)
        self._tell(reply.next)

    def stand_in_line(self, reply: PermitReply, request: PermitRequest) -> asyncio.Future[None]:
        """Stand in the line that a reply names. The future is done when it may be one's turn; cancel it to leave."""
        counter, session_id = reply.waits_for, request.session_id
        assert counter is not None
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault(counter, _Line())
        waiter = _Waiter((reply.rank, request.ticket), loop.create_future())
        was_empty = not line.waiters
        line.waiters.append(waiter)
        self.waiting[session_id] += 1
        waiter.turn.add_done_callback(lambda _: self._left(counter, line, waiter, session_id))
        again_at = loop.time() + min(AGAIN_S, AGAIN_S if reply.again_ms is None else reply.again_ms / 1000)
        if was_empty or again_at < line.again_at:
            line.again_at = again_at
            self._look_at_lines()
        if counter in self._missed:
            self._missed.discard(counter)
            waiter.turn.set_result(None)
        self.on_wait()
        return waiter.turn

    def _left(self, counter: str, line: _Line, waiter: _Waiter, session_id: str) -> None:
        """Somebody does not stand in a line any more."""
        line.waiters.remove(waiter)
        self.waiting[session_id] -= 1
        if not self.waiting[session_id]:
            del self.waiting[session_id]
        if not line.waiters:
            self._lines.pop(counter, None)
        if len(line.waiters) == MIN_CROWD // 2:
            self.on_room()

    def give_back(self, permit: Permit, ticket: str, asking: asyncio.Task[PermitReply]) -> asyncio.Task[None]:
        """Give back a permit once the store has replied to who asked for it, and wake whoever is next."""
        self._held.discard(permit)
        self._idle_since = asyncio.get_running_loop().time()
        task = asyncio.get_running_loop().create_task(self._give_back(ticket, asking))
        self._giving.add(task)
        task.add_done_callback(self._giving.discard)
        return task

    async def _give_back(self, ticket: str, asking: asyncio.Task[PermitReply]) -> None:
        await asyncio.gather(asking, return_exceptions=True)
        with contextlib.suppress(HoldfastError):  # then its lease ends it
            self._tell(await insist(self._store.give_back_permit, ticket, self._owner))

    def _tell(self, turns: Sequence[PermitTurn]) -> None:
        """Wake those whose turn it is, here or elsewhere."""
        elsewhere = [turn for turn in turns if turn.owner != self._owner]
        if elsewhere:
            self._store.publish(TOPIC, msgspec.json.encode(elsewhere))
        for turn in turns:
            if turn.owner == self._owner:
                self._call(turn.counter)

    def _call(self, counter: str) -> None:
        """Let the next one in a line ask; if there is none, perhaps one that is being refused just now."""
        line = self._lines.get(counter)
        if (line is None or not line.call_next()) and self._asking:
            self._missed.add(counter)

    async def close(self) -> None:
        """Give back everything, so that others need not wait for the leases to end."""
        await self._keeping.stop()
        was_used = self._idle_since or self._held or self._lines
        for task in list(self._giving):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if was_used:
            with contextlib.suppress(HoldfastError):
                self._tell(await self._store.release_permits(self._owner))

    # --- the standing task ---------------------------------------------------------------------------------

    def _look_at_lines(self) -> None:
        """Let the standing task see that something is due earlier."""
        if self._news is not None:
            self._news.put(b"")

    async def _keep(self) -> None:
        """Renew what this process has, and call those whose turn it is, until it has had nothing for a while."""
        now = asyncio.get_running_loop().time
        renew_s = self._lease_ms / 3000
        renews_at = now() + renew_s
        self._idle_since = now()
        with self._store.listen(TOPIC) as news:
            self._news = news
            try:
                while self._held or self._lines or self._giving or now() < self._idle_since + IDLE_S:
                    due = min([renews_at, *(line.again_at for line in self._lines.values())])
                    for item in await news.read(max(0.0, due - now())):
                        self._hear(item)
                    if now() >= renews_at:
                        renews_at = now() + renew_s
                        await self._store.renew_permits(self._owner, self._lease_ms)
                    for line in self._lines.values():
                        if now() >= line.again_at:
                            line.again_at = now() + AGAIN_S
                            line.call_next()
            finally:
                self._news = None

    def _hear(self, item: object) -> None:
        if not isinstance(item, bytes):  # some were lost
            for counter in list(self._lines):
                self._call(counter)
        elif item:
            with contextlib.suppress(msgspec.DecodeError):
                for turn in msgspec.json.decode(item, type=list[PermitTurn]):
                    if turn.owner == self._owner:
                        self._call(turn.counter)


def recorded_models(session: Session, query: LlmQuery) -> Sequence[str]:
    """The model that a query names, or that its session was assigned to."""
    named = query.options.get("model")
    if isinstance(named, str):
        return (named,)
    return () if session.llm in (ANY, HOST) else (session.llm,)
