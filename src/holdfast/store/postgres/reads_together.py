"""Reads of single sessions that are wanted at about the same time are made in one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadsTogether(Generic[T]):
    """Reads rows by their keys. What is wanted while a statement is under way waits for the next one.

    So whoever asks gets what is stored then or later, and a process with many busy sessions makes few statements. One
    that wants a single row makes the same statement as it would alone, at once.
    """

    def __init__(self, read: Callable[[Collection[str]], Awaitable[Mapping[str, T]]]) -> None:
        """`read` gives what was found, by key."""
        self._read = read
        self._wanted: dict[str, asyncio.Future[T | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def get(self, key: str) -> T | None:
        """What is found by a key, if anything is; raises what the statement has raised."""
        if key not in self._wanted:
            self._wanted[key] = asyncio.get_running_loop().create_future()
        found = self._wanted[key]
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all())
        return await asyncio.shield(found)

    async def _read_all(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                await self._read_some(wanted)
        finally:
            self._reading = None
            for given_up in self._wanted.values():  # only if this task was cancelled
                given_up.cancel()
            self._wanted = {}

    async def _read_some(self, wanted: dict[str, asyncio.Future[T | None]]) -> None:
        try:
            found = await self._read(wanted)
        except BaseException as error:
            for future in wanted.values():
                if isinstance(error, Exception):
                    future.set_exception(error)
                    future.exception()  # whoever asked may not wait for it any more
                else:
                    future.cancel()
            if not isinstance(error, Exception):
                raise
        else:
            for key, future in wanted.items():
                future.set_result(found.get(key))
