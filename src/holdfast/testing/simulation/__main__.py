"""The command line of the simulation: make one run again, or many.

python -m holdfast.testing.simulation strategies 171 --trace
python -m holdfast.testing.simulation --seeds 1000
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from typing import NamedTuple

from holdfast.testing.simulation.broken_run import report, shrink
from holdfast.testing.simulation.faults import profile
from holdfast.testing.simulation.run import simulate, without
from holdfast.testing.simulation.scenarios import SCENARIOS
from holdfast.testing.simulation.scenarios.bystander import Bystander
from holdfast.testing.simulation.scenarios.harm import HARM
from holdfast.testing.simulation.trace import side_by_side

SAY_EVERY_S = 15.0
"""Seconds between two lines that say how far many runs are."""

CHUNK_RUNS = 8
"""Runs that a process is given at a time."""

CHUNKS = 25
"""How often, until another process takes its place: after thousands of runs, each took twice as long."""

NAMED = {**SCENARIOS, **HARM, Bystander.name: Bystander}
"""All scenarios; those that aim at one thing run only when they are named."""


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; 1 if a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.simulation", description=__doc__)
    parser.add_argument("scenario", nargs="?", choices=sorted(NAMED), help="one scenario; without it, all")
    parser.add_argument("seed", nargs="?", type=int, help="make the run of this seed")
    parser.add_argument("--only", help="allow only the faults with these numbers, joined by commas, or 'none'")
    parser.add_argument("--leave-out", default="", help="do without these parts of the scenario, joined by commas")
    parser.add_argument("--trace", action="store_true", help="print what happened, all processes side by side")
    parser.add_argument("--shrink", action="store_true", help="look for fewer parts and faults that break the same law")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds of each scenario (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="OS processes (default: one for each core)")
    parser.add_argument("--off", action="append", default=[], help="leave out a class of faults; may be repeated")
    parser.add_argument("--most", type=int, default=10, help="stop after so many broken runs (default: 10)")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _one(options)
    names = [options.scenario] if options.scenario else list(SCENARIOS)
    return _many(names, options)


def _one(options: argparse.Namespace) -> int:
    only = None if options.only is None else [int(number) for number in options.only.split(",") if number != "none"]
    faults = without(profile(options.seed), *options.off)
    left_out = [part for part in options.leave_out.split(",") if part]
    run = simulate(NAMED[options.scenario], options.seed, faults, only=only, leave_out=left_out)
    if options.shrink and run.problems:
        run = shrink(run)
    if run.problems:
        print(report(run, shrunk=False))
    elif options.trace:
        print("\n".join(side_by_side(run.trace)))
    print(f"{run.virtual_s:.1f} virtual s, {run.callbacks} callbacks, {len(run.happened)} faults, digest {run.digest}")
    return 1 if run.problems else 0


def _many(names: list[str], options: argparse.Namespace) -> int:
    seeds = range(options.first, options.first + options.seeds)
    work = [(name, seed, options.off) for seed in seeds for name in names]
    progress = _Progress(len(work))
    # What was imported is never garbage. A process makes few runs: each leaves something behind, and slows the next.
    with multiprocessing.Pool(options.jobs, gc.freeze, maxtasksperchild=CHUNKS) as pool:
        for outcome in pool.imap_unordered(_outcome, work, chunksize=CHUNK_RUNS):
            progress.add(outcome)
            if progress.broken >= options.most:
                pool.terminate()
                break
    print(f"{progress} in {progress.took_s:.0f} s")
    return 1 if progress.broken else 0


class _Outcome(NamedTuple):
    """What came of one run."""

    scenario: str
    command: str
    problem: str
    """The first law that it broke; empty if it broke none."""


def _outcome(work: tuple[str, int, list[str]]) -> _Outcome:
    name, seed, off = work
    run = simulate(NAMED[name], seed, without(profile(seed), *off))
    return _Outcome(name, run.command, str(run.problems[0]) if run.problems else "")


class _Progress:
    """Counts runs, prints those that break a law at once, and says every few seconds how far it is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._began = self._said = time.monotonic()
        self._runs: Counter[str] = Counter()
        self.broken = 0

    @property
    def took_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def add(self, outcome: _Outcome) -> None:
        """Another run is over."""
        self._runs[outcome.scenario] += 1
        if outcome.problem:
            self.broken += 1
            print(f"{outcome.command}\n  {outcome.problem}", flush=True)
        if time.monotonic() - self._said >= SAY_EVERY_S:
            self._said = time.monotonic()
            speed = self._runs.total() / self.took_s
            left_s = (self._total - self._runs.total()) / speed
            print(f"{self}, {speed:.1f} a second, {left_s / 60:.0f} min left", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        each = ", ".join(f"{name} {runs}" for name, runs in sorted(self._runs.items()))
        return f"{self._runs.total()} of {self._total} runs ({each}), {self.broken} broken"


if __name__ == "__main__":
    sys.exit(main())
