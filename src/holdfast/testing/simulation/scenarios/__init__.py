"""The scenarios that Holdfast itself is tested with, by name."""

from holdfast.testing.simulation.scenario import Scenario
from holdfast.testing.simulation.scenarios.agents import Agents
from holdfast.testing.simulation.scenarios.background import Background
from holdfast.testing.simulation.scenarios.clocks import Clocks
from holdfast.testing.simulation.scenarios.strategies import Strategies

SCENARIOS: dict[str, type[Scenario]] = {
    scenario.name: scenario for scenario in (Strategies, Agents, Background, Clocks)
}
"""By the name that the command line knows."""
