"""What a session says to its host when its children ask, too; and which of them the host's answers go to.

A host knows the session it has started. A query of a child is shown to it as one of that session, under the id of the
child's query, a dot, and the id of the query (`q-3.q-0`; deeper down `q-3.q-1.q-0`), and is answered under that id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import msgspec

from holdfast.core.decide import FeedMessage, GivenAnswer
from holdfast.core.errors import (
    AnswerConflictError,
    FeedError,
    HoldfastError,
    NoPendingQueryError,
    QueryIdRequiredError,
    SessionNotFoundError,
    StaleQueryError,
    UnknownQueryError,
)
from holdfast.core.events import AcceptedEvent, Event, PausedEvent, RunningEvent, SentEvent
from holdfast.core.ids import child_session_id
from holdfast.core.needs import missing_needs
from holdfast.core.queries import ChildQuery, Query, TimerQuery
from holdfast.core.state import Session, State
from holdfast.engine.callers import CallerWatch
from holdfast.engine.engine import Engine
from holdfast.engine.query_paths import is_query_path, query_path, query_under
from holdfast.engine.replies import decided
from holdfast.store.environment import Clock

LOOK_S = 1.0
"""Seconds after which children that go on elsewhere are looked at although nothing was heard of them: a process that
has died says nothing."""


async def until_needed(engine: Engine, session_id: str, event: Event, wait: float | None) -> Event:
    """What a session says once it or a child needs a host and none of them continues by itself any more.

    Or once it has ended, or `wait` seconds are over.
    """
    match event:
        case PausedEvent() | AcceptedEvent():
            waits = engine.waits_for_child(session_id)
            is_needed = not (await _waits_for_children(engine, session_id) if waits is None else waits)
        case RunningEvent(waits_for=kinds, why=why):
            is_needed = wait == 0 and "child" not in kinds and not why
        case _:
            is_needed = True  # it has ended
    if is_needed:
        return event
    with View(engine, session_id) as view:
        return await view.settled(_Deadline(engine.owner.clock, wait))


async def feed(engine: Engine, session_id: str, message: FeedMessage, wait: float | None) -> Event:
    """Bring answers to the session and the children that they are for, and say what the session says to that.

    All answers are checked before any is delivered. Each session takes its own all together; should the process die
    between two sessions, feeding the same again delivers the rest.
    """
    waits = engine.waits_for_child(session_id)
    if waits is None:
        waits = await _waits_for_children(engine, session_id)
    if not waits and not _is_routed(message):
        event = await engine.deliver(session_id, message, wait)
        if type(event) is SentEvent or (type(event) is PausedEvent and engine.waits_for_child(session_id) is False):
            return event
        return await until_needed(engine, session_id, event, wait)
    deadline = _Deadline(engine.owner.clock, wait)
    with View(engine, session_id) as view:
        await view.look()
        opened = view.opened()
        parts = _routed(view, message)
        is_replay = await _check(engine, session_id, parts, list(opened))
        if list(parts) == [""]:
            event = await engine.deliver(session_id, parts[""], wait)
            if event.replayed or isinstance(event, SentEvent):
                return event
        elif not is_replay and (sent := await _deliver(engine, session_id, parts, deadline)) is not None:
            return sent
        if is_replay:
            return msgspec.structs.replace(await view.settled(deadline), replayed=True)
        view.answered = {
            query_path(below, given.query_id or "") for below, part in parts.items() for given in part.answers
        }
        return await view.settled(deadline, opened.keys() - view.answered)


# --- looking ------------------------------------------------------------------------------------------


@dataclass
class _Kin:
    """A session of a view, as it was when last looked at."""

    event: Event
    state: State = State.ABSENT
    children: list[ChildQuery] = field(default_factory=list)
    is_moving: bool = False
    """Whether it continues by itself, or is about to. A timer may take any time, and does not count."""
    is_stuck: bool = False
    """Whether it could continue, but not here, and nobody else continues it."""


class View:
    """A session and the children it waits for, of any depth, as a host sees them. It watches them while it is open."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        self._engine = engine
        self._root = session_id
        self.answered: set[str] = set()
        """Queries whose answers were delivered. Whoever owns the session may not have taken them yet."""
        self._kin: dict[str, _Kin] = {}
        self._watches: dict[str, CallerWatch] = {}
        self._waits: dict[str, asyncio.Task[bool]] = {}
        self._changed: set[str] = set()
        self._taken_up: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for session_id in list(self._watches):
            self._forget(session_id)

    async def settled(self, deadline: _Deadline, known: Collection[str] = ()) -> Event:
        """Wait until a host is needed and nothing continues by itself, the session has ended, or time is over.

        While only queries in `known` are open, nothing new was asked since those were shown: answers were accepted.
        """
        self._changed = set(self._kin)  # whatever the caller has done meanwhile
        while True:
            await self.look()
            if self._is_settled() or deadline.is_over:
                return self._event(known)
            await self._wait(deadline.left)

    async def look(self) -> None:
        """See how the session and its children are. Those of which nothing was heard are as they were."""
        changed, self._changed = self._changed, set()
        kept = {session_id: kin for session_id, kin in self._kin.items() if session_id not in changed}
        self._kin = {}
        await self._visit(self._root, None, kept)
        for gone in self._watches.keys() - self._kin.keys():
            self._forget(gone)

    async def changed(self) -> None:
        """Wait until something may have changed since the last look."""
        await self._wait(None)

    def opened(self) -> dict[str, Query]:
        """The queries that wait for a host, by the ids that they have for it, in the order in which they were asked."""
        return {query.id: query for query in self._paused(self._root, "").queries}

    @property
    def root(self) -> Event:
        """What the session says by itself."""
        return self._kin[self._root].event

    @property
    def state(self) -> State:
        """Where the session is in its life."""
        return self._kin[self._root].state

    # --- what is shown -----------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        if not isinstance(self.root, (PausedEvent, RunningEvent)):
            return True
        if any(kin.is_moving for kin in self._kin.values()):
            return False
        return bool(self.opened()) or any(kin.is_stuck for kin in self._kin.values())

    def _event(self, known: Collection[str]) -> Event:
        if not isinstance(self.root, (PausedEvent, RunningEvent)):
            return self.root
        paused = self._paused(self._root, "")
        asked = [query.id for query in paused.queries]
        if asked:
            is_known = all(each in known for each in asked)
            return AcceptedEvent(session_id=self._root, remaining=asked) if is_known else paused
        whys = [
            kin.event.why if session_id == self._root else f"child session {session_id}: {kin.event.why}"
            for session_id, kin in self._kin.items()
            if isinstance(kin.event, RunningEvent) and kin.event.why
        ]
        assert isinstance(self.root, RunningEvent)
        return msgspec.structs.replace(self.root, why=whys[0]) if whys else self.root

    def _paused(self, session_id: str, below: str) -> PausedEvent:
        """What a session and its children ask, as queries of the session at the root; `below` is the way from there."""
        kin = self._kin[session_id]
        own = kin.event if isinstance(kin.event, PausedEvent) else PausedEvent(session_id=session_id, queries=[])
        asked: list[tuple[int, PausedEvent]] = []
        for query in own.queries:
            if (path := query_path(below, query.id)) in self.answered:
                continue
            due = {path: own.due_at[query.id]} if query.id in own.due_at else {}
            shown = PausedEvent(session_id=self._root, queries=[query_under(query, path)], due_at=due)
            asked.append((_number(query), shown))
        for child in kin.children:
            inner = self._paused(child_session_id(session_id, child.id), query_path(below, child.id))
            asked.append((_number(child), inner))
        events = [event for _, event in sorted(asked, key=lambda each: each[0])]
        return PausedEvent(
            session_id=self._root,
            queries=[query for event in events for query in event.queries],
            due_at={path: due for event in events for path, due in event.due_at.items()},
        )

    # --- how it is found out -----------------------------------------------------------------------

    async def _visit(self, session_id: str, asked: _Asked | None, kept: Mapping[str, _Kin]) -> None:
        if session_id not in self._watches:
            self._watches[session_id] = self._engine.watch(session_id)
        kin = self._kin[session_id] = kept.get(session_id) or await self._read(session_id, asked)
        for query in kin.children:
            await self._visit(child_session_id(session_id, query.id), (session_id, query), kept)

    async def _read(self, session_id: str, asked: _Asked | None) -> _Kin:
        try:
            kin = await self._look_at(session_id, is_root=asked is None)
        except SessionNotFoundError:
            if asked is None:
                raise
            kin = _Kin(RunningEvent(session_id=session_id), is_moving=True)
        except HoldfastError as error:
            if asked is None:
                raise
            return _Kin(RunningEvent(session_id=session_id, why=str(error)), is_stuck=True)
        if asked is not None and kin.is_moving and session_id not in self._taken_up:
            # A process that died may have left it as it is. That is looked after once, and again where that is seen.
            self._taken_up.add(session_id)
            self._engine.children.take_up(*asked)
        return kin

    async def _look_at(self, session_id: str, *, is_root: bool) -> _Kin:
        engine = self._engine
        live = engine.live(session_id)
        async with live.lock:
            session = await live.refresh()
            event, state, is_idle = live.event(), session.state, live.is_stuck
            pending = [each.query for each in session.pending.values()]
            needs = missing_needs(session, engine.owner.offers)
        children = [query for query in pending if isinstance(query, ChildQuery)]
        kin = _Kin(event, state, children)
        if state.is_terminal:
            kin.is_moving = not is_root  # its parent is about to get its result
        elif state is State.PAUSED:
            is_driven = any(not isinstance(query, (ChildQuery, TimerQuery)) for query in pending)
            kin.is_moving = is_driven and not isinstance(event, PausedEvent)
            if kin.is_moving and needs and not await self._is_in_hand(session):
                kin.is_moving, kin.is_stuck = False, True
        elif state is State.IMPORTED:
            kin.is_stuck = True
        elif not is_idle or await self._is_in_hand(session):
            kin.is_moving = True
        else:
            why = engine.children.stuck.get(session_id, "")
            kin.is_stuck = is_root or bool(why or needs)
            kin.is_moving = not kin.is_stuck
            if kin.is_moving:
                self._taken_up.discard(session_id)
            elif why and isinstance(event, RunningEvent):
                kin.event = msgspec.structs.replace(event, why=why)
        if kin.is_moving and isinstance(event, RunningEvent):
            kin.event = msgspec.structs.replace(event, why="")  # somebody else has what is missing here
        return kin

    async def _is_in_hand(self, session: Session) -> bool:
        """Whether somebody owns a session, or has written to it since it was read: then it is about to be read anew."""
        row = await self._engine.owner.store.session(session.id)
        return row.owner is not None or row.position != session.position

    async def _wait(self, left: float | None) -> None:
        """Wait until something was heard of a session; or, where others than the first go on, for a while."""
        for session_id, watch in self._watches.items():
            if session_id not in self._waits:
                self._waits[session_id] = asyncio.ensure_future(watch.woken())
        pause = None if len(self._kin) == 1 else LOOK_S
        timeout = min((seconds for seconds in (left, pause) if seconds is not None), default=None)
        async with self._engine.owner.callers.waiting(self._root):
            done, _ = await asyncio.wait(self._waits.values(), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        self._changed = {session_id for session_id, wait in self._waits.items() if wait in done or not done}
        for session_id in [each for each, wait in self._waits.items() if wait in done]:
            del self._waits[session_id]

    def _forget(self, session_id: str) -> None:
        with self._watches.pop(session_id):
            if (wait := self._waits.pop(session_id, None)) is not None:
                wait.cancel()


_Asked: TypeAlias = tuple[str, ChildQuery]
"""The parent of a session, and the query that the session answers."""


class _Deadline:
    """When a wait is over."""

    def __init__(self, clock: Clock, wait: float | None) -> None:
        self._clock = clock
        self._at = None if wait is None else clock.monotonic() + wait

    @property
    def left(self) -> float | None:
        return None if self._at is None else max(0.0, self._at - self._clock.monotonic())

    @property
    def is_over(self) -> bool:
        return self._at is not None and self._clock.monotonic() >= self._at


# --- answers ------------------------------------------------------------------------------------------


async def _waits_for_children(engine: Engine, session_id: str) -> bool:
    """Whether a session that is not at hand waits for children, as its row says."""
    return "child" in (await engine.owner.store.session(session_id)).summary.waiting_for.split(",")


def _is_routed(message: FeedMessage) -> bool:
    """Whether an answer is for a child."""
    for given in message.answers:
        asked = given.query_id
        if asked is not None and "." in asked:
            return True
    return False


def _routed(view: View, message: FeedMessage) -> dict[str, FeedMessage]:
    """The answers for each session, by the way to it from the root; its own under the empty one."""
    parts: dict[str, list[GivenAnswer]] = {}
    for given in message.answers:
        path = given.query_id if given.query_id is not None else _sole(view)
        below, _, asked = path.rpartition(".") if is_query_path(path) else ("", "", path)
        parts.setdefault(below, []).append(msgspec.structs.replace(given, query_id=asked))
    return {below: FeedMessage(answers, message.by) for below, answers in parts.items()} or {"": message}


def _sole(view: View) -> str:
    match list(view.opened()):
        case [only]:
            return only
        case []:
            raise NoPendingQueryError(view.root.session_id, view.state)
        case several:
            raise QueryIdRequiredError(view.root.session_id, several)


async def _check(engine: Engine, root: str, parts: Mapping[str, FeedMessage], opened: list[str]) -> bool:
    """Raise if any of these answers would be refused; returns whether all of them had been taken before."""
    is_replay = True
    for below, part in parts.items():
        session_id = query_path(root, below)
        live = engine.live(session_id)
        try:
            async with live.lock:
                session = await live.refresh()
                if below and not _is_child(session):
                    raise SessionNotFoundError(session_id)
                is_replay &= (await decided(engine.owner, session, part, engine.owner.now())).is_replay
        except SessionNotFoundError:
            if not below:
                raise
            raise UnknownQueryError(root, query_path(below, part.answers[0].query_id or ""), opened) from None
        except FeedError as error:
            raise _as_host_sees(error, root, below, opened) from None
    return is_replay


def _is_child(session: Session) -> bool:
    parent = session.started.parent if session.started else None
    return parent is not None and child_session_id(parent.session_id, parent.query_id) == session.id


async def _deliver(
    engine: Engine, root: str, parts: Mapping[str, FeedMessage], deadline: _Deadline
) -> SentEvent | None:
    """Deliver answers that have been checked; says so if some wait for a process that has the program."""
    sent: SentEvent | None = None
    is_first = True
    for below, part in parts.items():
        try:
            event = await engine.deliver(query_path(root, below), part, deadline.left)
            if isinstance(event, SentEvent) and event.program:
                sent = msgspec.structs.replace(event, session_id=root)
        except FeedError as error:
            # What was delivered before may have led to it that nobody waits for this any more.
            if is_first or not isinstance(error, StaleQueryError):
                raise _as_host_sees(error, root, below, []) from None
        is_first = False
    return sent


def _as_host_sees(error: FeedError, root: str, below: str, opened: list[str]) -> FeedError:
    """The error about a session, as one about the session that the host knows."""
    match error:
        case UnknownQueryError(query_id=asked):
            return UnknownQueryError(root, query_path(below, asked), opened)
        case StaleQueryError(query_id=asked, why=why):
            return StaleQueryError(root, query_path(below, asked), f"of the child, {why}" if below else why)
        case AnswerConflictError(query_id=asked, recorded=recorded, given=given):
            return AnswerConflictError(root, query_path(below, asked), recorded, given)
        case _:
            return error


def _number(query: Query) -> int:
    return int(query.id.removeprefix("q-"))
