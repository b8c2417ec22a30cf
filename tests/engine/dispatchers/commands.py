"""Workers that are started with the command, as an operator does."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from tests.engine.dispatchers.fleet import Fleet
from tests.paths import REPO

MODULE = "tests.engine.dispatchers.steps"


@contextlib.contextmanager
def worker_command(fleet: Fleet, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that takes the steps of `steps`."""
    words = ["worker", "--store", fleet.url, "--dispatch", fleet.dispatch, "--json"]
    words += ["--serve", f"{MODULE}:steps", "--tool", f"{MODULE}:step", *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", *words], cwd=REPO, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
