"""`FleetDispatch`: what the dispatchers of fleets have in common, whichever engine is underneath.

What an engine is told is the id of a session, and a time. What it brings is that id. It may lose its disk: the sessions
are in the store, and the sweep finds each that has something to do.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Sequence

from holdfast.core.errors import HoldfastError
from holdfast.engine.dispatch import Dispatch
from holdfast.engine.engine import Engine
from holdfast.engine.fleet.commits import CommitNudges
from holdfast.engine.fleet.drive import Drives
from holdfast.engine.fleet.nudges import NudgeQueue
from holdfast.engine.fleet.sweep import AHEAD_MS, Sweep
from holdfast.store.supervisor import StandingTask

log = logging.getLogger("holdfast.dispatch")

DEFAULT_DRIVES = 100
"""Sessions that one process drives at a time, if it is not said otherwise: most of them wait for a model."""


class FleetDispatch(Dispatch):
    """Nudges go through an engine, and are brought from there to the processes that serve."""

    def __init__(self, drives: int) -> None:
        self._most = drives
        self._queue = NudgeQueue()
        self._engine: Engine | None = None
        self._nudges: CommitNudges | None = None
        self._drives: Drives | None = None
        self._sweep: Sweep | None = None
        self._is_sweeping = False
        self._sending: StandingTask | None = None
        self._tasks: list[StandingTask] = []
        """What serves, until `stop`."""
        self._left: Sequence[str] = ()
        """Sessions that something was under way of when this process stopped."""

    def attach(self, engine: Engine) -> None:
        self._engine, owner = engine, engine.owner
        self._drives = Drives(engine, self, self._most)
        self._nudges = CommitNudges(engine, self, self._drives.under_way)
        owner.attendants.append(self._nudges)
        owner.on_mail = self.nudge
        self._sending = owner.supervisor.task("sending nudges to the engine", self._send_all)
        self._sending.start()

    def nudge(self, session_id: str, position: int | None = None) -> None:
        self._queue.drive(session_id, position)

    def nudge_at(self, session_id: str, due: int) -> None:
        assert self._engine is not None
        if due - self._engine.owner.now() <= AHEAD_MS:  # a sweep tells of the others, in time
            self._queue.drive_at(session_id, due)

    def refuse(self) -> None:
        if self._drives is not None:
            self._drives.is_refusing = True

    async def until_idle(self) -> None:
        if self._drives is not None:
            await self._drives.until_idle()

    async def stop(self) -> None:
        self.refuse()
        self._left = self._engine.held_sessions() if self._engine is not None else ()
        if self._nudges is not None:
            self._nudges.stop()
        errands = self._sweep.errands.cancel() if self._sweep is not None else []
        await asyncio.gather(*(task.stop() for task in self._tasks), *errands, return_exceptions=True)

    async def detach(self) -> None:
        for session_id in self._left:
            self.nudge(session_id)
        if self._sending is not None:
            await self._queue.flush()
            await self._sending.stop()

    @abstractmethod
    async def _send_all(self) -> None:
        """Send to the engine what the queue has, until cancelled."""

    async def _sweep_once(self, number: int) -> None:
        """Sweep, unless this process does already, or is about to end."""
        if self._is_sweeping or self._sweep is None or (self._drives is not None and self._drives.is_refusing):
            return
        self._is_sweeping = True
        try:
            await self._sweep.run(number)
        except HoldfastError as error:
            log.warning("a sweep has failed, and the next one follows: %s", error)
        finally:
            self._is_sweeping = False
