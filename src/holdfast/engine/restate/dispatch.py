"""`RestateDispatch`: Restate sees to it that somebody works on a session, now or at a time.

What is sent to it is the id of a session, and a time. What it brings is that id. It may lose its disk: the sessions are
in the store, and the sweep finds each that has something to do.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.engine.dispatch import Dispatch, DispatchError
from holdfast.engine.engine import Engine
from holdfast.engine.restate.admin import AdminClient
from holdfast.engine.restate.commits import CommitNudges
from holdfast.engine.restate.drive import Drives
from holdfast.engine.restate.nudges import NudgeQueue
from holdfast.engine.restate.settings import RestateSettings
from holdfast.engine.restate.sweep import EVERY_MS, Sweep, next_sweep
from holdfast.store.supervisor import StandingTask

if TYPE_CHECKING:
    from holdfast.engine.restate.endpoint import WorkerEndpoint

log = logging.getLogger("holdfast.dispatch")

DEFAULT_DRIVES = 100
"""Sessions that one process drives at a time, if it is not said otherwise: most of them wait for a model."""

BEGIN_EVERY_S = 5.0
"""Seconds between two times that a worker sees to it that there is a next sweep: the engine may have lost it."""


class RestateDispatch(Dispatch):
    """Nudges go through Restate; with `listen` in its settings, they are also brought here."""

    def __init__(self, settings: RestateSettings, drives: int = DEFAULT_DRIVES) -> None:
        self._settings = settings
        self._most = drives
        self._queue: NudgeQueue | None = None
        self._nudges: CommitNudges | None = None
        self._drives: Drives | None = None
        self._listening: socket.socket | None = None
        self._endpoint: WorkerEndpoint | None = None
        self._sweep: Sweep | None = None
        self._is_sweeping = False
        self._is_unknown = asyncio.Event()
        self._sending: StandingTask | None = None
        self._tasks: list[StandingTask] = []
        self._left: Sequence[str] = ()
        """Sessions that something was under way of when this process stopped."""
        self._engine: Engine | None = None

    def attach(self, engine: Engine) -> None:
        self._engine, owner = engine, engine.owner
        self._queue = NudgeQueue(self._settings.ingresses, self._settings.service, owner.now)
        self._drives = Drives(engine, self, self._most)
        self._nudges = CommitNudges(engine, self, self._drives.under_way)
        owner.attendants.append(self._nudges)
        owner.on_mail = self.nudge
        self._sending = owner.supervisor.task("sending nudges to the engine", self._queue.run)
        self._sending.start()

    def nudge(self, session_id: str, position: int | None = None) -> None:
        if self._queue is not None:
            self._queue.drive(session_id, position)

    def nudge_at(self, session_id: str, due: int) -> None:
        if self._queue is not None:
            self._queue.drive_at(session_id, due)

    def serve(self, engine: Engine) -> None:
        if self._settings.listen is None:
            return
        assert self._queue is not None
        assert self._drives is not None
        from holdfast.engine.restate.endpoint import WorkerEndpoint, handlers, listen

        listening = self._listening = listen(self._settings)
        host, _ = self._settings.address
        uri = self._settings.advertise or f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        self._sweep = Sweep(engine, self)
        self._endpoint = endpoint = WorkerEndpoint(handlers(self._settings.service, self._drives, self._sweep_once))
        self._queue.on_unknown = self._is_unknown.set

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
        if self._drives is not None:
            self._drives.is_refusing = True
        if self._endpoint is not None:
            self._endpoint.is_refusing = True

    async def until_idle(self) -> None:
        if self._drives is not None:
            await self._drives.until_idle()

    async def stop(self) -> None:
        self.refuse()
        self._left = self._engine.held_sessions() if self._engine is not None else ()
        if self._endpoint is not None:
            self._endpoint.end()
        if self._nudges is not None:
            self._nudges.stop()
        ending: list[asyncio.Task[Any]] = [running for task in self._tasks for running in task.cancel()]
        if self._sweep is not None:
            ending += self._sweep.errands.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()

    async def detach(self) -> None:
        if self._queue is None or self._sending is None:
            return
        for session_id in self._left:
            self.nudge(session_id)
        await self._queue.flush()
        await self._sending.stop()

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
        assert self._queue is not None
        assert self._engine is not None
        following = next_sweep(number, self._engine.owner.now())
        self._queue.sweep(following * EVERY_MS, following)

    async def _sweep_once(self, number: int) -> None:
        self._begin_sweep(number)
        if self._is_sweeping or self._sweep is None or (self._drives is not None and self._drives.is_refusing):
            return
        self._is_sweeping = True
        try:
            await self._sweep.run(number)
        except HoldfastError as error:
            log.warning("a sweep has failed, and the next one follows: %s", error)
        finally:
            self._is_sweeping = False


def restate_dispatch(url: str) -> RestateDispatch:
    """The dispatcher behind a URL."""
    settings = RestateSettings.parse(url)
    check_installed(*SENDS, *(SERVES if settings.listen is not None else ()))
    return RestateDispatch(settings)


def sending_dispatch(url: str) -> RestateDispatch:
    """The dispatcher behind a URL, for a process that sends nudges and is brought none."""
    check_installed(*SENDS)
    return RestateDispatch(RestateSettings.parse(url).to_send())


SENDS = ("httpx2",)
SERVES = ("restate", "uvicorn")
"""The packages that are needed to send nudges, and to be brought some."""


def check_installed(*packages: str) -> None:
    """Raise `DispatchError` if a package is missing."""
    for package in packages:
        if find_spec(package) is None:
            raise DispatchError(f"Restate needs the package `{package}`: pip install 'holdfast[restate]'")
