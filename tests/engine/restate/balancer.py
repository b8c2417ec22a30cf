"""A balancer for tests: passes each connection on to the worker that has the fewest, and ends it with its worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

CHUNK = 65_536

ROUNDS = 10
"""Turns of the loop in which an accepted connection comes to be passed on: several more than it takes."""


class Balancer:
    """Listens on one port for all the workers of a fleet."""

    def __init__(self) -> None:
        self.backends: list[int] = []
        """The ports of the workers. One that does not answer is passed over."""
        self._open: Counter[int] = Counter()
        self._passing: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls) -> AsyncIterator[Balancer]:
        balancer = cls()
        server = await asyncio.start_server(balancer._accept, "127.0.0.1", 0)
        balancer.port = server.sockets[0].getsockname()[1]
        try:
            yield balancer
        finally:
            server.close()
            for _ in range(ROUNDS):  # what was accepted just now has not begun yet, and could not close its connection
                await asyncio.sleep(0)
            for task in list(balancer._passing):
                task.cancel()
            await asyncio.gather(*balancer._passing, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            await self._pass_on(reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._passing.discard(task)
            await _close(writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in sorted(self.backends, key=lambda port: self._open[port]):
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            self._open[port] += 1
            try:
                both = [
                    asyncio.create_task(_pump(reader, far_writer)),
                    asyncio.create_task(_pump(far_reader, writer)),
                ]
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each in both:
                        each.cancel()
                    await asyncio.gather(*both, return_exceptions=True)
            finally:
                self._open[port] -= 1
                await _close(far_writer)
            return


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
