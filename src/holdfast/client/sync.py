"""The client without `await`: the same methods, each of which waits for its answer."""

from __future__ import annotations

from typing import Any

from holdfast.client.holdfast import HoldfastClient
from holdfast.core.errors import InvalidValueError
from holdfast.core.events import Event
from holdfast.engine.sync import SyncHoldfast


class SyncHoldfastClient(SyncHoldfast):
    """`HoldfastClient` for programs that do not use asyncio. Methods, arguments and results are the same."""

    def __init__(self, url: str, token: str | None = None) -> None:
        super().__init__(url)
        self._client = (url, token)

    def cancel(self, session_id: str, reason: str | None = None, *, by: str | None = None) -> Event:
        """End a session. Who does it is whoever the token belongs to, and not said by the client."""
        if by is not None:
            raise InvalidValueError("by", "a server records whose token a request came with")
        event: Event = self._wait(self._hf.cancel(session_id, reason))
        return event

    async def _open(self) -> Any:
        return await HoldfastClient(*self._client).__aenter__()


def connect_sync(url: str, token: str | None = None) -> SyncHoldfastClient:
    """Sessions on a server: `with holdfast.connect_sync("http://127.0.0.1:8420", token) as hf: …`."""
    return SyncHoldfastClient(url, token)
