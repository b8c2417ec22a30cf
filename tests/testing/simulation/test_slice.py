"""A bounded slice of the simulation: fixed seeds, some new ones in each run, a crash at each step, and equal digests.

`make simulate SEEDS=100000` makes the long run.
"""

from __future__ import annotations

import os
import random
import runpy
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.agent.plugins.plugin import Plugin
from holdfast.testing.simulation import AgentScenario, Faults, check, profile, simulate, sweep
from holdfast.testing.simulation.scenarios import SCENARIOS
from holdfast.testing.simulation.scenarios.agents import Agents, PlannedInput
from holdfast.testing.simulation.scenarios.harm import HARM
from tests.examples import SOAK
from tests.testing.simulation.test_findings import ParentAndChild

ROOT = Path(__file__).parents[3]

FIXED = {"strategies": 60, "agents": 30, "background": 20, "clocks": 20}
"""Seeds of each scenario, from 0."""

NEW = 10
"""Seeds of each scenario that are drawn for each run of the suite."""

CORPUS = [
    line.split(maxsplit=5)
    for line in (Path(__file__).parent / "corpus.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
"""Runs that have failed once."""

SAME = {"strategies": (0, 10), "agents": (20, 26), "background": (0, 5), "clocks": (0, 5)}
"""Seeds of each scenario, from and to, whose runs are made in two OS processes. Seed 24 of the agents once differed."""

DIGESTS = """
import sys
from holdfast.testing.simulation import simulate
from holdfast.testing.simulation.scenarios import SCENARIOS
for name, first, last in zip(*[iter(sys.argv[1:])] * 3):
    for seed in range(int(first), int(last)):
        run = simulate(SCENARIOS[name], seed)
        print(name, seed, run.digest, len(run.trace), run.struck)
"""


@pytest.mark.parametrize("name", sorted(FIXED))
def test_the_laws_hold_for_fixed_seeds(name: str) -> None:
    for seed in range(FIXED[name]):
        check(simulate(SCENARIOS[name], seed))


@pytest.mark.parametrize("name", sorted(FIXED))
def test_the_laws_hold_for_new_seeds(name: str) -> None:
    first = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(10**9))
    print(f"HOLDFAST_SEED={first} makes the same runs again")
    for seed in range(first, first + NEW):
        check(simulate(SCENARIOS[name], seed))


@pytest.mark.parametrize("line", CORPUS, ids=lambda line: f"{line[0]} {line[1]}")
def test_runs_that_failed_once_keep_the_laws(line: list[str]) -> None:
    name, seed, only, left_out, *_ = line
    allowed = None if only == "all" else [int(number) for number in only.split(",") if number != "none"]
    named = {**SCENARIOS, **HARM}
    check(simulate(named[name], int(seed), only=allowed, leave_out=left_out.split(",")))


def test_a_crash_at_each_step_of_an_engine_loses_nothing() -> None:
    runs = list(sweep(ParentAndChild, 1, "engine-0", Faults(until_s=2.0)))
    assert len(runs) > 50
    for run in runs:
        check(run)


class OneAgent(Agents):
    """One agent with one input, which calls two tools."""

    name: ClassVar[str] = "one agent"
    engines: ClassVar[tuple[int, int]] = (1, 1)
    clients: ClassVar[tuple[int, int]] = (1, 1)

    def prepare(self) -> None:
        super().prepare()
        self.inputs = {"a0": [PlannedInput("enqueue", "input 0 call never confirm", 1)]}
        self.observers, self.cancels = [], set()


def test_a_crash_at_each_step_of_the_engine_of_an_agent_loses_nothing() -> None:
    runs = list(sweep(OneAgent, 5, "engine-0", Faults(until_s=2.0), every=1 if SOAK else 3))
    assert len(runs) > 50
    for run in runs:
        check(run)


def test_the_same_seed_gives_the_same_run_in_another_process() -> None:
    ranges = [str(each) for name, (first, last) in SAME.items() for each in (name, first, last)]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", DIGESTS, *ranges],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "77")
    ]
    one, other = (run.communicate()[0].splitlines() for run in runs)
    assert len(one) == sum(last - first for first, last in SAME.values())
    assert one == other


def test_leaving_out_a_fault_changes_nothing_before_it() -> None:
    run = next(run for run in (simulate(SCENARIOS["strategies"], seed) for seed in range(20)) if len(run.struck) > 3)
    without_last = simulate(SCENARIOS["strategies"], run.seed, only=run.happened[:-1])
    last = next(index for index, line in enumerate(run.trace) if f"fault {len(run.struck) - 1}:" in line.text)
    assert without_last.trace[:last] == run.trace[:last]


@pytest.mark.parametrize("name", ["simulate_refunds", "simulate_support_agent"])
def test_the_examples_run(name: str) -> None:
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")


def test_the_example_fails_if_its_agent_has_no_plugin() -> None:
    support: type[AgentScenario] = runpy.run_path(str(ROOT / "examples" / "simulate_support_agent.py"))["Support"]

    class WithoutPlugin(support):  # type: ignore[misc,valid-type]
        def make_plugins(self) -> list[Plugin]:
            return []

    run = simulate(WithoutPlugin, 0, Faults(until_s=1.0))
    assert {problem.law for problem in run.problems} == {"paid right"}


def test_each_class_of_faults_is_off_in_many_seeds_and_on_in_others() -> None:
    profiles = [profile(seed) for seed in range(400)]
    for name in ("kills", "stalls", "cuts", "store_errors", "lost_replies", "slow_calls", "skew_s", "reports_deaths"):
        share = sum(bool(getattr(each, name)) for each in profiles) / len(profiles)
        assert 0.3 < share < 0.7, name
