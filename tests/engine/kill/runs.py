"""Runs of the scenario: one that is traced, and those in which the process is killed at a seam, replaced and judged."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.testing.crash.processes import run_process
from holdfast.testing.crash.seams import Seam, read_trace
from tests.engine.kill.child import finish_job, scenario_job
from tests.engine.kill.laws import Evidence, broken_laws, gather_evidence
from tests.engine.kill.places import MakePlace, Place
from tests.engine.kill.programs import STEPS

SEAMS = Path(__file__).with_name("seams.json")

AT_ONCE = 6
"""Kills under way at the same time. Most of each is waiting for a lease to run out."""

STEPS_BEFORE = 2
"""Steps that are run before the one in which a process is killed, in the default run; `make soak` runs all of them."""

TRIES = 3
"""How often a run is traced, or brought to a seam. On a busy machine a step in a thread may be overtaken by what should
come after it, and then the run has its seams in another order; a boundary that is not listed shows up every time."""

EAGER_SHARE = 8
"""One in so many processes is replaced at once in the default run, while the dead still hold their leases."""


@dataclass(frozen=True)
class Traced:
    """The run in which nothing happens."""

    seams: list[Seam]
    evidence: Evidence

    @property
    def expected(self) -> dict[str, Any]:
        return self.evidence.outcomes()


def trace(place: Place) -> Traced:
    code = run_process(scenario_job, place.url, place.directory, STEPS, None)
    assert code == 0, place.errors()
    return Traced(read_trace(place.directory / "trace"), asyncio.run(gather_evidence(place)))


def by_step(seams: Sequence[Seam]) -> dict[str, list[str]]:
    """The names of the seams, step by step. A lease may be renewed at any time, so only `busy` is asked for that."""
    steps: dict[str, list[str]] = {}
    for seam in seams:
        names = steps.setdefault(seam.step, [])
        if seam.step == "busy" or not seam.name.endswith(" renew"):
            names.append(seam.name)
    return steps


def listed_seams() -> list[Seam]:
    seams = []
    for step, names in json.loads(SEAMS.read_text()).items():
        counts: Counter[str] = Counter()
        for name in names:
            counts[name] += 1
            seams.append(Seam(step, name, counts[name]))
    return seams


@dataclass(frozen=True)
class Kill:
    """Where the process dies, which steps of the scenario it runs until then, and how it is replaced."""

    at: Seam
    steps: Sequence[str]
    patient: bool

    def name(self) -> str:
        manner = "patient" if self.patient else "eager"
        return "-".join((self.at.step, *self.at.name.split(), str(self.at.number), manner))

    def run(self, make_place: MakePlace, expected: dict[str, Any]) -> list[str]:
        """Kill the process, finish its sessions in a fresh one, and judge."""
        tries = 0
        while True:
            tries += 1
            place = make_place(f"{self.name()}-{tries}")
            code = run_process(scenario_job, place.url, place.directory, self.steps, self.at)
            if code == -signal.SIGKILL:
                break
            if tries == TRIES:
                return [f"{self.name()}: was not reached, the process ended with {code} {place.errors()}"]
        broken = []
        if run_process(finish_job, place.url, place.directory, self.steps, self.patient) != 0:
            broken.append(f"could not be finished: {place.errors()}")
        evidence = asyncio.run(gather_evidence(place))
        mine = {session: came_to for session, came_to in expected.items() if session.partition(".")[0] in self.steps}
        broken += broken_laws(evidence, mine, self.at.step)
        if not broken:
            shutil.rmtree(place.directory)
        return [f"{self.name()}: {sentence}" for sentence in broken]


def kill_at_each(kills: Sequence[Kill], make_place: MakePlace) -> list[str]:
    expected = trace(make_place("uninterrupted")).expected
    with ThreadPoolExecutor(AT_ONCE) as pool:
        judged = [pool.submit(kill.run, make_place, expected) for kill in kills]
        return [sentence for kill in judged for sentence in kill.result()]


def hurried(seams: Sequence[Seam]) -> list[Kill]:
    """Every seam once, in a run that begins a few steps before it."""
    return [Kill(seam, _last_steps(seam), number % EAGER_SHARE != 0) for number, seam in enumerate(seams)]


def thorough(seams: Sequence[Seam]) -> list[Kill]:
    """Every seam of the whole scenario, and both manners of going on after it."""
    return [Kill(seam, STEPS, patient) for seam in seams for patient in (True, False)]


def _last_steps(seam: Seam) -> Sequence[str]:
    if seam.step == "fork":
        return ["single", "fork"]
    last = STEPS.index(seam.step)
    return STEPS[max(0, last - STEPS_BEFORE) : last + 1]
