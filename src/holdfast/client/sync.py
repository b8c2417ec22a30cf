"""The client without `await`: the same methods, each of which waits for its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from holdfast.client.holdfast import HoldfastClient
from holdfast.client.reports import (
    InstalledReport,
    LinkedQuestion,
    PackagesReport,
    PastItemsPage,
    RemovedReport,
    SignedLink,
)
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

    # --- what only a server has --------------------------------------------------------------------

    def past_items(self, session_id: str, *, before: int | None = None, limit: int = 50) -> PastItemsPage:
        return self._wait(self._remote.past_items(session_id, before=before, limit=limit))

    def link(self, session_id: str, query_id: str, *, expires_s: float | None = None) -> SignedLink:
        return self._wait(self._remote.link(session_id, query_id, expires_s=expires_s))

    def linked_question(self, url: str) -> LinkedQuestion:
        return self._wait(self._remote.linked_question(url))

    def answer_link(self, url: str, value: Any, *, by: str = "") -> LinkedQuestion:
        return self._wait(self._remote.answer_link(url, value, by=by))

    def packages(self) -> PackagesReport:
        return self._wait(self._remote.packages())

    def check_packages(self) -> dict[str, Any]:
        return self._wait(self._remote.check_packages())

    def install_packages(
        self, sources: Sequence[str], *, name: str | None = None, force: bool = False
    ) -> InstalledReport:
        return self._wait(self._remote.install_packages(sources, name=name, force=force))

    def remove_package(self, name: str, *, scope: Literal["project", "global", "all"] | None = None) -> RemovedReport:
        return self._wait(self._remote.remove_package(name, scope=scope))

    @property
    def _remote(self) -> HoldfastClient:
        client: Any = self._hf
        assert isinstance(client, HoldfastClient)
        return client

    async def _open(self) -> Any:
        return await HoldfastClient(*self._client).__aenter__()


def connect_sync(url: str, token: str | None = None) -> SyncHoldfastClient:
    """Sessions on a server: `with holdfast.connect_sync("http://127.0.0.1:8420", token) as hf: …`."""
    return SyncHoldfastClient(url, token)
