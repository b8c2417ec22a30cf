"""Who listens to live messages, as far as it is known here: what nobody listens to need not be sent to the server.

Whoever begins to listen to a channel announces it, and again every few seconds while it does. Whoever connects asks,
and gets the answers within moments. Until then, and while there is no connection, anyone may be listening.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from holdfast.store.limits import CONNECT_TIMEOUT_S
from holdfast.store.postgres.live import CHANNEL_NAMES

CHANNEL = "holdfast_audience"

ANNOUNCE_S = 10.0
"""Seconds between two announcements of those who listen."""

KEEP_S = 3 * ANNOUNCE_S
"""Seconds for which a listener is believed to be there: an announcement or two may be late."""

ANSWER_S = 1.0
"""Seconds that listeners have to answer who has just connected."""

_ASKS = "?"
_SEND = "select pg_notify($1, $2)"


class Audience:
    """The channels that somebody listens to, in this process or in another one."""

    def __init__(self, own: Collection[str], time: Callable[[], float], wake: Callable[[], None]) -> None:
        """`own` are the channels that are listened to here, and `wake` is called when others want to know."""
        self._own = own
        self._time = time
        self._wake = wake
        self._until: dict[str, float] = {}
        """When a channel is believed to be listened to no longer."""
        self._known_from: float | None = None
        """When everybody will have answered; None while there is no connection to hear them by."""
        self._announced: frozenset[str] = frozenset()
        self._announce_at = 0.0

    def may_hear(self, channel: str) -> bool:
        """Whether anybody may listen to a channel."""
        if channel in self._own or self._known_from is None:
            return True
        now = self._time()
        return now < self._known_from or now < self._until.get(channel, 0.0)

    async def connect(self, connection: Any) -> None:
        """Ask who listens, and hear it from now on."""
        await connection.add_listener(CHANNEL, self._heard)
        await connection.execute(_SEND, CHANNEL, _ASKS, timeout=CONNECT_TIMEOUT_S)
        self._known_from, self._announce_at = self._time() + ANSWER_S, 0.0

    def disconnect(self) -> None:
        """Nothing is heard any more."""
        self._known_from = None

    async def announce(self, connection: Any) -> None:
        """Tell others which channels are listened to here, if they have to be told now."""
        own, now = frozenset(self._own), self._time()
        if own and (now >= self._announce_at or not own <= self._announced):
            await connection.execute(_SEND, CHANNEL, " ".join(sorted(own)), timeout=CONNECT_TIMEOUT_S)
            self._announce_at = now + ANNOUNCE_S
        self._announced = own

    def _heard(self, _connection: Any, _backend: int, _channel: str, notice: str) -> None:
        if notice == _ASKS:
            self._announce_at = 0.0
            self._wake()
            return
        until = self._time() + KEEP_S
        self._until.update(dict.fromkeys(CHANNEL_NAMES.intersection(notice.split()), until))
