"""`engine-instructions`: the work of one round trip, in instructions that callgrind counts. There is no noise in it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from bench import Figure, Plan, Round, Target, UnavailableError
from bench.engine import FOREVER, Host
from holdfast.engine.holdfast import open_holdfast

TRIPS = (100, 400)
"""Round trips of two runs. Their difference leaves out imports, opening and warming up."""

LIMITS = {"memory": 300_000, "sqlite": 400_000}
"""Instructions of a round trip, by where the session lives."""

PATIENCE = "1000"
"""Limits read off a wall clock would send steps and commits to threads, because callgrind is fifty times slower."""


async def engine_instructions(plan: Plan) -> list[Figure]:
    """Pause, feed, pause: user-space instructions of one round trip, in memory and on SQLite."""
    if shutil.which("valgrind") is None:
        raise UnavailableError("valgrind is not installed")
    return [await asyncio.to_thread(_figure, plan, place, limit) for place, limit in LIMITS.items()]


def _figure(plan: Plan, place: str, limit: int) -> Figure:
    few, many = (_count(plan, place, trips) for trips in TRIPS)
    per_trip = (many - few) / (TRIPS[1] - TRIPS[0])
    plan.say(f"engine-instructions: {place}: {per_trip:,.0f} for each round trip")
    name = f"engine-instructions: round trip, {place}"
    return Figure(name, "instructions", [Round(per_trip)], targets=[Target("value", "<=", limit)])


def _count(plan: Plan, place: str, trips: int) -> int:
    """The instructions of a process that makes so many round trips and nothing else."""
    program = f"from bench import instructions; instructions.make_trips({place!r}, {trips}, {str(plan.directory)!r})"
    return instructions_of(plan, f"{place}-{trips}", program)


def instructions_of(plan: Plan, name: str, program: str) -> int:
    """The instructions of a process that runs this Python program."""
    kept = plan.directory / f"callgrind-{name}"
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={kept}", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOLDFAST_PATIENCE": PATIENCE},
    )
    counted = re.findall(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode or not counted:
        raise AssertionError(f"{name} failed: {done.stderr.strip()[-2000:]}")
    return int(counted[-1].replace(",", ""))


def make_trips(place: str, trips: int, directory: str) -> None:
    """Run in a process of its own: one session, fed so often."""
    path = Path(directory) / f"engine-instructions-{trips}.db"

    async def run() -> None:
        async with open_holdfast("memory:" if place == "memory" else f"sqlite:///{path}") as holdfast:
            await Host(holdfast).run(FOREVER, trips)

    asyncio.run(run())


BENCHMARKS = {"engine-instructions": engine_instructions}
