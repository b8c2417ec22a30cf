"""Workers of a fleet, each in a process of its own, which can be killed and begun again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

from holdfast.testing.patience import soon
from tests.fleet.ledger import Ledger
from tests.paths import REPO


class Workers:
    """The workers on a store, by number."""

    def __init__(self, url: str, ledger: Ledger) -> None:
        self.url = url
        self.ledger = ledger
        self.dead: set[int] = set()
        """The processes that were killed."""
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, url: str, ledger: Ledger) -> AsyncIterator[Workers]:
        workers = cls(url, ledger)
        try:
            yield workers
        finally:
            for number in list(workers._processes):
                await workers.kill(number)

    def pid(self, number: int) -> int:
        return self._processes[number].pid

    def number(self, pid: int) -> int:
        return next(number for number, process in self._processes.items() if process.pid == pid)

    async def start(self, number: int, namespace: str = "", **options: Any) -> None:
        """Start one, and wait until it is ready; on another host if its network namespace is named."""
        own = [self.url, str(self.ledger.path), json.dumps(options), *([namespace] if namespace else [])]
        command = (sys.executable, "-m", "tests.fleet.child", *own)
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, cwd=REPO, stdin=pipe, stdout=pipe)
        self._processes[number] = process
        assert process.stdout is not None
        assert await soon(process.stdout.readline()) == b"ready\n"

    async def kill(self, number: int) -> None:
        """End one at once, as a power failure would."""
        process = self._processes.pop(number)
        self.dead.add(process.pid)
        if process.returncode is None:
            process.kill()
        await process.wait()
