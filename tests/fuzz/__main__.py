"""`make fuzz`: round after round of the fuzz tests on other random inputs, until the time is over or one fails."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.fuzzer import COUNTS, FACTOR, SEED
from tests.paths import REPO

SECONDS = "FUZZ_SECONDS"
"""Names the variable with the seconds that all rounds take together; the last one may take a little longer."""

ROUND_S = 60.0
"""Seconds that a round should take: long enough that starting it counts little, short enough to show progress."""

FIRST_FACTOR = 4.0
"""How many times as many inputs as the suite's the first round tries; later rounds follow the time it took."""

MOST_GROWTH = 3.0
"""How many times as many inputs a round may try as the one before."""

LINE_CHARS = 500
"""Characters of a line that are printed of a failure: inputs are long, and a seed is enough to see one again."""


def main() -> int:
    total = float(os.environ.get(SECONDS, "600"))
    paths = sys.argv[1:] or [str(Path(__file__).parent)]
    began, factor, number, tried = time.monotonic(), FIRST_FACTOR, 0, 0
    while (left := total - (time.monotonic() - began)) > 0:
        number += 1
        seed = int(os.environ.get(SEED) or secrets.randbits(32))
        start = time.monotonic()
        result, inputs = _round(paths, seed, factor)
        took = time.monotonic() - start
        tried += inputs
        counts = f"{inputs} inputs, {tried} in all  {_summary(result.stdout)}"
        print(f"round {number}  seed {seed}  factor {factor:.0f}  {took:.0f} s  {counts}", flush=True)
        if result.returncode != 0:
            print("\n".join(line[:LINE_CHARS] for line in (result.stdout + result.stderr).splitlines()))
            return 1
        print(f"    {max(0.0, left - took):.0f} s left", flush=True)
        factor *= min(MOST_GROWTH, max(0.25, ROUND_S / took))
    return 0


def _round(paths: list[str], seed: int, factor: float) -> tuple[subprocess.CompletedProcess[str], int]:
    """How a round ended, and how many inputs it tried."""
    workers = os.environ.get("HOLDFAST_TEST_WORKERS", str(os.cpu_count() or 1))
    command = [sys.executable, "-m", "pytest", "-k", "random", "-n", workers, "--dist", "worksteal", *paths]
    with tempfile.NamedTemporaryFile("r", encoding="ascii") as counts:
        env = {**os.environ, SEED: str(seed), FACTOR: f"{factor:.2f}", COUNTS: counts.name}
        result = subprocess.run(command, env=env, cwd=REPO, capture_output=True, text=True, check=False)
        return result, sum(int(line) for line in counts)


def _summary(output: str) -> str:
    counts = re.findall(r"\d+ (?:passed|failed|error)", output)
    return ", ".join(counts) or f"{output.count('.')} tests passed"


if __name__ == "__main__":
    sys.exit(main())
