"""A run that fails is made small: fewer faults, sessions, steps and processes, and a command that makes it again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

import pytest

from holdfast.testing.simulation import BrokenLawError, Faults, SimulatedProcess, check, shrink, simulate
from holdfast.testing.simulation.__main__ import NAMED, main
from holdfast.testing.simulation.evidence import Evidence, Problem
from holdfast.testing.simulation.scenarios.strategies import Strategies
from holdfast.testing.simulation.trace import TraceLine, side_by_side


class Fragile(Strategies):
    """It breaks if its second session has any step, and the store was in trouble."""

    name: ClassVar[str] = "fragile"
    engines: ClassVar[tuple[int, int]] = (2, 3)

    def problems(self, run: Evidence) -> Iterator[Problem]:
        if any("error at" in line.text for line in run.world.trace) and self.plans.get("s1"):
            yield Problem("fragile", "s1", "s1 cannot bear it")


class Breaks(Strategies):
    """Its engines have a mistake."""

    name: ClassVar[str] = "breaks"

    async def serve(self, process: SimulatedProcess) -> None:
        raise ValueError("a mistake")


FAULTS = Faults(until_s=4.0, kills=2, stalls=2, store_errors=0.1, late_notices=0.3)


def test_a_run_is_shrunk_to_the_fault_the_session_and_the_step_that_it_needs() -> None:
    run = simulate(Fragile, 3, FAULTS)
    assert run.problems
    small = shrink(run)
    assert [problem.law for problem in small.problems] == ["fragile"]
    assert len(small.happened) == 1
    assert "error at" in small.struck[small.happened[0]]
    kept = [part for part in small.parts if part not in small.left_out]
    assert [part for part in kept if "/" not in part] == ["s1"]
    assert len([part for part in kept if part.startswith("s1/")]) == 1


def test_the_command_of_a_small_run_makes_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(NAMED, "fragile", Fragile)
    run = next(run for run in (simulate(Fragile, seed) for seed in range(50)) if run.problems)
    small = shrink(run)
    _, _, arguments = small.command.partition("holdfast.testing.simulation ")
    assert main(arguments.split()) == 1
    assert f"digest {small.digest}" in capsys.readouterr().out


def test_an_error_shows_the_law_the_command_and_the_processes_side_by_side() -> None:
    with pytest.raises(BrokenLawError) as raised:
        check(simulate(Fragile, 3, FAULTS))
    text = str(raised.value)
    assert "s1 cannot bear it" in text
    assert re.search("make it again: .*python -m holdfast.testing.simulation fragile 3 --only", text)
    assert "keep it in the corpus: fragile 3 " in text
    header = next(line for line in text.splitlines() if line.lstrip().startswith("time"))
    assert "client-0" in header
    assert "engine-0" in header


def test_each_process_has_a_column_of_its_own() -> None:
    trace = [TraceLine(0.5, "b", "commits to s1"), TraceLine(1.0, "a", "commits to s2"), TraceLine(2.0, "a", "x " * 30)]
    header, _, first, *rest = side_by_side(trace, "s1")
    assert first.index("commits") == header.index("b")
    assert all(line.index("x") == header.index("a") for line in rest)
    assert len(rest) == 2


def test_a_process_that_breaks_is_told_and_not_started_again() -> None:
    run = simulate(Breaks, 1, Faults(until_s=1.0))
    assert any("engine-0 broke: ValueError('a mistake')" in problem.text for problem in run.problems)
    assert not any("starts again" in line.text for line in run.trace)
