"""A clock that tests set, forwards and backwards."""

from __future__ import annotations

import time
from datetime import UTC, datetime

MINUTE = 60_000
HOUR = 60 * MINUTE
NOON = round(datetime(2026, 7, 1, 12, 0, tzinfo=UTC).timestamp() * 1000)


class SetClock:
    """Stands still until it is set. What waits for a time is looked at once a second, as with any timer."""

    def __init__(self, at: int = NOON) -> None:
        self.at = at

    def now(self) -> int:
        return self.at

    def monotonic(self) -> float:
        return time.monotonic()

    @property
    def is_settled(self) -> bool:
        return True
