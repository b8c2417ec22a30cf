"""A client of a simulated run: it calls, tries again when the store cannot be reached, and notes what it is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.core.errors import (
    AnswerConflictError,
    HoldfastError,
    NoPendingQueryError,
    SessionNotFoundError,
    StaleQueryError,
    TransitionError,
    UnknownQueryError,
)
from holdfast.core.events import SentEvent
from holdfast.core.queries import HumanQuery
from holdfast.core.values import Json
from holdfast.engine.errors import ContentionError
from holdfast.engine.holdfast import Holdfast
from holdfast.store.errors import MessageConflictError, StoreUnavailableError
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.simulation.history import FeedCall, History, OpenQuery, Sighting, Told
from holdfast.testing.simulation.world import SimulatedProcess

T = TypeVar("T")

REST_S = 0.3
"""Seconds, on average, that a client waits before it tries or looks again."""

RECONNECTS = 0.1
"""Share of the entries after which an observer loses its connection and makes another one."""

_STALE = (StaleQueryError, NoPendingQueryError, UnknownQueryError, TransitionError)


class Client:
    """Someone outside who starts sessions, answers what they ask, and waits for them."""

    def __init__(self, process: SimulatedProcess, hf: Holdfast, history: History) -> None:
        self.process = process
        self.hf = hf
        self.history = history

    def now_s(self) -> float:
        """Virtual time."""
        return self.process.world.loop.time()

    async def rest(self) -> None:
        """Wait a little."""
        await asyncio.sleep(self.process.random.expovariate(1 / REST_S))

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call something until the store can be reached."""
        while True:
            try:
                return await call()
            except (StoreUnavailableError, ContentionError) as error:
                self.process.note(f"tries again: {error}")
                await self.rest()

    async def start(self, program: Any, session_id: str, ctx: Json = None, **options: Any) -> None:
        """Start a session; if an earlier try or life has, this one is told the same."""
        await self.insist(lambda: self.hf.start(program, ctx=ctx, id=session_id, wait=0, **options))
        self.history.started.setdefault(session_id, self.now_s())

    async def feed(self, session_id: str, query_id: str, value: Json, *, wait: float | None = None) -> Told:
        """Answer a query, and write down what comes of it. It may be sent twice, as by a proxy that repeats it."""
        world = self.process.world
        if world.strikes(world.faults.repeats, self.process.name, "answer sent twice", self.process.random):
            told, _ = await asyncio.gather(*(self._feed(session_id, query_id, value, wait) for _ in range(2)))
            return told
        return await self._feed(session_id, query_id, value, wait)

    async def _feed(self, session_id: str, query_id: str, value: Json, wait: float | None) -> Told:
        call = FeedCall(self.process.name, session_id, query_id, value, self.now_s())
        self.history.feeds.append(call)
        try:
            event = await self.hf.feed(session_id, {query_id: value}, wait=wait)
            call.told = "sent" if isinstance(event, SentEvent) else "accepted"
        except (AnswerConflictError, MessageConflictError):
            call.told = "conflict"
        except _STALE:
            call.told = "stale"
        except (StoreUnavailableError, ContentionError):
            call.told = "unknown"
        call.returned_s = self.now_s()
        self.process.note(f"fed {session_id}/{query_id}: {call.told}")
        return call.told

    async def cancel(self, session_id: str) -> None:
        """Cancel a session."""
        try:
            await self.insist(lambda: self.hf.cancel(session_id, "enough"))
            self.history.cancelled[session_id] = self.now_s()
        except TransitionError:
            self.history.ended[session_id] = self.now_s()

    async def open_questions(self, below: str) -> list[tuple[str, str]]:
        """What sessions whose ids begin so ask a person now, as (session, query)."""
        found: list[tuple[str, str]] = []
        where = SessionFilter(waiting_for="human", id_prefix=below)
        for row in await self.insist(lambda: self.hf.store.all_sessions(where)):
            called_s = self.now_s()
            session_id = row.session_id
            try:
                session = await self.insist(lambda: self.hf.session(session_id))  # noqa: B023
            except SessionNotFoundError:
                continue
            for asked, pending in session.pending.items():
                if isinstance(pending.query, HumanQuery):
                    self.history.shown.append(
                        OpenQuery(self.process.name, session_id, asked, called_s, self.now_s()),
                    )
                    found.append((session_id, asked))
        return found

    async def watch(self, session_id: str) -> None:
        """Watch a session until it ends. What was seen outlives this process, as a browser keeps it."""
        seen = self.history.watched.setdefault((self.process.name, session_id), [])
        while True:
            try:
                entries: Any = self.hf.watch(session_id, len(seen))
                async with contextlib.aclosing(entries):
                    async for entry in entries:
                        seen.append(Sighting(self.now_s(), entry.position, entry))
                        if self.process.random.random() < RECONNECTS:
                            break
                    else:
                        return
            except (StoreUnavailableError, SessionNotFoundError):
                await self.rest()

    async def has_ended(self, session_id: str) -> bool:
        """Whether a session is over."""
        try:
            row = await self.insist(lambda: self.hf.store.session(session_id))
        except HoldfastError:
            return True
        return row.summary.state.is_terminal
