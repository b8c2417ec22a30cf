"""The command line of the simulation: make one run again, or many.

python -m holdfast.testing.simulation strategies 171 --trace
python -m holdfast.testing.simulation --seeds 1000
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator

from holdfast.testing.simulation.broken_run import report, shrink
from holdfast.testing.simulation.faults import profile
from holdfast.testing.simulation.run import simulate, without
from holdfast.testing.simulation.scenarios import SCENARIOS
from holdfast.testing.simulation.scenarios.bystander import Bystander
from holdfast.testing.simulation.scenarios.harm import HARM
from holdfast.testing.simulation.trace import side_by_side

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
    work = [(name, seed, options.off) for seed in _seeds(options) for name in names]
    began, broken = time.monotonic(), 0
    with multiprocessing.Pool(options.jobs) as pool:
        for number, (command, problem) in enumerate(pool.imap_unordered(_outcome, work, chunksize=8), 1):
            if problem:
                broken += 1
                print(f"{command}\n  {problem}", flush=True)
                if broken >= options.most:
                    pool.terminate()
                    break
            if number % 500 == 0:
                speed = number / (time.monotonic() - began)
                print(
                    f"{number} of {len(work)} runs, {broken} broken, {speed:.0f} a second", file=sys.stderr, flush=True
                )
    print(f"{len(work) if broken < options.most else 'stopped'} runs, {broken} broken")
    return 1 if broken else 0


def _seeds(options: argparse.Namespace) -> Iterator[int]:
    return iter(range(options.first, options.first + options.seeds))


def _outcome(work: tuple[str, int, list[str]]) -> tuple[str, str]:
    name, seed, off = work
    run = simulate(NAMED[name], seed, without(profile(seed), *off))
    return (run.command, str(run.problems[0])) if run.problems else ("", "")


if __name__ == "__main__":
    sys.exit(main())
