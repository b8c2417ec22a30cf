"""What the simulation reports and is not mended yet: each a scenario that breaks a law, run only when it is named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.testing.simulation.client import Client
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.scenario import Scenario
from holdfast.testing.simulation.scenarios.agents import Agents, SimulatedProvider
from holdfast.testing.simulation.world import SimulatedProcess


class Bystander(Agents):
    """A runtime with another provider drains the same inboxes: it should leave what it cannot serve."""

    name: ClassVar[str] = "bystander"

    def prepare(self) -> None:
        super().prepare()
        self.world.add_process("bystander", self.serve, restarts=True)

    def provider(self, process: SimulatedProcess) -> SimulatedProvider:
        provider = super().provider(process)
        if process.name == "bystander":
            provider.id = "another"
        return provider


@strategy(name="simulated_question")
async def question(ctx: Context) -> Any:
    """Ask a person, who does not answer."""
    return await ctx.ask("Well?")


class Closing(Scenario):
    """Someone waits for the result of a session while the engine that is asked for it is closed."""

    name: ClassVar[str] = "closing"
    clients: ClassVar[tuple[int, int]] = (1, 1)
    waits_s: ClassVar[float] = 30.0

    async def run_client(self, process: SimulatedProcess) -> None:
        self.is_hanging = True
        async with self.opened(process) as hf:
            await Client(process, hf, self.history).start(question, "s")
            waiting = asyncio.create_task(hf.result("s"))
            await asyncio.sleep(0.5)
        done, _ = await asyncio.wait([waiting], timeout=self.waits_s)
        self.is_hanging = not done
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    def may_wait(self, session_id: str) -> bool:
        return True

    def problems(self, run: Evidence) -> Iterator[Problem]:
        if self.is_hanging:
            yield Problem("closed", "s", f"a caller still waits {self.waits_s:.0f} s after its engine was closed")


KNOWN: dict[str, type[Scenario]] = {scenario.name: scenario for scenario in (Bystander, Closing)}
"""By the name that the command line knows."""
