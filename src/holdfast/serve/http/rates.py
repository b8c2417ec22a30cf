"""How often a token may write, and how many streams it may have open."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.serve.http.limits import MAX_STREAMS, WRITES_BURST, WRITES_PER_S
from holdfast.serve.http.problems import ApiError


@dataclass
class _Bucket:
    left: float
    at: float
    streams: int = 0


@dataclass
class Rates:
    """A bucket of writes for each token: full at first, and filled up again as time passes."""

    monotonic: Callable[[], float]
    per_s: float = WRITES_PER_S
    burst: int = WRITES_BURST
    streams: int = MAX_STREAMS
    _buckets: dict[str, _Bucket] = field(default_factory=dict)

    def check_write(self, token_id: str) -> None:
        """Count a write. Raises a 429 that says when the next one is welcome."""
        bucket = self._bucket(token_id)
        if bucket.left < 1:
            wait_s = math.ceil((1 - bucket.left) / self.per_s)
            why = f"more than {self.per_s:g} writes a second with one token; the next is welcome in {wait_s} s"
            limit = f'"writes";r=0;t={wait_s}'
            raise ApiError(429, "too_many_requests", why, {"retry-after": str(wait_s), "ratelimit": limit})
        bucket.left -= 1

    def open_stream(self, token_id: str) -> None:
        """Count a stream that is opened. Raises a 429 if there are too many."""
        bucket = self._bucket(token_id)
        if bucket.streams >= self.streams:
            why = f"{bucket.streams} streams are open with this token, which is as many as there may be; close one"
            raise ApiError(429, "too_many_streams", why, {"retry-after": "5"})
        bucket.streams += 1

    def close_stream(self, token_id: str) -> None:
        """Count a stream that has ended."""
        self._bucket(token_id).streams -= 1

    def _bucket(self, token_id: str) -> _Bucket:
        now = self.monotonic()
        bucket = self._buckets.get(token_id)
        if bucket is None:
            self._forget(now)
            bucket = self._buckets[token_id] = _Bucket(float(self.burst), now)
        bucket.left = min(float(self.burst), bucket.left + (now - bucket.at) * self.per_s)
        bucket.at = now
        return bucket

    def _forget(self, now: float) -> None:
        """Forget buckets that are full again: a new one would be the same."""
        full_after = self.burst / self.per_s
        for token_id in [id for id, each in self._buckets.items() if not each.streams and now - each.at > full_after]:
            del self._buckets[token_id]
