"""What the simulation reports and is not mended yet: each a scenario that breaks a law, run only when it is named."""

from __future__ import annotations

from typing import ClassVar

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


KNOWN: dict[str, type[Scenario]] = {scenario.name: scenario for scenario in (Bystander,)}
"""By the name that the command line knows."""
