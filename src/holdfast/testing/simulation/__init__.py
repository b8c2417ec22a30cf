"""Deterministic simulation: several OS processes, their store, time and faults, all on one seed.

    class Payments(Scenario):
        def register(self, hf, process): ...        # the tools of an engine
        async def drive(self, client, number): ...  # what a client does

    def test_payments():
        for seed in range(100):
            check(simulate(Payments, seed))

`docs/how-to/simulate.md` has the whole of it.
"""

from holdfast.testing.simulation.agent_scenario import AgentScenario
from holdfast.testing.simulation.broken_run import BrokenLawError, check, report, shrink
from holdfast.testing.simulation.client import Client
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.faults import Faults, profile
from holdfast.testing.simulation.model import SimulatedModel, last_input
from holdfast.testing.simulation.outside import Outside
from holdfast.testing.simulation.run import Run, simulate, sweep, without
from holdfast.testing.simulation.scenario import Scenario
from holdfast.testing.simulation.world import SimulatedProcess, World

__all__ = [
    "AgentScenario",
    "BrokenLawError",
    "Client",
    "Evidence",
    "Faults",
    "Outside",
    "Problem",
    "Run",
    "Scenario",
    "SimulatedModel",
    "SimulatedProcess",
    "World",
    "check",
    "last_input",
    "profile",
    "report",
    "shrink",
    "simulate",
    "sweep",
    "without",
]
