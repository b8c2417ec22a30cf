"""Workers that are started with the command, and what `holdfast dispatch` says of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from click.testing import CliRunner

from holdfast.cli.group import cli
from tests.engine.restate.fleet import Fleet
from tests.paths import REPO

MODULE = "tests.engine.restate.steps"


@contextlib.contextmanager
def worker(fleet: Fleet, port: int) -> Iterator[subprocess.Popen[str]]:
    """A worker that the engine finds where it listens."""
    words = ["worker", "--store", fleet.url, "--dispatch", fleet.dispatch, "--listen", f"127.0.0.1:{port}", "--json"]
    words += ["--register", fleet.servers[0].admin, "--serve", f"{MODULE}:steps", "--tool", f"{MODULE}:step"]
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


async def dispatch(fleet: Fleet, command: str) -> dict[str, Any]:
    words = ["dispatch", command, "--dispatch", fleet.dispatch, "--admin", fleet.servers[0].admin, "--json"]
    result = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


async def is_brought_to(fleet: Fleet, port: int) -> bool:
    return bool((await dispatch(fleet, "status"))["deployment"] == f"http://127.0.0.1:{port}/")
