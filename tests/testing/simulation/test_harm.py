"""A call that takes its process down is tried a few times and fails; callers of a closed engine do not hang."""

from __future__ import annotations

import pytest

from holdfast.testing.simulation import Faults, Scenario, simulate
from holdfast.testing.simulation.scenarios.harm import HARM

CALM = Faults(until_s=1.0)


@pytest.mark.parametrize("scenario", HARM.values(), ids=list(HARM))
def test_it_keeps_the_laws(scenario: type[Scenario]) -> None:
    assert [problem for seed in range(8) for problem in simulate(scenario, seed, CALM).problems] == []
