"""The worker: begins turns with what waits in the inboxes of agents, up to a number of sessions at a time.

Sessions wait in a queue. One that has had its turn and has more to do goes to the end of it, so none waits for ever
behind a busy one. Turns that take only a moment are had several at a time: else the way to and from the queue, and
through the store to other workers, would cost more than they do. A priority moves a session ahead by some seconds for
each step, as with the limits of a fleet. Turns that wait for such a limit take no room here, and once many of them wait
for the same, no more begin that would.

Who of several processes works a session is decided by whose commit comes first, as always.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from holdfast.agent.inbox_drains import InboxDrains
from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.inbox import INBOX
from holdfast.core.labels import priority_of
from holdfast.core.needs import parse_needs
from holdfast.core.state import Session
from holdfast.engine.callers import CallerWatch
from holdfast.engine.drains import DrainRequest, hear_of_drains
from holdfast.engine.errors import RuntimeClosedError, StaleError, WorkerExistsError
from holdfast.engine.work_report import WorkReport
from holdfast.store.errors import MessageTakenError
from holdfast.store.permits import rank_of
from holdfast.store.upkeep import OpenSession

if TYPE_CHECKING:
    from holdfast.engine.holdfast import Holdfast

DEFAULT_TURNS = 16
"""Turns that a worker has under way at once: as many as a driver makes model calls at once."""

LOOK_S = 10.0
"""Seconds between looks at the store if nothing is heard from it: a notification may be lost with a connection."""

LOOK_ROWS = 200
"""Sessions that one look asks for beside those that are known: more than a worker begins at once."""

AHEAD = 2
"""How many times as many sessions wait here for their turns as can be under way, if others could have them as well."""

QUIET_S = 0.02
"""The least seconds between looks: soon enough for anyone who waits, and seldom enough to cost little."""

SHARE = 2
"""After a look, the worker rests this many times as long as it took: in a store with many sessions it takes long."""

FRESH_S = 0.25
"""Seconds after a look for which those that it found are taken up without another one: others take them as well."""

SLICE_S = 1.0
"""Seconds from the beginning of its turn for which a session may go on with the next ones while others wait."""

STAY = 10
"""A session may go on for this many times as long as it took to get it here, if that is longer."""

PASSED_OVER_S = 10.0
"""Seconds for which a session that needs what is not here is not looked at again, unless something happens in it."""

DRAIN_S = 30.0
"""Seconds that turns under way have to end when a worker is stopped. After that they are left to others."""


class _Call(NamedTuple):
    """A session is looked at, because it has its turn now."""

    task: asyncio.Task[None]
    since: float
    """When that began, on the monotonic clock."""


class Worker:
    """Drains the inboxes of a store: `async with Worker(holdfast): …`, or `await worker.run()` until it is stopped."""

    def __init__(self, holdfast: Holdfast, turns: int = DEFAULT_TURNS, drain_s: float = DRAIN_S) -> None:
        if turns < 1:
            raise ValueError(f"a worker needs room for at least one turn, got {turns}")
        self._engine = holdfast.engine
        self._owner = self._engine.owner
        self._dispatch = holdfast.upkeep.dispatch
        self._drains = InboxDrains.on(self._engine)
        self._turns = turns
        self._drain_s = drain_s
        self._line: dict[str, int] = {}
        """Sessions that have something to do, with their ranks: the least is the next."""
        self._has_priorities = False
        """Whether some of the sessions that were found last have a priority."""
        self._crowded: dict[str, float] = {}
        """Sessions whose turns would only wait for a limit of the fleet, and when that was found."""
        self._called: dict[str, _Call] = {}
        """Sessions whose turn it is: they are being looked at."""
        self.active: dict[str, str | None] = {}
        """Sessions with a turn that is under way here, or about to be; with that turn, if it is known."""
        self._slices: dict[str, float] = {}
        """Until when those of them that have begun a turn may begin more, although others wait."""
        self._passed_over: dict[str, tuple[int, float]] = {}
        """Sessions that are not served here: at which position, and when that was found."""
        self._heard = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._is_over = asyncio.Event()
        self._has_news = True
        """Whether something may have happened in the store since the last look."""
        self._stopping = False
        self._running: asyncio.Task[None] | None = None
        self.ends_process = False
        """Whether its process ends with it: then calls of strategies have the same time to end as turns."""
        self.on_drain: Callable[[DrainRequest], None] = lambda request: None
        """Called when an operator has asked for the end of this worker."""
        self.begun = 0
        """How many turns were begun here with what waited in inboxes."""

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.run())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        assert self._running is not None
        await self._running

    async def run(self) -> None:
        """Work until `stop` is called, and then until the turns under way are over or their time is up.

        Raises `RuntimeClosedError` if the runtime is closed before.
        """
        if self._drains.worker is not None:
            raise WorkerExistsError(self._owner.store.url)
        self._drains.worker = self
        self._owner.work, self._owner.is_in_line = self.report, self.is_in_line
        permits = self._owner.permits
        permits.on_room, permits.on_wait = self._look_at_crowded, self._heard.set
        self._owner.on_work_changed()
        try:
            with self._engine.watch(None) as changes:
                hearing = self._owner.supervisor.task("hearing of inboxes", partial(self._hear, changes))
                working = self._owner.supervisor.task("working through inboxes", self._work)
                draining = self._owner.supervisor.task("hearing of drains", self._hear_of_drains)
                hearing.start()
                draining.start()
                working.start()
                try:
                    await working.until_over()
                finally:
                    await working.stop()
                    await draining.stop()
                    await hearing.stop()
            self._owner.callers.check_open(None)
            await self._drain()
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
            self._drains.worker = self._owner.work = self._owner.is_in_line = None
            permits.on_room = permits.on_wait = lambda: None
            self._owner.on_work_changed()

    def stop(self) -> None:
        """Begin no more turns; if the process ends with this worker, leave to others what strategies ask from now."""
        self._stopping, self._owner.offers.is_draining = True, self.ends_process
        self._dispatch.refuse()
        self._heard.set()
        self._owner.on_work_changed()

    async def _hear_of_drains(self) -> None:
        await hear_of_drains(self._owner.store, self._owner.name, self._be_drained)

    def _be_drained(self, request: DrainRequest) -> None:
        if not self._stopping:
            self._drain_s = self._drain_s if request.within_s is None else request.within_s
            self.stop()
            self.on_drain(request)

    def report(self) -> WorkReport:
        """How much it does, and whether it is about to end."""
        return WorkReport(len(self.active), self._turns, self._stopping)

    def is_in_line(self, session_id: str) -> bool:
        """Whether a turn of a session is under way here, or about to be."""
        return session_id in self.active or (session_id in self._line and not self._stopping)

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    # --- for the engine ----------------------------------------------------------------------------

    def admits(self, session: Session) -> bool:
        """Whether a turn of a session may begin now; if not, the session is queued, or left for later."""
        session_id = session.id
        if self._stopping:
            return False
        if self._owner.permits.is_crowded(session):
            self._crowded[session_id] = self._owner.clock.monotonic()
            return False
        if session_id in self.active:
            is_admitted = session_id in self._called or not self._line or self._may_go_on(session_id)
        else:
            is_admitted = self._has_room and not self._line
        if is_admitted:
            now, call = self._owner.clock.monotonic(), self._called.pop(session_id, None)
            self.active.setdefault(session_id, None)
            self._slices.setdefault(session_id, now + max(SLICE_S, STAY * (now - call.since) if call else 0.0))
        else:
            self._enqueue(session_id, priority_of(session.labels))
        return is_admitted

    def _may_go_on(self, session_id: str) -> bool:
        """Whether a session whose turn is over may begin another one although others wait."""
        return self._owner.clock.monotonic() < self._slices.get(session_id, 0.0) and not self._has_priorities

    def _enqueue(self, session_id: str, priority: int) -> None:
        """Let a session wait for its turn, behind those that came before it."""
        if session_id not in self._line:
            self._line[session_id] = rank_of(self._owner.now(), priority)

    def saw(self, session: Session, *, under_way: bool) -> None:
        """A commit of a session was made here."""
        if self._stopping:
            self._is_over.set()
        agent = agent_fold(session)
        if agent.turn is not None and under_way:
            self.active[session.id] = agent.turn
            return
        has_more = agent.turn is None and bool(agent.inbox.waiting)
        if has_more and self._is_ready(session.next_due()):
            self._enqueue(session.id, priority_of(session.labels))
        self.release(session.id)

    def release(self, session_id: str) -> None:
        """Note that no turn of a session is under way here."""
        if session_id in self.active and session_id not in self._called:
            del self.active[session_id]
            self._slices.pop(session_id, None)
            self._is_over.set()
            self._heard.set()

    # --- working -----------------------------------------------------------------------------------

    @property
    def _has_room(self) -> bool:
        return self._at_work < self._turns

    @property
    def _at_work(self) -> int:
        """How many turns are under way here and do not wait for a limit of the fleet."""
        waiting = self._owner.permits.waiting
        return sum(session_id not in waiting for session_id in self.active) if waiting else len(self.active)

    @property
    def _has_calls(self) -> bool:
        """Whether calls are under way in this process that do not wait for a limit of the fleet."""
        return any(session_id not in self._owner.permits.waiting for session_id in self._engine.under_way())

    def _look_at_crowded(self) -> None:
        """There are few who wait for a limit by now: some of those that were left for later may begin."""
        for session_id in list(self._crowded)[:LOOK_ROWS]:
            del self._crowded[session_id]
        self._has_news = True
        self._heard.set()

    def _is_ready(self, due: int | None) -> bool:
        return due is None or due <= self._owner.now()

    async def _hear(self, changes: CallerWatch) -> None:
        try:
            while True:
                await changes.changed()
                self._has_news = True
                self._heard.set()
        except RuntimeClosedError:
            self.stop()

    async def _work(self) -> None:
        next_look = stale_from = 0.0
        while not self._stopping:
            began = self._owner.clock.monotonic()
            has_place = len(self._line) < self._turns or self._has_priorities or began >= stale_from
            wanted = self._has_room and has_place and not self._dispatch.is_serving
            if wanted and began >= next_look:
                self._has_news = False
                await self._look()
                ended = self._owner.clock.monotonic()
                next_look, stale_from = ended + max(QUIET_S, SHARE * (ended - began)), ended + FRESH_S
            self._fill()
            wait = max(0.0, next_look - self._owner.clock.monotonic()) if self._has_news and wanted else LOOK_S
            self._wake_in(wait)
            await self._heard.wait()
            self._heard.clear()

    def _wake_in(self, wait_s: float) -> None:
        """Look around again after some seconds, or sooner: an alarm that is set already is left if it comes first."""
        loop = asyncio.get_running_loop()
        if self._alarm is not None and loop.time() < self._alarm.when() <= loop.time() + wait_s:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = loop.call_later(wait_s, self._heard.set)

    async def _look(self) -> None:
        """Find sessions that have something to do and no owner."""
        now = self._owner.clock.monotonic()
        self._passed_over = {each: at for each, at in self._passed_over.items() if now - at[1] < PASSED_OVER_S}
        self._crowded = {each: at for each, at in self._crowded.items() if now - at < PASSED_OVER_S}
        store, services = self._owner.store, self._owner.offers.services
        in_line, is_all = dict(self._line), True
        ready: list[tuple[OpenSession, int]] = []
        for needs in await store.open_needs(services):
            row_needs = parse_needs(needs)
            if INBOX in row_needs.words and all(map(self._owner.offers.may_meet, row_needs.named)):
                limit = LOOK_ROWS + len(self._passed_over) + len(self._crowded) + len(self.active)
                found = await store.open_sessions(needs, services, limit=limit)
                is_all &= len(found) < limit
                for each in found:
                    in_line.pop(each.session_id, None)
                ready += [(each, row_needs.priority) for each in found if self._wants(each)]
        if is_all:
            self._strike_out(in_line)
        self._has_priorities = any(priority for _, priority in ready)
        self._owner.random.shuffle(ready)  # other workers find the same ones, and should not all begin with the same
        some = ready if self._has_priorities else self._some_of(ready)
        for each, priority in some:
            self._enqueue(each.session_id, priority)
        self._has_news |= len(some) < len(ready)  # the others are looked for once there is place for them

    def _strike_out(self, taken: dict[str, int]) -> None:
        """Let sessions wait no longer that others have taken meanwhile."""
        for session_id in taken.keys() - self._engine.held_sessions():
            if self._line.get(session_id) == taken[session_id]:
                del self._line[session_id]

    def _some_of(self, ready: list[tuple[OpenSession, int]]) -> list[tuple[OpenSession, int]]:
        """As many as will begin soon: until then, other workers may take them.

        Up to half of them are those that this process had last, and need not be read again.
        """
        room = max(0, AHEAD * self._turns - len(self._line))
        own = [each for each in ready if self._is_at_hand(each[0])][: room // 2]
        return own + [each for each in ready if each not in own][: room - len(own)]

    def _is_at_hand(self, found: OpenSession) -> bool:
        known = self._engine.at_hand(found.session_id)
        return known is not None and known.position == found.position

    def _wants(self, found: OpenSession) -> bool:
        position, _ = self._passed_over.get(found.session_id, (0, 0.0))
        left = found.session_id in self.active or found.session_id in self._crowded
        return not left and position != found.position

    def _fill(self) -> None:
        """Take sessions from the queue, as long as there is room."""
        while self._line and self._has_room:
            session_id = min(self._line, key=self._line.__getitem__)
            del self._line[session_id]
            if session_id not in self.active:
                self.active[session_id] = None
                task = self._owner.spawn(self._attend(session_id))
                self._called[session_id] = _Call(task, self._owner.clock.monotonic())

    async def _attend(self, session_id: str) -> None:
        task = asyncio.current_task()
        try:
            is_served = await self._engine.attend(session_id, insists=False)
            if not is_served and (known := self._engine.at_hand(session_id)) is not None:
                self._passed_over[session_id] = known.position, self._owner.clock.monotonic()
        except (StaleError, MessageTakenError):  # somebody else works it; if not, the next look finds it
            self._has_news = True
        except Exception as error:
            self._owner.report(session_id, error)
        finally:
            if (
                call := self._called.get(session_id)
            ) is not None and call.task is task:  # there was nothing to do, or somebody else was quicker
                del self._called[session_id]
                self.release(session_id)

    async def _drain(self) -> None:
        """Wait for the turns and calls under way, and for what else was brought here.

        Those that wait for a limit of the fleet are left to others.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                while self._at_work or (self.ends_process and self._has_calls):
                    self._is_over.clear()
                    await self._is_over.wait()
                await self._dispatch.until_idle()
