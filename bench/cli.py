"""What everyday commands take from their start to their end, in milliseconds and in instructions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from bench import Figure, Plan, Round, Target
from bench.callgrind import count_command, instructions, require_callgrind
from bench.engine import Host
from holdfast.engine.holdfast import open_holdfast

RUNS = 15

LIMITS_MS = {"sessions": 150, "show": 200, "answer": 200, "--help": 80}

SESSIONS = 20
"""As many as one page of `holdfast sessions` shows."""


async def cli_time(plan: Plan) -> list[Figure]:
    """`holdfast sessions`, `show`, `answer` and `--help`, each in a process of its own, on a store of some sessions."""
    commands, environment = await _prepare(plan)
    rounds: dict[str, list[Round]] = {name: [] for name in commands}
    for number in range(1, RUNS + 1):
        for name, words in commands.items():
            rounds[name].append(Round(_run(words(number), environment)))
        if number % 5 == 0:
            plan.say(f"cli-time: round {number}/{RUNS}")
    return [
        Figure(f"cli-time: holdfast {name}", "ms", rounds[name], targets=[Target("value", "<=", LIMITS_MS[name])])
        for name in commands
    ]


async def cli_instructions(plan: Plan) -> list[Figure]:
    """The same commands in instructions, which a busy machine does not change."""
    require_callgrind()
    commands, environment = await _prepare(plan)
    figures = []
    for name, words in commands.items():
        found = await asyncio.to_thread(count_command, plan, words(1), environment)
        figures.append(instructions(plan, f"cli-instructions: holdfast {name}", found))
    return figures


Words: TypeAlias = Callable[[int], list[str]]
"""A command as it is given in a round: a question can be answered once only."""


async def _prepare(plan: Plan) -> tuple[dict[str, Words], dict[str, str]]:
    """The commands, and an environment in which each has run once on a store of some sessions."""
    url = f"sqlite:///{plan.directory / 'cli.db'}"
    async with open_holdfast(url) as holdfast:
        ids = [await Host(holdfast).run(10, 3) for _ in range(SESSIONS)]
    commands: dict[str, Words] = {
        "sessions": lambda _: ["sessions"],
        "show": lambda _: ["show", ids[0]],
        "answer": lambda number: ["answer", f"asks-{number}", "four"],
        "--help": lambda _: ["--help"],
    }
    environment = _installed(plan) | {"HOLDFAST_STORE": url}
    for number in range(RUNS + 1):
        _run(["run", "cot", "--task", "What is 2 + 2?", "--id", f"asks-{number}"], environment)
    for words in commands.values():
        _run(words(0), environment)  # compiles what has changed
    return commands, environment


def _installed(plan: Plan) -> dict[str, str]:
    """An environment in which modules are compiled once, as those of an installed package are."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(plan.directory / "bytecode")}


def _run(words: list[str], environment: dict[str, str]) -> float:
    """Milliseconds of one command."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "holdfast.cli", *words], check=True, env=environment, capture_output=True)
    return (time.perf_counter() - began) * 1000


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "cli-time": cli_time,
    "cli-instructions": cli_instructions,
}
