"""Instructions of a piece of work, counted with valgrind's callgrind: figures without noise, on a busy machine too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import Figure, Plan, Round, Target, UnavailableError

PATIENCE = "1000"
"""Limits read off a wall clock would send steps and commits to threads, because callgrind is fifty times slower."""

SEED = "0"
"""Of the hashes of texts: with one of its own, each process would probe its dictionaries in another order."""

_MARK = "getpgrp"
"""A C function that nothing else calls: there callgrind writes down what it has counted, and begins anew."""

_SUMMARY = re.compile(r"^summary: (\d+)$", re.MULTILINE)


def require_callgrind() -> None:
    """Raise `UnavailableError` if nothing can be counted on this machine."""
    if shutil.which("valgrind") is None:
        raise UnavailableError("valgrind is not installed")


def mark() -> None:
    """What comes next is counted apart from what came before."""
    os.getpgrp()


def count(plan: Plan, module: str, function: str, *arguments: object) -> list[int]:
    """User-space instructions between the marks that a function of this package sets, in a process of its own."""
    with tempfile.TemporaryDirectory(dir=plan.directory, prefix="callgrind-") as directory:
        kept = Path(directory) / "counted"
        done = subprocess.run(
            [
                *("valgrind", "--tool=callgrind", f"--dump-before={_MARK}", f"--callgrind-out-file={kept}"),
                *(sys.executable, "-c", f"from bench import {module}; {module}.{function}(*{arguments!r})"),
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOLDFAST_PATIENCE": PATIENCE, "PYTHONHASHSEED": SEED},
        )
        if done.returncode:
            raise AssertionError(f"{module}.{function}{arguments} failed: {done.stderr.strip()[-2000:]}")
        parts = sorted(Path(directory).glob("counted.*"), key=lambda part: int(part.suffix[1:]))
        found = [int(_SUMMARY.findall(part.read_text())[-1]) for part in parts]
    if len(found) < 2:
        raise UnavailableError(f"callgrind does not see where this Python calls {_MARK}")
    return found[1:]


def instructions(plan: Plan, name: str, found: float, limit: int | None = None) -> Figure:
    """A figure of instructions, and the most that they should be."""
    plan.say(f"{name}: {found:,.0f} instructions")
    targets = [] if limit is None else [Target("value", "<=", limit)]
    return Figure(name, "instructions", [Round(found)], targets=targets)
