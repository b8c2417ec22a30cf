"""Watches and live streams: how changes and live messages reach those who wait for them in this process.

All of it belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Self, TypeAlias

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.store.limits import LIVE_BYTES, LIVE_STREAM_BYTES, LIVE_STREAM_MESSAGES


class Watch:
    """Wakes whoever waits for changes of one session, or of all. Get it, read, then wait: no change is missed."""

    def __init__(self, forget: Callable[[Watch], None], *, own: bool = True) -> None:
        self._event = asyncio.Event()
        self._forget = forget
        self.own = own
        """Whether it is told of commits that are made here, too."""

    def notify(self) -> None:
        self._event.set()

    async def changed(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - a wait that may end empty-handed
        """Wait until something may have changed since the last call; False when `timeout` seconds passed first."""
        if timeout is None:
            await self._event.wait()
        else:
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
        self._by_session: dict[str | None, dict[Watch, None]] = {}
        """Woken in the order in which they were made."""
        self._for_others: dict[Watch, None] = {}
        """Those that are told only of what others have changed."""

    def __bool__(self) -> bool:
        return bool(self._by_session) or bool(self._for_others)

    def add(self, session_id: str | None, *, own: bool = True) -> Watch:
        watch = Watch(lambda gone: self._remove(session_id, gone), own=own)
        self._by_session.setdefault(session_id, {})[watch] = None
        return watch

    def add_for_others(self) -> Watch:
        """A watch that is told only of what others have changed."""
        watch = Watch(lambda gone: self._for_others.pop(gone, None) and None)
        self._for_others[watch] = None
        return watch

    def notify_of_others(self) -> None:
        """Others have changed something."""
        for watch in self._for_others:
            watch.notify()

    def _remove(self, session_id: str | None, gone: Watch) -> None:
        watches = self._by_session.get(session_id, {})
        watches.pop(gone, None)
        if not watches:
            self._by_session.pop(session_id, None)

    def notify_all(self) -> None:
        for watches in self._by_session.values():
            for watch in watches:
                watch.notify()

    def notify(self, session_id: str) -> None:
        """A session has changed."""
        if self._by_session:
            for watch in self._of(session_id):
                watch.notify()

    def committed(self, session_id: str) -> None:
        """A commit to a session was made here."""
        if self._by_session:
            for watch in self._of(session_id):
                if watch.own:
                    watch.notify()

    def _of(self, session_id: str) -> Iterable[Watch]:
        return (*self._by_session.get(session_id, ()), *self._by_session.get(None, ()))


# --- live messages ---------------------------------------------------------------------------------


class MissedMessages(msgspec.Struct, frozen=True):
    """Messages were lost here; nobody knows how many."""


LiveItem: TypeAlias = bytes | MissedMessages


class LiveStream:
    """The live messages of one session, as one listener gets them. Keeps the latest for a listener that is slow."""

    def __init__(self, forget: Callable[[LiveStream], None]) -> None:
        self._forget = forget
        self._items: list[LiveItem] = []
        self._bytes = 0
        self._event = asyncio.Event()

    def put(self, item: LiveItem) -> None:
        """Add what was published just now."""
        if isinstance(item, MissedMessages):
            if self._items and isinstance(self._items[-1], MissedMessages):
                return
        else:
            self._bytes += len(item)
        self._items.append(item)
        if len(self._items) > LIVE_STREAM_MESSAGES or self._bytes > LIVE_STREAM_BYTES:
            self._drop_oldest()
        self._event.set()

    def _drop_oldest(self) -> None:
        dropped = 0
        while len(self._items) - dropped >= LIVE_STREAM_MESSAGES or self._bytes > LIVE_STREAM_BYTES:
            oldest = self._items[dropped]
            self._bytes -= 0 if isinstance(oldest, MissedMessages) else len(oldest)
            dropped += 1
        self._items[:dropped] = [MissedMessages()]

    async def read(self, timeout: float | None = None) -> list[LiveItem]:  # noqa: ASYNC109 - as `Watch.changed`
        """What came since the last call, in order: at least one item, or none when `timeout` seconds passed first."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return []
        self._event.clear()
        items, self._items, self._bytes = self._items, [], 0
        return items

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget(self)


class LiveStreams:
    """The live streams of one open store, by session. Used by the stores."""

    def __init__(self) -> None:
        self.by_session: dict[str, dict[LiveStream, None]] = {}

    def add(self, session_id: str) -> LiveStream:
        stream = LiveStream(lambda gone: self._remove(session_id, gone))
        self.by_session.setdefault(session_id, {})[stream] = None
        return stream

    def _remove(self, session_id: str, gone: LiveStream) -> None:
        streams = self.by_session.get(session_id, {})
        streams.pop(gone, None)
        if not streams:
            self.by_session.pop(session_id, None)

    def put(self, session_id: str, item: LiveItem) -> None:
        for stream in self.by_session.get(session_id, ()):
            stream.put(item)


def live_item(payload: bytes) -> LiveItem:
    """What listeners get for a payload: one that is too large is lost."""
    if not isinstance(payload, bytes):
        raise InvalidValueError("live message", f"expected bytes, got {type(payload).__name__}")
    return payload if len(payload) <= LIVE_BYTES else MissedMessages()
