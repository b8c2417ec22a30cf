"""What may do harm: a call that takes its process down. It must not take down every process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from holdfast.engine.drivers import MAX_DEATHS, Attempt
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.testing.simulation.client import Client
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.scenario import Scenario
from holdfast.testing.simulation.world import SimulatedProcess


@strategy(name="simulated_deadly")
async def deadly(ctx: Context) -> Any:
    """Call a tool that takes its process down."""
    return await ctx.tool("deadly")


class Deadly(Scenario):
    """A tool that may be repeated, and takes its process down each time: it is given up, and the session ends."""

    name: ClassVar[str] = "deadly"
    clients: ClassVar[tuple[int, int]] = (1, 1)

    def register(self, hf: Holdfast, process: SimulatedProcess) -> None:
        async def effect(attempt: Attempt) -> Any:
            done = self.world.outside.perform(process, "safe", attempt)
            self.world.kill(process)
            return await done

        hf.drive("deadly", effect, recovery="safe")

    async def drive(self, client: Client, number: int) -> None:
        await client.start(deadly, "s")

    def problems(self, run: Evidence) -> Iterator[Problem]:
        attempts = len(run.attempted["s/q-0"])
        if attempts > MAX_DEATHS:
            yield Problem("bounded", "s", f"a call that takes its process down was attempted {attempts} times")
        answer = run.settled.get(("s", "q-0"))
        if answer is None or "its process died" not in str(answer.value):
            yield Problem("bounded", "s", f"a call that takes its process down was answered with {answer}")


HARM: dict[str, type[Scenario]] = {scenario.name: scenario for scenario in (Deadly,)}
"""By the name that the command line knows."""
