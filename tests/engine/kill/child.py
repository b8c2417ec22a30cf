"""The processes of the kill tests: one dies in the scenario, one finishes its sessions, one is paused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import traceback
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from holdfast import Holdfast, Upkeep
from holdfast.core.decide import CancelMessage
from holdfast.core.errors import SessionNotFoundError
from holdfast.core.events import PausedEvent
from holdfast.engine.holdfast import open_holdfast
from holdfast.store import Store, open_store
from holdfast.store.session_rows import SessionRow
from holdfast.testing.crash.seams import Seam, SeamObserver
from holdfast.testing.patience import HANG_S, until
from tests.engine.kill.host import Host, answer_to, pending_for_host
from tests.engine.kill.leases import LEASE_MS, has_ended, nobody_owns_any
from tests.engine.kill.ledger import Ledger
from tests.engine.kill.programs import CANCELLED, FORKED_AT, thinking
from tests.engine.kill.scenario import Scenario
from tests.engine.kill.tools import World


async def finish(url: str, directory: Path, steps: Sequence[str], *, patient: bool) -> None:
    """Bring every session of these steps to its end. A patient finisher first waits until all leases have run out."""
    ledger = Ledger(directory, "finisher")
    world = World(directory, ledger)
    async with asyncio.timeout(HANG_S):
        await _note_what_is_recorded(url, ledger, patient)
        async with open_holdfast(url, lease_ms=LEASE_MS) as hf:
            world.drive(hf)
            host = Host(hf, ledger)
            await _begin_the_rest(host, steps)
            while left := [row for row in (await hf.sessions()).rows if _is_left(row)]:
                for row in left:
                    await _answer(host, row)
                await asyncio.sleep(0.01)
            await _until_mail_is_taken(hf)
        async with open_holdfast(url, lease_ms=LEASE_MS) as hf:  # what was begun while the other one closed
            await until(lambda: _nothing_is_left(hf))
        if "idle" in steps:
            async with open_holdfast(url, upkeep=Upkeep(idle_ttl_ms=1)) as janitor:
                await until(lambda: has_ended(janitor.store, "idle"))


async def _nothing_is_left(hf: Holdfast) -> bool:
    return not any(_is_left(row) for row in (await hf.sessions()).rows)


def _is_left(row: SessionRow) -> bool:
    return row.session_id != "idle" and not row.summary.state.is_terminal


async def _answer(host: Host, row: SessionRow) -> None:
    store, session, parent = host.hf.store, row.session_id, row.summary.parent
    if parent is not None and await has_ended(store, parent):
        return  # nobody waits for it; it has to be ended without the help of the host
    if queries := await pending_for_host(store, session):
        for query in queries:
            host.put(session, query)
        await host.feed(session, queries)


async def _note_what_is_recorded(url: str, ledger: Ledger, patient: bool) -> None:
    async with open_store(url) as store:
        if patient:
            await until(lambda: nobody_owns_any(store))
        for row in (await store.sessions()).rows:
            session = await store.load(row.session_id)
            ledger.note("found", session.id, settled=list(session.settled), state=row.summary.state)


async def _begin_the_rest(host: Host, steps: Sequence[str]) -> None:
    """Do again what the host had asked for without hearing that it was done."""
    store = host.hf.store
    for session in steps:
        exists = await _exists(store, session)
        if session == "fork" and not exists:
            if await store.position("single") < FORKED_AT:
                await host.feed("single", await host.asked("single"))
            await host.fork(session)
        elif not exists:
            await host.start(session, wait=0)
        if session in CANCELLED and not await has_ended(store, session):
            mail = [item.message for item in await store.mailbox(session)]
            if not any(isinstance(message, CancelMessage) for message in mail):
                await host.cancel(session)


async def _exists(store: Store, session: str) -> bool:
    try:
        await store.session(session)
    except SessionNotFoundError:
        return False
    return True


async def _until_mail_is_taken(hf: Holdfast) -> None:
    """Mail should not wait for ever."""

    async def is_taken() -> bool:
        return not any([await hf.store.mailbox(row.session_id) for row in (await hf.sessions()).rows])

    with contextlib.suppress(TimeoutError):  # what was left is told by those who look at the store afterwards
        await until(is_taken)


async def own(url: str, directory: Path, session: str) -> None:
    """Own a session, in an effect or a step that goes on until the file `go` is there; then look what became of it."""
    ledger = Ledger(directory, "owner")
    world = World(directory, ledger)
    seams = SeamObserver(
        directory / "trace", refused=lambda session, error: ledger.note("refused", session, error=error)
    )
    store = seams.guard(open_store(url))
    async with asyncio.timeout(HANG_S), open_holdfast(store, lease_ms=LEASE_MS) as hf:
        world.drive(hf)
        host = Host(hf, ledger)
        world.held.close()
        event = await host.start(session)
        assert isinstance(event, PausedEvent)
        if session == "slow":
            thinking.close()
            await hf.feed(session, {query.id: answer_to(query) for query in event.queries}, wait=0)
        ledger.note("owning", session)
        await until((directory / "go").exists)
        world.held.open()
        thinking.open()
        await until(lambda: has_ended(store, session))
        await asyncio.sleep(0.2)
        ledger.note("result", session, content=await hf.result(session))


def scenario_job(url: str, directory: Path, steps: Sequence[str], deadly: Seam | None) -> None:
    _run(directory, Scenario(url, directory, SeamObserver(directory / "trace", deadly), steps).run())


def finish_job(url: str, directory: Path, steps: Sequence[str], patient: bool) -> None:
    _run(directory, finish(url, directory, steps, patient=patient))


def own_job(url: str, directory: Path, session: str) -> None:
    _run(directory, own(url, directory, session))


def _run(directory: Path, work: Coroutine[Any, Any, None]) -> None:
    """Run a process to its end; what goes wrong is left in the file `error`."""
    code = 1
    try:
        asyncio.run(work)
        code = 0
    except BaseException:
        with (directory / "error").open("a") as file:
            traceback.print_exc(file=file)
    os._exit(code)  # a strategy in a thread is not waited for
