"""Instructions of a piece of work, counted with valgrind's callgrind: figures without noise, on a busy machine too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
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
    call = f"from bench import {module}; {module}.{function}(*{arguments!r})"
    *marked, _ = _counted(plan, ["-c", call], os.environ)
    if len(marked) < 2:
        raise UnavailableError(f"callgrind does not see where this Python calls {_MARK}")
    return marked[1:]


def count_command(plan: Plan, words: Sequence[str], environment: Mapping[str, str]) -> int:
    """User-space instructions of a whole `holdfast` command, from its start to its end."""
    return sum(_counted(plan, ["-m", "holdfast.cli", *words], environment))


def _counted(plan: Plan, words: Sequence[str], environment: Mapping[str, str]) -> list[int]:
    """Instructions of this Python up to each mark in turn, and then to its end."""
    with tempfile.TemporaryDirectory(dir=plan.directory, prefix="callgrind-") as directory:
        kept = Path(directory) / "counted"
        done = subprocess.run(
            [
                *("valgrind", "--tool=callgrind", f"--dump-before={_MARK}", f"--callgrind-out-file={kept}"),
                *(sys.executable, *words),
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**environment, "HOLDFAST_PATIENCE": PATIENCE, "PYTHONHASHSEED": SEED},
        )
        if done.returncode:
            raise AssertionError(f"{' '.join(words)} failed: {done.stderr.strip()[-2000:]}")
        parts = sorted(Path(directory).glob("counted.*"), key=lambda part: int(part.suffix[1:]))
        return [int(_SUMMARY.findall(part.read_text())[-1]) for part in [*parts, kept]]


def instructions(plan: Plan, name: str, found: float, limit: int | None = None) -> Figure:
    """A figure of instructions, and the most that they should be."""
    plan.say(f"{name}: {found:,.0f} instructions")
    targets = [] if limit is None else [Target("value", "<=", limit)]
    return Figure(name, "instructions", [Round(found)], targets=targets)
