"""Callers: those in this process who wait for a session to change, until the process lets go of its sessions.

A caller that is part of an effect, as a tool is that runs a child session, is told nothing: it is cancelled with its
effect, so that nobody takes the shutdown for an outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

from holdfast.engine.errors import RuntimeClosedError
from holdfast.engine.slots import current_slot
from holdfast.store.watch import Watch


class Callers:
    """All who wait for sessions of one engine. When it is closed, they get `RuntimeClosedError` instead of waiting."""

    def __init__(self, watch: Callable[[str | None], Watch]) -> None:
        self._watch = watch
        self._watches: dict[CallerWatch, None] = {}
        self._until_released: dict[str, list[asyncio.Future[None]]] = {}
        """Those who wait for a session to be released here, by session."""
        self.is_closed = False
        """Whether this process is letting go of its sessions: nothing new is begun."""

    def watch(self, session_id: str | None) -> CallerWatch:
        """A watch on a session, or on all, for somebody who waits."""
        watch = CallerWatch(self, session_id, self._watch(session_id))
        self._watches[watch] = None
        return watch

    def forget(self, watch: CallerWatch) -> None:
        """Somebody has stopped waiting."""
        self._watches.pop(watch, None)

    async def until_released(self, session_id: str) -> None:
        """Wait until this process does not hold a session any more; `RuntimeClosedError` once the engine is closed."""
        released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._until_released.setdefault(session_id, []).append(released)
        slot = current_slot.get()
        if slot is None:
            await released
        else:
            async with slot.given_back():
                await released
        self.check_open(session_id)

    def released(self, session_id: str) -> None:
        """This process does not hold a session any more."""
        for waiting in self._until_released.pop(session_id, ()):
            if not waiting.done():
                waiting.set_result(None)

    def close(self) -> None:
        """Let nobody wait any longer."""
        self.is_closed = True
        for watch in self._watches:
            watch.notify()
        for session_id in list(self._until_released):
            self.released(session_id)

    def check_open(self, session_id: str | None) -> None:
        """Raise `RuntimeClosedError` if the engine is closed, unless the caller is part of an effect."""
        if self.is_closed and current_slot.get() is None:
            raise RuntimeClosedError(session_id)

    @asynccontextmanager
    async def waiting(self, session_id: str | None) -> AsyncIterator[None]:
        """Somebody waits inside: its effect gives back its slot. `RuntimeClosedError` once the engine is closed."""
        self.check_open(session_id)
        slot = current_slot.get()
        if slot is None:
            yield
        else:
            async with slot.given_back():
                yield
        self.check_open(session_id)


class CallerWatch:
    """Wakes a caller when a session may have changed, and when the engine is closed."""

    def __init__(self, callers: Callers, session_id: str | None, watch: Watch) -> None:
        self._callers = callers
        self._session_id = session_id
        self._watch = watch

    def notify(self) -> None:
        """Wake the caller."""
        self._watch.notify()

    async def changed(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as `Watch.changed`
        """As `Watch.changed`; raises `RuntimeClosedError` once the engine is closed."""
        callers, slot = self._callers, current_slot.get()
        callers.check_open(self._session_id)
        if slot is None:
            has_changed = await self._watch.changed(timeout)
        else:
            async with slot.given_back():
                has_changed = await self._watch.changed(timeout)
        callers.check_open(self._session_id)
        return has_changed

    async def woken(self) -> bool:
        """As `changed`, for a part of a caller which says elsewhere that it waits."""
        return await self._watch.changed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._callers.forget(self)
        self._watch.__exit__(None, None, None)
