"""`RestateDispatch`: Restate sees to it that somebody works on a session, now or at a time.

Sweeps are calls that it is asked to make at a time. Each is numbered, and asks for the next one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from holdfast.engine.dispatch import check_installed
from holdfast.engine.engine import Engine
from holdfast.engine.fleet.dispatch import DEFAULT_DRIVES, FleetDispatch
from holdfast.engine.fleet.sweep import EVERY_MS, Sweep, next_sweep
from holdfast.engine.restate.admin import AdminClient
from holdfast.engine.restate.nudges import Ingress
from holdfast.engine.restate.settings import RestateSettings

if TYPE_CHECKING:
    from holdfast.engine.restate.endpoint import WorkerEndpoint

log = logging.getLogger("holdfast.dispatch")

BEGIN_EVERY_S = 5.0
"""Seconds between two times that a worker sees to it that there is a next sweep: the engine may have lost it."""


class RestateDispatch(FleetDispatch):
    """Nudges go through Restate; with `listen` in its settings, they are also brought here."""

    def __init__(self, settings: RestateSettings, drives: int = DEFAULT_DRIVES) -> None:
        super().__init__(drives)
        self._settings = settings
        self._ingress: Ingress | None = None
        self._listening: socket.socket | None = None
        self._endpoint: WorkerEndpoint | None = None
        self._is_unknown = asyncio.Event()

    def attach(self, engine: Engine) -> None:
        self._ingress = Ingress(self._settings.ingresses, self._settings.service, engine.owner.now)
        super().attach(engine)

    def serve(self, engine: Engine) -> None:
        if self._settings.listen is None:
            return
        assert self._ingress is not None
        assert self._drives is not None
        from holdfast.engine.restate.endpoint import WorkerEndpoint, handlers, listen

        listening = self._listening = listen(self._settings)
        host, _ = self._settings.address
        uri = self._settings.advertise or f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        self._sweep = Sweep(engine, self.nudge, self.nudge_at)
        self._endpoint = endpoint = WorkerEndpoint(
            handlers(self._settings.service, self._drives, self._sweep_and_go_on)
        )
        self._ingress.on_unknown = self._is_unknown.set

        async def serve() -> None:
            await endpoint.run(listening)

        async def keep_known() -> None:
            await self._keep_known(uri)

        task = engine.owner.supervisor.task
        self._tasks = [task("taking nudges from the engine", serve), task("keeping the fleet known", keep_known)]
        for each in self._tasks:
            each.start()
        self.is_serving = True

    def refuse(self) -> None:
        super().refuse()
        if self._endpoint is not None:
            self._endpoint.is_refusing = True

    async def stop(self) -> None:
        self.refuse()
        if self._endpoint is not None:
            self._endpoint.end()
        await super().stop()
        if self._listening is not None:
            self._listening.close()

    async def _send_all(self) -> None:
        assert self._ingress is not None
        await self._ingress.run(self._queue)

    # --- the fleet ---------------------------------------------------------------------------------

    async def _keep_known(self, uri: str) -> None:
        """Register this fleet if asked to, once and whenever the engine has forgotten it; and begin its sweeps."""
        await self._register(uri)
        while True:
            self._begin_sweep(-1)
            try:
                async with asyncio.timeout(BEGIN_EVERY_S):
                    await self._is_unknown.wait()
            except TimeoutError:
                continue
            await self._register(uri)
            await asyncio.sleep(1)
            self._is_unknown.clear()

    async def _register(self, uri: str) -> None:
        if self._settings.register is not None:
            await AdminClient(self._settings.register).register(uri)
            log.info(
                "the engine at %s brings nudges of '%s' to %s", self._settings.register, self._settings.service, uri
            )

    def _begin_sweep(self, number: int) -> None:
        """See to it that there is a sweep after this one."""
        assert self._engine is not None
        following = next_sweep(number, self._engine.owner.now())
        self._queue.sweep(following * EVERY_MS, following)

    async def _sweep_and_go_on(self, number: int) -> None:
        self._begin_sweep(number)
        await self._sweep_once(number)


SENDS = ("httpx2",)
SERVES = ("restate", "uvicorn")
"""The packages that are needed to send nudges, and to be brought some."""


def restate_dispatch(url: str, *, serves: bool = True) -> RestateDispatch:
    """The dispatcher behind a URL; if it does not serve, for a process that sends nudges and is brought none."""
    settings = RestateSettings.parse(url)
    if not serves:
        settings = settings.to_send()
    check_installed("restate", *SENDS, *(SERVES if settings.listen is not None else ()))
    return RestateDispatch(settings)
