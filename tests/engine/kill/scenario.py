"""The scenario of the kill tests: steps in a fixed order, in a process that kills itself at a seam."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import Holdfast, Upkeep
from holdfast.core.events import PausedEvent
from holdfast.engine.holdfast import open_holdfast
from holdfast.store import open_store
from holdfast.testing.crash.seams import SeamObserver
from holdfast.testing.patience import HANG_S, until
from tests.engine.kill.host import Host, answer_to
from tests.engine.kill.leases import LEASE_MS, has_ended, is_owned
from tests.engine.kill.ledger import Ledger
from tests.engine.kill.programs import Gate, thinking
from tests.engine.kill.tools import World


class Scenario:
    """Steps, one after the other. The order of the seams is the same in every run."""

    def __init__(self, url: str, directory: Path, seams: SeamObserver, steps: Sequence[str]) -> None:
        self._url = url
        self._directory = directory
        self._steps = steps
        self._seams = seams
        self._ledger = Ledger(directory, "child")
        self._world = World(directory, self._ledger)

    def _open(self, **options: Any) -> Holdfast:
        store = self._seams.guard(open_store(self._url))
        return open_holdfast(store, lease_ms=LEASE_MS, seam=self._seams, **options)

    async def run(self) -> None:
        async with asyncio.timeout(HANG_S), self._open() as hf:
            self._world.drive(hf)
            host = Host(hf, self._ledger)
            for step in self._steps:
                await self._step(host, step)

    async def _step(self, host: Host, session: str) -> None:
        self._seams.step = session
        await getattr(self, f"_{session}", self._converse)(host, session)
        await until(lambda: has_ended(host.hf.store, session))

    async def _converse(self, host: Host, session: str) -> None:
        """The usual step: the host answers until the session has ended."""
        await host.converse(await host.start(session))

    async def _single(self, host: Host, session: str) -> None:
        event = await host.start(session)
        assert isinstance(event, PausedEvent)
        first = event.queries
        event = await host.feed(session, first)
        again = await host.hf.feed(session, {query.id: answer_to(query) for query in first})
        assert again.replayed
        await host.converse(event)

    async def _batch(self, host: Host, session: str) -> None:
        event = await host.start(session)
        assert isinstance(event, PausedEvent)
        await host.feed(session, event.queries[:1])
        await host.converse(await host.feed(session, event.queries[1:]))

    async def _deadline(self, host: Host, session: str) -> None:
        await host.start(session)
        await host.converse(await host.feed(session, await host.asked(session)))

    async def _child(self, host: Host, session: str) -> None:
        await host.start(session)
        child = f"{session}.q-0"
        await host.converse(await host.feed(child, await host.asked(child)))
        await host.converse(await host.feed(session, await host.asked(session)))

    async def _slow(self, host: Host, session: str) -> None:
        event = await host.start(session)
        thinking.close()
        self._seams.at("after feed", thinking.open)
        await host.converse(event)

    async def _cancel(self, host: Host, session: str) -> None:
        await host.start(session)
        child = f"{session}.q-0"
        await host.asked(child)
        await host.cancel(session)
        await until(lambda: has_ended(host.hf.store, child))

    async def _stop(self, host: Host, session: str) -> None:
        """Another process cancels a session while its owner computes."""
        self._seams.at("after feed", lambda: None)
        event = await host.start(session)
        assert isinstance(event, PausedEvent)
        thinking.close()
        feeding = asyncio.create_task(host.feed(session, event.queries))
        async with self._open(upkeep=Upkeep(on=False)) as other:
            await until(lambda: is_owned(other.store, session))
            await Host(other, self._ledger).cancel(session)
        await feeding
        thinking.open()

    async def _takeover(self, host: Host, session: str) -> None:
        """An owner lets go of a session whose effect is under way."""
        world = World(self._directory, self._ledger)
        world.held.close()
        async with self._open(upkeep=Upkeep(on=False)) as gone:
            world.drive(gone)
            begun = Gate()
            begun.close()
            self._seams.at("before effect", begun.open)
            await Host(gone, self._ledger).start(session, wait=0)
            await begun.wait()
        event = host.shown(await host.hf.resume(session))
        await host.converse(event)

    async def _busy(self, host: Host, session: str) -> None:
        """Another process answers a query of a session whose owner holds on to it for the sake of an effect."""
        self._world.held.close()
        event = await host.start(session)
        assert isinstance(event, PausedEvent)
        async with self._open(upkeep=Upkeep(on=False)) as other:
            await Host(other, self._ledger).feed(session, event.queries)
        self._seams.at("after renew", self._world.held.open)

    async def _idle(self, host: Host, session: str) -> None:
        await host.start(session)
        await asyncio.sleep(0.01)
        async with self._open(upkeep=Upkeep(idle_ttl_ms=1)) as janitor:
            await until(lambda: has_ended(janitor.store, session))

    async def _fork(self, host: Host, session: str) -> None:
        await host.converse(await host.fork(session))
