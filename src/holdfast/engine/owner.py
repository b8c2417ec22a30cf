"""`Owner`: this OS process as the owner of sessions, with what all live sessions in it work with and share.

Nothing here belongs to one session. What a process gets from outside, the time and chance, comes in as the parts of an
`Environment`, so that a simulation can put its own in their place.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.core.budget import Budget, Price
from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.core.ids import DEFAULT_SERVICE
from holdfast.core.kinds import KindView
from holdfast.core.needs import missing, query_needs, upkeep_needs
from holdfast.core.queries import ChildQuery, Query
from holdfast.core.records import Entry, Program, Record
from holdfast.core.state import Session
from holdfast.core.values import Json
from holdfast.engine.attachments import Attachment
from holdfast.engine.callers import Callers
from holdfast.engine.drivers import MAX_DEATHS, Driver, Drivers
from holdfast.engine.offers import ProcessOffers
from holdfast.engine.permits import FleetPermits
from holdfast.engine.program_kinds import ProgramKinds
from holdfast.engine.seals import Sealer
from holdfast.engine.state_tool import asks_state
from holdfast.engine.work_report import WorkReport
from holdfast.store.contract import Store
from holdfast.store.environment import Environment, SteadyClock
from holdfast.store.supervisor import Supervisor, TaskTrouble

log = logging.getLogger("holdfast.engine")

T = TypeVar("T")

MIN_LEASE_MS = 30
"""The shortest lease. A process that is busy for 10 ms must not lose its sessions for that."""

DISAGREEMENT_MS = 500
"""Milliseconds by which the clock of a process may differ from that of its store. Timers may be early by as much."""

CLOSE_S = 3.0
"""Seconds that effects which cannot be run again have to end when this process lets go of its sessions, and as many
again to clean up when they are cancelled: together less than the ten that service managers wait before they kill."""

SEED_BITS = 53
"""Bits of a session's seed: as many as a Lua or JSON number holds exactly."""

Observer: TypeAlias = Callable[[str, Sequence[Entry]], None]
"""Called with the session and the entries of a commit."""

ViewObserver: TypeAlias = Callable[[KindView, Entry], Callable[[], None] | None]
"""Called with the view of a session and the next entry of it, before that is folded into the view. What it returns is
called after that."""


class ChildStart(msgspec.Struct, frozen=True, kw_only=True):
    """How a child begins, as far as that follows from what it is a child for."""

    program: Program
    ctx: Json = None
    budget: Budget | None = None
    """A budget of its own, beside its share of its parent's."""
    prices: Mapping[str, Price] | None = None
    """None: those of its parent."""


StartAgent: TypeAlias = Callable[[Session, ChildQuery], Awaitable[ChildStart]]
"""How the subagent that a session asks for begins. Raises `HoldfastError` if there is none, or it cannot begin."""

Seam: TypeAlias = Callable[[str], Awaitable[None]]
"""Called at every durable boundary with its name; tests die there."""


class Attendant(Protocol):
    """Something in this process that adds records to sessions by itself, as a worker begins turns of agents."""

    def records(self, session: Session, now: int) -> Sequence[Record]:
        """What it adds to a session that is about to wait, in the same commit."""

    def committed(self, session: Session, *, under_way: bool) -> None:
        """A commit of a session was made here; `under_way` if effects or a step of it are running."""

    def undone(self, session_id: str) -> None:
        """What was to be committed was refused, or given up."""


