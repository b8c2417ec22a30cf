"""`Scenario`: what runs in a simulation, and what must be true of it beside the laws of every run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ClassVar

from holdfast.core.state import State
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.kind import NativeKind
from holdfast.testing.simulation.client import Client
from holdfast.testing.simulation.evidence import Evidence, Problem, journal_rows
from holdfast.testing.simulation.history import History
from holdfast.testing.simulation.inspection import Inspector
from holdfast.testing.simulation.liveness import Liveness
from holdfast.testing.simulation.store import returned
from holdfast.testing.simulation.world import SimulatedProcess, World

LEASE_MS = 1_000
"""Milliseconds that a lease lasts in simulations: short, so that many run out."""


class Scenario:
    """Some engines and some clients on one store. Subclass it, and say what is in `register` and `drive`.

    An object is made for each run; what differs from run to run is drawn from `random`.
    """

    name: ClassVar[str] = ""
    """How the command line calls it."""
    engines: ClassVar[tuple[int, int]] = (1, 3)
    """How many engines there are, from and to."""
    clients: ClassVar[tuple[int, int]] = (1, 2)

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = Random(f"{world.seed}/workload")
        self.history = History()
        self.liveness = Liveness(world)
        self.left_out: frozenset[str] = frozenset()
        """Parts that this run does without."""
        self.parts: list[str] = []
        """Parts that a run can do without, in the order in which they were asked for."""

    # --- to be overridden ----------------------------------------------------------------------------

    def register(self, hf: Holdfast, process: SimulatedProcess) -> None:
        """Give an engine its drivers: called for each life of each engine."""

    async def drive(self, client: Client, number: int) -> None:
        """What the client of that number does. Called again from the start after it was killed."""

    def problems(self, run: Evidence) -> Iterator[Problem]:
        """What is wrong with a run that is over, beside the laws of every run."""
        return iter(())

    def keeps(self, part: str) -> bool:
        """Whether to have a part of the scenario in this run: a session, one of its steps, a process.

        To shrink a run that fails, parts are left out. What is drawn for a part must be drawn in any case, so that the
        others stay as they are.
        """
        self.parts.append(part)
        return part not in self.left_out

    # --- what runs in the processes ------------------------------------------------------------------

    def prepare(self) -> None:
        """Start all processes."""
        for number in range(self.random.randint(*self.engines)):
            if number == 0 or self.keeps(f"engine-{number}"):
                self.world.add_process(f"engine-{number}", self.serve, restarts=True)
        for number in range(self.random.randint(*self.clients)):
            if number == 0 or self.keeps(f"client-{number}"):
                self.world.add_process(f"client-{number}", self.run_client, restarts=False)

    async def serve(self, process: SimulatedProcess) -> None:
        """One life of an engine: it serves until it is asked to close."""
        async with self.opened(process) as hf:
            self.register(hf, process)
            await process.is_closing.wait()

    async def run_client(self, process: SimulatedProcess) -> None:
        """One life of a client: it drives until it is done."""
        number = int(process.name.rpartition("-")[2])
        async with self.opened(process, upkeep=Upkeep(on=False)) as hf:
            await self.drive(Client(process, hf, self.history), number)

    @asynccontextmanager
    async def opened(self, process: SimulatedProcess, **options: Any) -> AsyncIterator[Holdfast]:
        """An engine in a process."""
        options = {"lease_ms": LEASE_MS, **options}
        async with Holdfast(process.store(), environment=process.environment, **options) as hf:
            hf.add_kind(NativeKind(clock=self.world.loop.time))
            yield hf

    @property
    def number_of_clients(self) -> int:
        """How many clients there are."""
        return sum(name.startswith("client") for name in self.world.names)

    async def inspect(self, process: SimulatedProcess) -> list[Problem]:
        """Look at all sessions once everything has come to rest, and say what is wrong with them."""
        async with self.opened(process, upkeep=Upkeep(on=False)) as hf:
            inspector = Inspector(process, hf)
            await inspector.inspect()
            return inspector.problems

    # --- how it ends ---------------------------------------------------------------------------------

    async def settle(self, limit_s: float) -> str:
        """Wait until everything has come to rest; gives what has not when the time is up, or nothing."""
        deadline = self.world.loop.time() + limit_s
        while True:
            self.liveness.look()
            left = self.unsettled()
            if not left or self.world.loop.time() >= deadline:
                return left
            await asyncio.sleep(0.25)

    def unsettled(self) -> str:
        """Something that should not be there any more in the end, or nothing."""
        for row in journal_rows(self.world.server):
            if not row.summary.state.is_terminal and not self.may_wait(row.session_id):
                return (
                    f"{row.session_id} is still {State(row.summary.state).value}, waiting for {row.summary.waiting_for}"
                )
            if row.owner is not None:
                return f"{row.session_id} is still held by {row.owner}"
            if returned(self.world.server._mailbox(row.session_id, 1)):
                return f"{row.session_id} has a message that nobody takes"
        if self.world.unfinished:
            return f"{self.world.unfinished[0]} has not finished"
        return ""

    def may_wait(self, session_id: str) -> bool:
        """Whether a session may be left waiting in the end."""
        return False
