"""`OwnerEnds`: when a session ends, its processes are cancelled or go on without it, as their terms say.

The OS process that ends a session tells its processes at once. If that dies in between, or the session is deleted, a
look at all processes finds those whose owner is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from holdfast.agent.processes.machine import KIND, OwnerEndedMessage
from holdfast.core.errors import HoldfastError, SessionNotFoundError
from holdfast.core.state import Session, State
from holdfast.store.session_rows import SessionFilter

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

LOOK_S = 10.0
"""Seconds between looks for processes whose owner is gone: only a death or a deletion makes them necessary."""

_ALIVE = [State.RUNNING, State.PAUSED]


class OwnerEnds:
    """Tells the processes of the sessions of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._told: set[str] = set()
        """Processes that were told here that their owner is gone, and went on."""
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look after the processes of the services that are served here, until the engine is closed."""
        self._engine.owner.on_end.append(self._tell_processes)
        self._looking = self._engine.owner.spawn(self._run())

    def _tell_processes(self, session: Session) -> None:
        if session.program_kind != KIND:
            self._engine.owner.spawn(self._tell_all(session.id, f"its owner '{session.id}' is {session.state}"))

    async def look(self) -> None:
        """Find processes whose owner is gone, and tell them."""
        services = self._engine.owner.offers.services
        where = SessionFilter(program=KIND, states=_ALIVE, children=True, services=services)
        rows = await self._engine.owner.store.all_sessions(where)
        alive = {row.session_id for row in rows}
        self._told &= alive
        owners: dict[str, str | None] = {}
        for row in rows:
            owner = row.summary.parent
            if owner is None or row.session_id in self._told or row.summary.program_kind != KIND:
                continue
            if owner not in owners:
                owners[owner] = await self._why_gone(owner)
            if (why := owners[owner]) is not None:
                await self._tell(row.session_id, why)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(HoldfastError):  # the upkeep says what is wrong with the store
                await self.look()

    async def _why_gone(self, owner: str) -> str | None:
        try:
            state = (await self._engine.owner.store.session(owner)).summary.state
        except SessionNotFoundError:
            return f"its owner '{owner}' is not there any more"
        return f"its owner '{owner}' is {state}" if state.is_terminal else None

    async def _tell_all(self, owner: str, why: str) -> None:
        with contextlib.suppress(HoldfastError):  # found again by the next look
            where = SessionFilter(program=KIND, parent=owner, states=_ALIVE)
            for row in await self._engine.owner.store.all_sessions(where):
                await self._tell(row.session_id, why)

    async def _tell(self, process: str, why: str) -> None:
        with contextlib.suppress(HoldfastError):
            await self._engine.deliver(process, OwnerEndedMessage(why))
            self._told.add(process)
