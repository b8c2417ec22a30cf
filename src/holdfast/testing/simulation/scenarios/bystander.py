"""A bystander: a runtime with another provider on the same store, which must leave what it cannot serve."""

from __future__ import annotations

from typing import ClassVar

from holdfast.testing.simulation.model import SimulatedModel
from holdfast.testing.simulation.scenarios.agents import Agents
from holdfast.testing.simulation.world import SimulatedProcess


class Bystander(Agents):
    """A runtime with another provider drains the same inboxes, and leaves what it cannot serve."""

    name: ClassVar[str] = "bystander"

    def prepare(self) -> None:
        super().prepare()
        self.world.add_process("bystander", self.serve, restarts=True)

    def provider(self, process: SimulatedProcess) -> SimulatedModel:
        provider = super().provider(process)
        if process.name == "bystander":
            provider.id = "another"
        return provider
