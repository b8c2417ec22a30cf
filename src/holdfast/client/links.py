"""Links of a server: made for a question that waits, and used by somebody without a token to look at it and answer."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from holdfast.client.api_client import ApiClient
from holdfast.client.reports import LinkedQuestion, SignedLink
from holdfast.client.wire import answer_body


class LinksClient:
    """What a server is asked about links to single questions."""

    _client: ApiClient

    async def link(self, session_id: str, query_id: str, *, expires_s: float | None = None) -> SignedLink:
        """A link to a question that waits: whoever has it may answer this one question, for seven days by default."""
        body = {} if expires_s is None else {"expires_s": expires_s}
        shown = await self._client.post(f"/sessions/{session_id}/queries/{query_id}/link", body)
        return msgspec.convert(shown, SignedLink)

    async def linked_question(self, url: str) -> LinkedQuestion:
        """The question of a link, or who has answered it. Looking changes nothing; no token is needed."""
        return msgspec.convert(await self._client.get(_path_of(url)), LinkedQuestion)

    async def answer_link(self, url: str, value: Any, *, by: str = "") -> LinkedQuestion:
        """Answer the question of a link; `by` is who does it, in their own words. No token is needed."""
        body = {**answer_body(value), "by": by}
        return msgspec.convert(await self._client.post(f"{_path_of(url)}/answer", body), LinkedQuestion)


def _path_of(url: str) -> str:
    """Where the API has a link, of which the last part of the URL is the signature."""
    return f"/links/{quote(urlsplit(url).path.rpartition('/')[2], safe='')}"
