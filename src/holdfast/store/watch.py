"""How changes and live messages reach whoever waits for them in this process. All of it belongs to one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self, TypeAlias

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.store.limits import LIVE_BYTES, LIVE_EAR_BYTES, LIVE_EAR_MESSAGES


class Watch:
    """A wake-up for one session, or for all. Get it, read, then wait: no change in between is missed."""

    def __init__(self, forget: Callable[[Watch], None]) -> None:
        self._event = asyncio.Event()
        self._forget = forget

    def notify(self) -> None:
        self._event.set()

    async def changed(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - a wait that may end empty-handed
        """Wait until something may have changed since the last call; False when `timeout` seconds passed first."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget(self)


class Watches:
    """The watches of one open store, by session. Used by the stores; belongs to one event loop."""

    def __init__(self) -> None:
        self._by_session: dict[str | None, set[Watch]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_session)

    def add(self, session_id: str | None) -> Watch:
        watch = Watch(lambda gone: self._remove(session_id, gone))
        self._by_session.setdefault(session_id, set()).add(watch)
        return watch

    def _remove(self, session_id: str | None, gone: Watch) -> None:
        watches = self._by_session.get(session_id, set())
        watches.discard(gone)
        if not watches:
            self._by_session.pop(session_id, None)

    def notify_all(self) -> None:
        for watches in self._by_session.values():
            for watch in watches:
                watch.notify()

    def notify(self, session_id: str) -> None:
        for watch in (*self._by_session.get(session_id, ()), *self._by_session.get(None, ())):
            watch.notify()


# --- live messages ---------------------------------------------------------------------------------


class Missed(msgspec.Struct, frozen=True):
    """Messages were lost here; nobody knows how many."""


Heard: TypeAlias = bytes | Missed


class Ear:
    """Hears the live messages of one session, and keeps the latest of them for whoever is slow."""

    def __init__(self, forget: Callable[[Ear], None]) -> None:
        self._forget = forget
        self._heard: list[Heard] = []
        self._bytes = 0
        self._event = asyncio.Event()

    def hear(self, heard: Heard) -> None:
        if isinstance(heard, Missed):
            if self._heard and isinstance(self._heard[-1], Missed):
                return
        else:
            self._bytes += len(heard)
        self._heard.append(heard)
        if len(self._heard) > LIVE_EAR_MESSAGES or self._bytes > LIVE_EAR_BYTES:
            self._drop_oldest()
        self._event.set()

    def _drop_oldest(self) -> None:
        dropped = 0
        while len(self._heard) - dropped >= LIVE_EAR_MESSAGES or self._bytes > LIVE_EAR_BYTES:
            oldest = self._heard[dropped]
            self._bytes -= 0 if isinstance(oldest, Missed) else len(oldest)
            dropped += 1
        self._heard[:dropped] = [Missed()]

    async def heard(self, timeout: float | None = None) -> list[Heard]:  # noqa: ASYNC109 - as `Watch.changed`
        """What was heard since the last call, in order: at least one, or none when `timeout` seconds passed first."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return []
        self._event.clear()
        heard, self._heard, self._bytes = self._heard, [], 0
        return heard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget(self)


class Ears:
    """The ears of one open store, by session. Used by the stores."""

    def __init__(self) -> None:
        self._by_session: dict[str, set[Ear]] = {}

    def add(self, session_id: str) -> Ear:
        ear = Ear(lambda gone: self._remove(session_id, gone))
        self._by_session.setdefault(session_id, set()).add(ear)
        return ear

    def _remove(self, session_id: str, gone: Ear) -> None:
        ears = self._by_session.get(session_id, set())
        ears.discard(gone)
        if not ears:
            self._by_session.pop(session_id, None)

    def tell(self, session_id: str, heard: Heard) -> None:
        for ear in self._by_session.get(session_id, ()):
            ear.hear(heard)


def sent(payload: bytes) -> Heard:
    """What listeners hear of a payload: too large a one is lost."""
    if not isinstance(payload, bytes):
        raise InvalidValueError("live message", f"expected bytes, got {type(payload).__name__}")
    return payload if len(payload) <= LIVE_BYTES else Missed()
