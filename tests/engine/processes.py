"""Engines in processes of their own, for tests with several: see `process_child`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from holdfast.testing.patience import soon
from tests.paths import REPO


class Process:
    """An engine in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, ledger: Path) -> None:
        self._process = process
        self._ledger = ledger
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {0: asyncio.get_running_loop().create_future()}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, url: str, ledger: Path, before: Sequence[str] = (), **options: Any) -> AsyncIterator[Process]:
        """With `before`, that command runs it: on another host, say."""
        own = (sys.executable, "-m", "tests.engine.process_child", url, str(ledger), json.dumps(options))
        command = (*before, *own)
        pipe = asyncio.subprocess.PIPE
        process = cls(await asyncio.create_subprocess_exec(*command, cwd=REPO, stdin=pipe, stdout=pipe), ledger)
        try:
            await soon(process._waiting[0])
            yield process
        finally:
            await process.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            number, outcome = json.loads(line)
            self._waiting.pop(number).set_result(outcome) if number else self._waiting[0].set_result(outcome)

    def call(self, name: str, **arguments: Any) -> asyncio.Future[Any]:
        """Begin something there; the future of its outcome."""
        number = next(self._numbers)
        outcome = self._waiting[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([number, name, arguments]).encode() + b"\n")
        return outcome

    async def do(self, name: str, **arguments: Any) -> Any:
        """Have something done there."""
        outcome = await soon(self.call(name, **arguments))
        assert not (isinstance(outcome, dict) and "broken" in outcome), outcome["broken"]
        return outcome

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def kill(self) -> None:
        if self.is_alive:
            self._process.kill()
        await self._process.wait()
        await self._reader


Start = Callable[..., AbstractAsyncContextManager[Process]]
