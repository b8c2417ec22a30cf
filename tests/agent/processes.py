"""Agents in processes of their own, for tests with several: see `queue_child`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from holdfast.testing.patience import soon
from tests.paths import REPO


class Process:
    """A process with agents."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {0: asyncio.get_running_loop().create_future()}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, url: str, **options: Any) -> AsyncIterator[Process]:
        """One on a store; it is gone at the end, as after `kill -9`."""
        command = (sys.executable, "-m", "tests.agent.queue_child", url, json.dumps(options))
        pipe = asyncio.subprocess.PIPE
        process = cls(await asyncio.create_subprocess_exec(*command, cwd=REPO, stdin=pipe, stdout=pipe))
        try:
            await soon(process._asked[0])
            yield process
        finally:
            await process.kill()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            number, outcome = json.loads(line)
            self._asked[number].set_result(outcome)

    def begin(self, what: str, **arguments: Any) -> asyncio.Future[Any]:
        """Let it do something; the future of what comes of it."""
        number = next(self._numbers)
        outcome = self._asked[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([number, what, arguments]).encode() + b"\n")
        return outcome

    async def do(self, what: str, **arguments: Any) -> Any:
        """Let it do something, and wait for what comes of it."""
        return await soon(self.begin(what, **arguments))

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reader
