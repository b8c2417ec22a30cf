"""Links to single questions, for people without a token: signed, for one query, and only for some days."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from holdfast.serve.http.problems import ApiError
from holdfast.store.contract import Store
from holdfast.store.errors import StateConflictError

NAMESPACE, KEY = "http.keys", "links"
"""Where the key is that links are signed with, in the state of the store: so every server of it knows them."""


@dataclass(frozen=True)
class QuestionLink:
    """What a link speaks of."""

    session_id: str
    query_id: str
    expires_at: int


class Links:
    """Makes links, and reads those that were made here."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now
        self._key: bytes | None = None

    async def sign(self, link: QuestionLink) -> str:
        """The last part of the URL of a link."""
        body = msgspec.json.encode([link.session_id, link.query_id, link.expires_at])
        return _text(body) + "." + _text(self._signature(await self.secret(), body))

    async def read(self, signed: str) -> QuestionLink:
        """What a link speaks of. Raises a 404 for one that was not made here, and a 410 for one that is too old."""
        unknown = ApiError(404, "unknown_link", "there is no such link; ask whoever sent it for a new one")
        body, _, mark = signed.partition(".")
        try:
            raw, signature = _bytes(body), _bytes(mark)
        except ValueError:
            raise unknown from None
        if not hmac.compare_digest(signature, self._signature(await self.secret(), raw)):
            raise unknown
        link = QuestionLink(*msgspec.json.decode(raw, type=tuple[str, str, int]))
        if link.expires_at <= self._now():
            raise ApiError(410, "link_expired", "the time of this link is over; ask whoever sent it for a new one")
        return link

    async def secret(self) -> bytes:
        while self._key is None:
            item = await self._store.get_state(NAMESPACE, KEY)
            if item is not None and isinstance(item.value, str):
                self._key = bytes.fromhex(item.value)
                break
            try:
                await self._store.put_state(NAMESPACE, KEY, secrets.token_hex(32), expected=0)
            except StateConflictError:
                continue  # another server was first
        return self._key

    @staticmethod
    def _signature(key: bytes, body: bytes) -> bytes:
        return hmac.digest(key, body, hashlib.sha256)[:18]


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
