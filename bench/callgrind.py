"""Instructions of a piece of work, counted with valgrind's callgrind: figures without noise, on a busy machine too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from bench import Plan, UnavailableError

PATIENCE = "1000"
"""Limits read off a wall clock would send steps and commits to threads, because callgrind is fifty times slower."""

SEED = "0"
"""Of the hashes of texts: with one of its own, each process would probe its dictionaries in another order."""

_COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")


def require_callgrind() -> None:
    """Raise `UnavailableError` if nothing can be counted on this machine."""
    if shutil.which("valgrind") is None:
        raise UnavailableError("valgrind is not installed")


def difference(plan: Plan, module: str, function: str, fewer: tuple[object, ...], more: tuple[object, ...]) -> int:
    """User-space instructions that `module.function` of this package takes more with one set of arguments.

    Each is a process of its own. What both do cancels out: imports, opening, warming up.
    """
    less, all_of_it = (_count(plan, module, function, arguments) for arguments in (fewer, more))
    return all_of_it - less


def _count(plan: Plan, module: str, function: str, arguments: tuple[object, ...]) -> int:
    program = f"from bench import {module}; {module}.{function}(*{arguments!r})"
    return instructions_of(plan, f"{module}-{function}", program)


def instructions_of(plan: Plan, name: str, program: str) -> int:
    """The instructions of a process that runs this Python program."""
    kept = plan.directory / f"callgrind-{name}"
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={kept}", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOLDFAST_PATIENCE": PATIENCE, "PYTHONHASHSEED": SEED},
    )
    counted = _COUNTED.findall(done.stderr)
    if done.returncode or not counted:
        raise AssertionError(f"{name} failed: {done.stderr.strip()[-2000:]}")
    return int(counted[-1].replace(",", ""))
