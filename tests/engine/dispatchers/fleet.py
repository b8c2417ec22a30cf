"""A fleet for tests of dispatchers: a database, an engine underneath, and workers in processes of their own."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from holdfast.engine.holdfast import Holdfast
from tests.engine.helpers import quiet
from tests.engine.processes import Process


class EngineServer(Protocol):
    """A server of an engine, which may be killed and lose its disk."""

    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def wait(self) -> None: ...
    def kill(self) -> None: ...
    def throw_away(self) -> None: ...


class Fleet(ABC):
    """Who serves the sessions of one database. Its name keeps it apart from other fleets of the same engine."""

    servers: Sequence[EngineServer]
    workers: Collection[Process]

    def __init__(self, url: str, ledger: Path) -> None:
        self.url = url
        self.ledger = ledger
        self.name = f"fleet-{uuid4().hex[:12]}"
        self._opened = contextlib.AsyncExitStack()

    @property
    @abstractmethod
    def dispatch(self) -> str:
        """The URL of the dispatcher, for a process that sends nudges."""

    @property
    @abstractmethod
    def serving(self) -> str:
        """The same for a process here that is brought work."""

    @abstractmethod
    async def worker(self, recovery: str = "safe", **options: Any) -> Process:
        """Start a worker that drives the tool `work`."""

    @abstractmethod
    async def kill(self, worker: Process) -> None: ...

    def leave_out(self, worker: Process) -> None:  # noqa: B027 - only a balancer has to be told
        """Let nothing more be brought to a worker."""

    @abstractmethod
    async def until_served(self) -> None:
        """Wait until work that is sent is brought to the workers."""

    @abstractmethod
    async def until_calm(self) -> None:
        """Wait until the engine has nothing left that it tries again and again."""

    def front(self) -> AbstractAsyncContextManager[Holdfast]:
        """An engine here that only does what it is told, and nudges the fleet."""
        return quiet(self.url, dispatch=self.dispatch)

    async def _start(self, recovery: str, dispatch: str, **options: Any) -> Process:
        opened = Process.on(self.url, self.ledger, dispatch=dispatch, **options)
        process = await self._opened.enter_async_context(opened)
        await process.do("drive", what="work", recovery=recovery, concurrency=100)
        return process

    # --- what was done -----------------------------------------------------------------------------

    @property
    def runs(self) -> list[tuple[str, int, int]]:
        """The effects that were begun so far: session, attempt, process."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [(line.split()[0], int(line.split()[2]), int(line.split()[3])) for line in lines]

    def runs_of(self, session: str) -> list[tuple[int, int]]:
        """The attempts of one session's effect, with their processes."""
        return [(attempt, pid) for each, attempt, pid in self.runs if each == session]

    def worker_of(self, session: str) -> Process:
        """The worker that began the latest attempt."""
        pid = self.runs_of(session)[-1][1]
        return next(worker for worker in self.workers if worker.pid == pid)
