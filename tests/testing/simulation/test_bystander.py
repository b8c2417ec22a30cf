"""A runtime with another provider on the same store takes no turn that it cannot serve."""

from __future__ import annotations

import pytest

from holdfast.testing.simulation import Faults, simulate
from holdfast.testing.simulation.scenarios.bystander import Bystander

CALM = Faults(until_s=1.0)


@pytest.mark.parametrize("seed", range(8))
def test_a_bystander_leaves_what_it_cannot_serve(seed: int) -> None:
    assert simulate(Bystander, seed, CALM).problems == []
