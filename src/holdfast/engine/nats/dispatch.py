"""`NatsDispatch`: a work queue of JetStream sees to it that somebody works on a session, now or at a time.

Nudges are messages, which whoever serves takes from the queue. Those for a time are scheduled messages of the server.
Every second, each worker says that it will sweep; the server takes the first for new and the others for doubles.
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.engine.dispatch import check_installed
from holdfast.engine.engine import Engine
from holdfast.engine.fleet.dispatch import DEFAULT_DRIVES, FleetDispatch
from holdfast.engine.fleet.nudges import NotSentError, Nudge, SweepNudge
from holdfast.engine.fleet.sweep import EVERY_MS, Sweep, next_sweep
from holdfast.engine.nats.link import NatsLink
from holdfast.engine.nats.puller import Puller
from holdfast.engine.nats.settings import NatsSettings
from holdfast.store.supervisor import StandingTask

log = logging.getLogger("holdfast.dispatch")

BEHIND = 100
"""Nudges that wait in the queue when its workers are behind: most of what a sweep finds then stands there already."""

SWEPT_EVERY = 60
"""Sweeps in which the same session is nudged once by them, while the workers are behind."""


class NatsDispatch(FleetDispatch):
    """Nudges go through JetStream; with `pull` in its settings, this process also takes some."""

    def __init__(self, settings: NatsSettings) -> None:
        super().__init__(settings.pull or DEFAULT_DRIVES)
        self._settings = settings
        self._link = NatsLink(settings)
        self._linking: StandingTask | None = None
        self._puller: Puller | None = None
        self._swept_once: str | None = None
        """What makes several nudges of sweeps for a session one; None if each is sent."""

    def attach(self, engine: Engine) -> None:
        super().attach(engine)
        self._linking = engine.owner.supervisor.task("staying connected to the engine", self._link.run)
        self._linking.start()

    def serve(self, engine: Engine) -> None:
        if self._settings.pull is None:
            return
        self._sweep = Sweep(engine, self._nudge_swept, self.nudge_at)
        self._puller = Puller(self._link, self._settings, engine.owner, self._drive)
        task = engine.owner.supervisor.task
        self._tasks = [
            task("taking nudges from the engine", self._puller.run),
            task("keeping the nudges that were taken", self._puller.give_signs),
            task("sweeping for the fleet", self._keep_sweeping),
        ]
        for each in self._tasks:
            each.start()
        self.is_serving = True

    def refuse(self) -> None:
        super().refuse()
        if self._puller is not None:
            self._puller.refuse()

    async def detach(self) -> None:
        if self._puller is not None:
            await self._puller.give_back()
        await super().detach()
        if self._linking is not None:
            await self._linking.stop()

    async def _send_all(self) -> None:
        await self._queue.run(self._send)

    async def _send(self, nudge: Nudge) -> None:
        assert not isinstance(nudge, SweepNudge)  # those are claimed
        if not self._queue.is_superseded(nudge):
            await self._link.send(nudge)

    async def _drive(self, session_id: str) -> None:
        assert self._drives is not None
        self._queue.forget_due(session_id)  # it may have been brought because of that
        await self._drives.drive(session_id)

    async def _keep_sweeping(self) -> None:
        """Claim each sweep when its time has come, and do those that nobody else has claimed."""
        assert self._engine is not None
        now = self._engine.owner.now
        number = -1
        while True:
            number = next_sweep(number, now())
            await asyncio.sleep(max(0, number * EVERY_MS - now()) / 1000)
            try:
                is_ours = await self._link.claim_sweep(number)
            except NotSentError as error:
                log.debug("nobody sweeps for now: %s", error)
                continue
            if is_ours:
                is_behind = await self._link.pending() >= BEHIND
                self._swept_once = f"swept-{number // SWEPT_EVERY}" if is_behind else None
                await self._sweep_once(number)

    def _nudge_swept(self, session_id: str) -> None:
        self._queue.drive(session_id, self._swept_once)


def nats_dispatch(url: str, *, serves: bool = True) -> NatsDispatch:
    """The dispatcher behind a URL; if it does not serve, for a process that sends nudges and takes none."""
    settings = NatsSettings.parse(url)
    check_installed("nats", PACKAGE)
    return NatsDispatch(settings if serves else settings.to_send())


PACKAGE = "nats"
"""The package that is needed."""
