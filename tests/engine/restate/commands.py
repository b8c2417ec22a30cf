"""Workers that are started with the command, and what `holdfast dispatch` says of them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from contextlib import AbstractContextManager
from typing import Any

from click.testing import CliRunner

from holdfast.cli.group import cli
from tests.engine.dispatchers.commands import worker_command
from tests.engine.restate.fleet import RestateFleet


def worker(fleet: RestateFleet, port: int) -> AbstractContextManager[subprocess.Popen[str]]:
    """A worker that the engine finds where it listens."""
    return worker_command(fleet, "--listen", f"127.0.0.1:{port}", "--register", fleet.servers[0].admin)


async def dispatch(fleet: RestateFleet, command: str) -> dict[str, Any]:
    words = ["dispatch", command, "--dispatch", fleet.dispatch, "--admin", fleet.servers[0].admin, "--json"]
    result = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


async def is_brought_to(fleet: RestateFleet, port: int) -> bool:
    return bool((await dispatch(fleet, "status"))["deployment"] == f"http://127.0.0.1:{port}/")
