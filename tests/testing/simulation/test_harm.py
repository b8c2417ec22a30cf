"""A call that takes its process down is tried a few times and fails; callers of a closed engine do not hang."""

from __future__ import annotations

import pytest

from holdfast.testing.simulation import Faults, Scenario, simulate
from holdfast.testing.simulation.scenarios.harm import HARM, Closing, Deadly

CALM = Faults(until_s=1.0)


@pytest.mark.parametrize("scenario", HARM.values(), ids=list(HARM))
def test_it_keeps_the_laws(scenario: type[Scenario]) -> None:
    assert [problem for seed in range(8) for problem in simulate(scenario, seed, CALM).problems] == []


def test_a_call_that_takes_its_process_down_is_bounded_although_replies_of_commits_are_lost() -> None:
    faults = Faults(until_s=10.0, store_errors=0.1, lost_replies=0.3)
    assert [f"{seed}: {problem}" for seed in range(60) for problem in simulate(Deadly, seed, faults).problems] == []


def test_callers_of_an_engine_that_closes_while_it_reads_are_told_that_it_is_closed() -> None:
    faults = Faults(until_s=6.0, cuts=2, slow_calls=0.3, slow_s=1.0)
    assert [f"{seed}: {problem}" for seed in range(60) for problem in simulate(Closing, seed, faults).problems] == []
