"""The processes of the crash tests: each takes a turn in some sessions, as a client that retries until it is told."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from holdfast import AgentSession, Runtime, Upkeep
from holdfast.agent.live_events import LiveEvent, WaitingEvent
from holdfast.core.errors import HoldfastError
from holdfast.store import open_store
from holdfast.store.contract import Store
from holdfast.testing.crash.seams import Seam
from holdfast.testing.patience import HANG_S, until
from tests.agent.crash.services import Points, World, read_ledger, session_of

TURN = "turn-1"


@dataclass(frozen=True)
class Job:
    """What a process does, and where it dies."""

    url: str
    directory: Path
    inputs: Mapping[str, str]
    """By session."""
    name: str = "first"
    """Of the process; its trace is called so."""
    deadly: Sequence[Seam] = ()
    turn: str = TURN
    fresh: bool = False
    """Whether the conversations begin anew."""
    patient: bool = False
    """Whether it waits until all leases have run out, and then does only what it is told."""
    retries: bool = False
    """Whether it asks again after it was told, and once more after a restart."""
    then: str | None = None
    """Another turn with the same input, taken by the same handle afterwards."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """What to answer to calls of tools that nothing runs, by tool."""

    @property
    def trace(self) -> Path:
        return self.directory / f"trace-{self.name}"


class Client:
    """One process."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._world = World(job.directory, Points(job.trace, job.deadly))

    def _runtime(self) -> Runtime:
        return self._world.runtime(self._job.url, upkeep=Upkeep(on=not self._job.patient))

    async def run(self) -> None:
        job = self._job
        if job.patient:
            await _until_nobody_owns_any(job.url)
        for times in [2, 1] if job.retries else [1]:
            async with asyncio.timeout(HANG_S), self._runtime() as runtime:
                for _ in range(times):
                    await asyncio.gather(*(self._take(runtime, session) for session in job.inputs))

    async def _take(self, runtime: Runtime, session: str) -> None:
        session_of.set(session)
        opening = runtime.session(session)
        opened = await (opening.open_fresh() if self._job.fresh else opening.open())
        for turn in (self._job.turn, self._job.then):
            if turn is not None:
                taken = opened.turn(self._job.inputs[session]).id(turn)
                result = await taken.stream_to(self._answering(opened))
                self._world.ledger.note("told", session, result=msgspec.to_builtins(result))
        await self._world.points("told")

    def _answering(self, opened: AgentSession) -> Callable[[LiveEvent], Awaitable[None]]:
        async def sink(event: LiveEvent) -> None:
            if isinstance(event, WaitingEvent):
                for query in event.queries:
                    name = getattr(query, "name", "")
                    self._world.ledger.note("waiting", opened.session_id, tool=name)
                    if name in self._job.answers:
                        await opened.answer(query.id, self._job.answers[name])

        return sink

    async def race(self, racers: Sequence[str]) -> None:
        """Take a turn in one session after the other, each when all racers are ready for it."""
        job = self._job
        async with asyncio.timeout(HANG_S), self._runtime() as runtime:
            for session in job.inputs:
                self._world.ledger.note("ready", session, name=job.name)
                await until(partial(_are_ready, racers, session, job.directory))
                try:
                    await self._take(runtime, session)
                except HoldfastError as error:
                    self._world.ledger.note("refused", session, turn=job.turn, error=error.kind)
            await _until_no_mail_waits(job)  # an owner that closes leaves the last of it to whoever comes next


def _are_ready(racers: Sequence[str], session: str, directory: Path) -> bool:
    lines = read_ledger(directory)
    return {line["name"] for line in lines if (line["what"], line["session"]) == ("ready", session)}.issuperset(racers)


async def _until_nobody_owns_any(url: str) -> None:
    async with asyncio.timeout(HANG_S), open_store(url) as store:
        while True:
            rows = (await store.sessions()).rows
            if all(row.owner is None for row in rows):
                return
            await asyncio.sleep(0.01)


async def _until_no_mail_waits(job: Job) -> None:
    async with open_store(job.url) as store:
        for session in job.inputs:
            await until(partial(_is_empty, store, session))


async def _is_empty(store: Store, session: str) -> bool:
    return not await store.mailbox(session)


def client_job(job: Job) -> None:
    _run(job, Client(job).run())


def race_job(job: Job, racers: Sequence[str]) -> None:
    _run(job, Client(job).race(racers))


def _run(job: Job, work: Coroutine[Any, Any, None]) -> None:
    """Run a process to its end; what goes wrong is left in the file `error`."""
    code = 1
    try:
        asyncio.run(work)
        code = 0
    except BaseException:
        with (job.directory / "error").open("a") as file:
            traceback.print_exc(file=file)
    os._exit(code)
