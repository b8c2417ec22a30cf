"""Tokens: who a request is from, and what it may do.

A token is `hf_<id>_<secret>`. The store keeps the hash of the secret, so that whoever reads the store cannot use it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.core.errors import InvalidValueError, SessionNotFoundError
from holdfast.core.ids import check_id
from holdfast.serve.http.endpoint import TokenScope
from holdfast.serve.http.limits import TOKEN_CACHE_S
from holdfast.serve.http.problems import ApiError
from holdfast.store.contract import Store
from holdfast.store.errors import StateConflictError

NAMESPACE = "http.tokens"
"""Where tokens are, in the state of the store."""

SCOPES: tuple[TokenScope, ...] = (
    "sessions:read",
    "sessions:write",
    "answers:write",
    "agents:run",
    "strategies:read",
    "admin",
)

_ID_BYTES, _SECRET_BYTES = 6, 24


class StoredToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token as the store keeps it."""

    id: str
    name: str
    """Who it belongs to: what the journal says of whoever answers with it."""
    digest: str
    scopes: list[str]
    id_prefix: str = ""
    """Only sessions whose ids begin with this exist for it."""
    created_at: int
    expires_at: int | None = None

    def to_json(self) -> dict[str, object]:
        """The token as it is listed, without what could be used to guess it."""
        shown = msgspec.to_builtins(self)
        del shown["digest"]
        return dict(shown)


@dataclass(frozen=True)
class Principal:
    """Who sends a request."""

    name: str
    scopes: frozenset[str]
    id_prefix: str = ""
    token_id: str = ""
    expires_at: int | None = None

    def check_scope(self, scope: TokenScope) -> None:
        """Raise unless the principal may do what needs this scope. `admin` may do everything."""
        if scope in ("none", "any", *self.scopes) or "admin" in self.scopes:
            return
        why = f"this token does not have the scope `{scope}`; it has: {', '.join(sorted(self.scopes)) or 'none'}"
        raise ApiError(403, "forbidden", why)

    def check_session(self, session_id: str) -> None:
        """Raise, as if there were no such session, unless the principal may see it."""
        if not session_id.startswith(self.id_prefix):
            raise SessionNotFoundError(session_id)

    def narrowed(self, prefix: str) -> str | None:
        """What ids begin with that have a prefix and that the principal may see, or None if there are none."""
        if prefix.startswith(self.id_prefix):
            return prefix
        return self.id_prefix if self.id_prefix.startswith(prefix) else None


NOBODY = Principal("nobody", frozenset())
"""Who sends a request without a token."""


class Tokens:
    """The tokens of a store."""

    def __init__(self, store: Store, now: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, StoredToken | None]] = {}
        self.used_at: dict[str, int] = {}
        """When tokens were last used at this server, by id."""

    async def create(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        id_prefix: str = "",
        expires_at: int | None = None,
        token_id: str | None = None,
    ) -> tuple[str, StoredToken]:
        """A new token, whose text is shown this once, and what the store keeps of it.

        Raises a 409 if there is one with this `token_id`: its text cannot be shown again, because nobody has it.
        """
        check_id(name, "token name")
        if unknown := [each for each in scopes if each not in SCOPES]:
            raise InvalidValueError("scopes", f"no such scope: {', '.join(unknown)} (there are: {', '.join(SCOPES)})")
        if not scopes:
            raise InvalidValueError(
                "scopes", f"a token that may do nothing is of no use; choose of {', '.join(SCOPES)}"
            )
        token_id, secret = token_id or secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        stored = StoredToken(
            id=token_id,
            name=name,
            digest=_digest(secret),
            scopes=list(scopes),
            id_prefix=id_prefix,
            created_at=self._now(),
            expires_at=expires_at,
        )
        try:
            await self._store.put_state(NAMESPACE, token_id, msgspec.to_builtins(stored), expected=0)
        except StateConflictError:
            why = f"this request has made token '{token_id}' before, and its text was in that reply alone: revoke it"
            raise ApiError(409, "token_exists", f"{why}, and make another one with another key") from None
        return f"hf_{token_id}_{secret}", stored

    async def list(self) -> list[StoredToken]:
        """All tokens, those that have expired included."""
        found = [await self._read(token_id) for token_id in await self._store.list_state(NAMESPACE)]
        return [each for each in found if each is not None]

    async def revoke(self, token_id: str) -> bool:
        """Take a token back; False if there was none."""
        self._known.pop(token_id, None)
        return await self._store.delete_state(NAMESPACE, check_id(token_id, "token id"))

    async def principal(self, text: str) -> Principal:
        """Whose token this is. Raises a 401 that does not say what of it is wrong."""
        prefix, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        stored = await self._find(token_id) if prefix == "hf" and token_id.isalnum() else None
        is_right = hmac.compare_digest(stored.digest if stored is not None else "", _digest(secret))
        if stored is None or not is_right or (stored.expires_at is not None and stored.expires_at <= self._now()):
            raise unauthorized("the token is unknown, was revoked, or has expired")
        self.used_at[stored.id] = self._now()
        return Principal(stored.name, frozenset(stored.scopes), stored.id_prefix, stored.id, stored.expires_at)

    async def _find(self, token_id: str) -> StoredToken | None:
        now = self._monotonic()
        known = self._known.get(token_id)
        if known is not None and known[0] > now:
            return known[1]
        found = await self._read(token_id)
        if found is not None:  # unknown ids are not kept: there is no end to them
            self._known[token_id] = (now + TOKEN_CACHE_S, found)
        else:
            self._known.pop(token_id, None)
        return found

    async def _read(self, token_id: str) -> StoredToken | None:
        item = await self._store.get_state(NAMESPACE, token_id)
        return None if item is None else msgspec.convert(item.value, StoredToken)


def unauthorized(why: str) -> ApiError:
    """The refusal of a request that does not say who it is from."""
    challenge = 'Bearer realm="holdfast"'
    return ApiError(401, "unauthorized", f"{why}: send `Authorization: Bearer TOKEN`", {"www-authenticate": challenge})


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