class Owner:
    """What the live sessions of one OS process share."""

    def __init__(
        self,
        store: Store,
        lease_ms: int,
        environment: Environment,
        *,
        services: Sequence[str] = (DEFAULT_SERVICE,),
        seam: Seam | None = None,
    ) -> None:
        if lease_ms < MIN_LEASE_MS:
            raise InvalidValueError("lease_ms", f"a lease lasts at least {MIN_LEASE_MS} ms, got {lease_ms}")
        self.store = store
        self.lease_ms = lease_ms
        self.clock = environment.clock
        self.now: Callable[[], int] = environment.clock.now
        """The time by which sessions are judged (unix ms): that of the store's clock, where it has one of its own."""
        self._offset_ms = 0
        self._latest_ms = 0
        self.random = environment.random
        self.seam = seam
        self.max_deaths = MAX_DEATHS
        """Processes in a row that may die while they attempt one query."""
        self.takeovers = 0
        """How many sessions of owners that died this process has gone on with, or tried to."""
        self.close_s = CLOSE_S
        self.name = f"{environment.process}.{self.token(4)}"
        self.drivers = Drivers()
        self.sealer = Sealer()
        self.programs = ProgramKinds(store, self.sealer)
        self.offers = ProcessOffers(services, self.programs, self.drivers)
        self.attendants: list[Attendant] = []
        self.on_end: list[Callable[[Session], None]] = []
        """Called with every session that was ended here, as soon as that is durable."""
        self.on_commit: list[Observer] = []
        """Called with every commit that was made here, as soon as it is durable."""
        self.view_observers: dict[str, list[ViewObserver]] = {}
        """Called with every entry of a session that becomes known here, in order, if the session's view is kept."""
        self.keeps_all_views = True
        """Whether views keep everything in memory, or only what their sessions need to go on."""
        self.start_agent: StartAgent | None = None
        """How subagents begin; None if this process has none."""
        self.attachments: dict[type[Any], Callable[[str], Attachment]] = {}
        """How what hangs on a live session is made, by its class."""
        self.on_due: Callable[[str, int], None] | None = None
        """Called with a session that was committed here, and the time (unix ms) at which it has to be looked at."""
        self.on_mail: Callable[[str], None] | None = None
        """Called with a session that a message was left for, which this process does not take."""
        self.work: Callable[[], WorkReport] | None = None
        """What this process works through inboxes with, if it does."""
        self.is_in_line: Callable[[str], bool] | None = None
        """Whether a worker here has a turn of a session to run, or is about to; None if there is no worker."""
        self.on_work_changed: Callable[[], None] = lambda: None
        """Called when a worker begins, or is told to end."""
        self.callers = Callers(store.watch)
        self.supervisor = Supervisor()
        """What keeps the standing tasks of this engine at work."""
        self.permits = FleetPermits(store, self.name, lease_ms, self.supervisor)
        self._background: set[asyncio.Task[Any]] = set()

    def token(self, size: int) -> str:
        """Random hex of so many bytes."""
        return self.random.randbytes(size).hex()

    def observe_view(self, session_id: str, observer: ViewObserver) -> None:
        """Call an observer with the entries of a session from now on."""
        self.view_observers.setdefault(session_id, []).append(observer)

    def ignore_view(self, session_id: str, observer: ViewObserver) -> None:
        """Do not call an observer any more."""
        observers = self.view_observers.get(session_id, [])
        if observer in observers:
            observers.remove(observer)
        if not observers:
            self.view_observers.pop(session_id, None)

    # --- time -----------------------------------------------------------------------------------

    async def agree_on_time(self) -> bool:
        """Take over the time of the store's clock, if ours differs by more than a moment; False if it has none.

        So the due times of all processes on a store mean the same, however wrong the clocks of their machines are.
        """
        if not isinstance(self.clock, SteadyClock):
            return False  # whoever runs the engine on a clock of its own decides what time it is
        before = self.clock.now()
        there = await self.store.server_time()
        if there is None:
            return False
        offset_ms = there - (before + self.clock.now()) // 2
        if abs(offset_ms - self._offset_ms) > DISAGREEMENT_MS:
            log.warning("our clock differs from that of the store by %+.1f s: its time is used", -offset_ms / 1000)
            self._offset_ms = offset_ms
            self.now = self._agreed_now
        return True

    def _agreed_now(self) -> int:
        self._latest_ms = max(self._latest_ms, self.clock.now() + self._offset_ms)
        return self._latest_ms

    # --- background work ---------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something in the background, until this process lets go of its sessions."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def shielded(self, session_id: str, work: Coroutine[Any, Any, T]) -> T:
        """Do something with a session to the end, even if the caller is cancelled; until this process lets go of it.

        It gets a task of its own once it has to wait.
        """
        try:
            waits_for = work.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        rest = _rest_of(work, waits_for)
        rest.send(None)  # a task that is cancelled before its first step runs nothing of what has not begun
        task = asyncio.create_task(rest)
        ended = task.get_loop().create_future()

        def end(done: asyncio.Task[T]) -> None:
            self._background.discard(done)
            if not ended.cancelled():
                ended.set_result(None)
            elif not done.cancelled():
                done.exception()  # nobody else asks for it

        self._background.add(task)
        task.add_done_callback(end)
        await ended
        if task.cancelled():
            self.callers.check_open(session_id)
            if self.callers.is_closed:  # the caller is an effect, and is stopped next: this is no outcome of it
                await asyncio.get_running_loop().create_future()
        return task.result()

    async def stop(self) -> None:
        """Stop what runs in the background."""
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    def report(self, session_id: str, error: BaseException) -> None:
        """Tell the operator of an error that no caller gets. An unforeseen one says where it happened."""
        is_ours = isinstance(error, HoldfastError)
        log.error(
            "session '%s': %s", session_id, error if is_ours else repr(error), exc_info=None if is_ours else error
        )

    def troubles(self) -> list[TaskTrouble]:
        """The standing tasks of this engine and of its store that have failed lately."""
        return [*self.supervisor.troubles(), *self.store.supervisor.troubles()]

    # --- who answers -------------------------------------------------------------------------------

    def driver_of(self, session: Session, query: Query) -> Driver | None:
        """The driver that answers a query here, if one may: what the query needs has to be here as well."""
        if not self.drivers.may_have_effects and query.kind != "tool":
            return None  # there are none but for the runtime's own tools
        driver = self.drivers.find(session.id, query)
        if driver is not None:
            for need in query_needs(session, query):
                if not self.offers.meets(session, need):
                    return None
        return driver

    def drives(self, session: Session, query: Query) -> bool:
        """Whether a query is answered without a host: here, or as its program kind says, by a process that can."""
        kind = query.kind
        if kind in ("timer", "child") or (kind == "tool" and asks_state(query)):
            return True
        if session.kind_fold.query_needs(query):
            return True
        driver = self.driver_of(session, query)
        return driver is not None and driver.recovery != "ask"

    def attends(self, session: Session, query: Query, attempts: int) -> bool:
        """Whether a pending query should be under way here."""
        if isinstance(query, ChildQuery):
            return not missing(session, query_needs(session, query), self.offers)
        driver = self.driver_of(session, query)
        return driver is not None and not (attempts and driver.recovery == "ask")

    def serves(self, session: Session) -> bool:
        """Whether this process serves the service that a session belongs to."""
        return session.started is not None and session.started.service in self.offers.services

    def may_run(self, session: Session) -> bool:
        """Whether the program of a session may be run here, and can be."""
        return not missing(session, upkeep_needs(session), self.offers)


async def _rest_of(work: Coroutine[Any, Any, T], waits_for: Any) -> T:
    """What is left of a coroutine that waits for something. It stops once, at its beginning, until it has a task."""
    return await _resumed(work, waits_for)


@types.coroutine
def _resumed(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    try:
        try:
            yield
        except BaseException as error:
            if waits_for is not None:
                waits_for.cancel()  # as the task would have done, had it come to wait for that
            waits_for = work.throw(error)
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
    except StopIteration as done:
        result: T = done.value
        return result
